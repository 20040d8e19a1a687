"""`attnlaw study new VERB`: every key is there, and every line counts once its # is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command.in_process import invoke

from attnlaw.core.errors import InputError
from attnlaw.study.study_file import read_study, study_keys, template
from attnlaw.verbs import STUDY_VERBS, VERBS, find_verb

EVERY = [*VERBS, *STUDY_VERBS]


@pytest.mark.parametrize("name", EVERY)
def test_a_template_is_a_study_and_so_is_each_line(name: str, tmp_path: Path) -> None:
    text, file = template(find_verb(name)), tmp_path / "study.toml"
    assert re.findall(r"^#?(\w+) = ", text.split("[grid]")[0], flags=re.MULTILINE) == [
        "verb",
        *study_keys(find_verb(name)),
    ]
    file.write_text(text)
    (task,) = read_study(file).tasks
    meaning = r"((?:^# .*\n)*)^(#\w+ = .*)$"
    for words, line in re.findall(meaning, text, flags=re.MULTILINE):
        waits = "Only " in words
        if "= ..." in line or waits:  # it counts beside others alone
            continue
        file.write_text(text.replace(f"\n{line}\n", f"\n{line[1:]}\n"))
        in_grid = line in text.split("[grid]")[1].split("[run]")[0]
        tasks = read_study(file).tasks
        if in_grid:
            assert len(tasks) >= 2
        elif not re.match("#(seed|seeds|retries) ", line):
            assert [variant.key for variant in tasks] == [task.key]


def test_the_command_prints_it() -> None:
    assert invoke("study", "new", "learn").stdout == template(find_verb("learn"))
    refused = invoke("study", "new", "coin", status=1).stderr
    assert "coin: attnlaw has no computation of this name; expected one of audit, " in refused


def test_a_template_explains_every_key_in_sentences(tmp_path: Path) -> None:
    """A key has a comment above it that ends in a full stop; required numbers get a number."""
    for name in EVERY:
        lines = template(find_verb(name)).splitlines()
        start = lines.index(next(line for line in lines if line.startswith("[fixed]")))
        keys = [number for number, line in enumerate(lines) if number > start and re.match(r"#?\w+ = ", line)]
        grid = lines.index(next(line for line in lines if line.startswith("[grid]")))
        listed = lines.index(next(line for line in lines if line.startswith("#[[list]]")))
        for number in keys:
            if not grid < number < listed:
                assert re.match(r"# .*\.$", lines[number - 1]), lines[number]
    assert re.search(r"^simulate = \d+$", template(find_verb("learn.simulate")), flags=re.MULTILINE)
    file = tmp_path / "study.toml"
    file.write_text(template(find_verb("learn.simulate")))
    assert len(read_study(file).tasks) == 1


def test_a_mistake_names_the_key_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('verb = "audit"\n')
    with pytest.raises(InputError, match="model is missing; audit needs it under"):
        read_study(file)
    file.write_text('verb = "learn.simulate"\n[fixed]\nsimulate = 30_000\nalpha = 2.0\n')
    study = read_study(file)
    with pytest.raises(InputError, match="simulate: found 30000") as error:
        study.check(study.tasks)
    assert "size" not in str(error.value).split("study.toml")[1]
