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
TOLD = ("lens", "margins")


@pytest.mark.parametrize("name", EVERY)
def test_a_template_is_a_study_and_so_is_each_line(name: str, tmp_path: Path) -> None:
    text, file = template(find_verb(name)), tmp_path / "study.toml"
    assert re.findall(r"^#?(\w+) = ", text.split("[grid]")[0], flags=re.MULTILINE) == [
        "verb",
        *study_keys(find_verb(name)),
    ]
    file.write_text(text)
    if name in TOLD:  # one of several keys must be given
        with pytest.raises(InputError, match="text is missing; give it, file or ids"):
            read_study(file)
        return
    (task,) = read_study(file).tasks
    meaning = r"((?:^# .*\n)*)^(#\w+ = .*)$"
    for words, line in re.findall(meaning, text, flags=re.MULTILINE):
        waits = re.search(r"; (where|needs) ", words.replace("\n# ", " "))
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
    assert "'coin' is not a verb; expected one of audit" in invoke("study", "new", "coin", status=1).stderr
