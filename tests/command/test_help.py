"""The help screens: purpose, usage, examples that run, options in groups."""

from __future__ import annotations

import io
import shlex
import shutil
from pathlib import Path

import pytest
from command.in_process import invoke, terminal

from attnlaw.command.commands import Command, command_lines, find_commands
from attnlaw.command.execute import output_options, parse_words
from attnlaw.command.help import print_help, print_overview, usage
from attnlaw.core.settings import MISSING, OptionPanel, setting_fields
from attnlaw.verbs import VERBS, find_verb

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [command for name in command_lines() for command in find_commands(name).values()]
EXAMPLES = [example for name in VERBS for example in find_verb(name).examples]


def shown(command: Command, width: int = 80) -> list[str]:
    file = io.StringIO()
    print_help(terminal(width, file=file), command)
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.title)
def test_help_starts_with_the_purpose_and_has_usage_and_two_examples(command: Command) -> None:
    lines = shown(command)
    purpose, *rest = " ".join(lines).partition(" Usage: ")
    assert " ".join(purpose.split()) == command.purpose
    assert usage(command) in " ".join("".join(rest).split())
    assert len(command.examples) == 2
    for example in command.examples:
        assert f"  {example}" in lines
        assert shlex.split(example)[: 1 + len(command.title.split())] == ["attnlaw", *command.title.split()]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.title)
def test_every_option_is_in_a_group_with_its_default(command: Command) -> None:
    lines = shown(command)
    panels = {str(known.rule.panel) for known in command.known.values()}
    heads = [line for line in lines if line in panels]
    assert len(heads) == len(panels)
    common = [str(panel) for panel in OptionPanel]
    places = [common.index(head) for head in heads if head in common]
    assert places == sorted(places)
    text = " ".join(" ".join(lines).split())
    for name, known in command.known.items():
        if not known.rule.positional:
            assert f" --{name.replace('_', '-')}" in text
        if (
            known.default is not MISSING
            and known.default not in (None, False)
            and not known.rule.default_sweep
        ):
            assert f"(default: {known.default})" in text


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.title)
def test_help_fits_into_80_columns(command: Command) -> None:
    assert [line for line in shown(command) if len(line) > 80 and line.strip() not in command.examples] == []


@pytest.mark.parametrize("name", ["learn", "limit"])
def test_help_says_once_what_a_range_means(name: str) -> None:
    text = "\n".join(shown(find_commands(name)[name]))
    assert text.count("FROM:TO:COUNT") == text.count("ten values from 0.1") == 1


def test_the_list_of_commands_has_one_line_for_each() -> None:
    file = io.StringIO()
    print_overview(terminal(80, file=file))
    lines = file.getvalue().splitlines()
    for name, line in command_lines().items():
        assert f"  {name:12}{line}" in [shown_line.rstrip() for shown_line in lines]
    questions = ["Weights on disk", "A model and its inputs", "Theory", "Work"]
    assert [line.strip() for line in lines if line.strip() in questions] == questions


def test_the_words_help_and_h_print_the_same() -> None:
    assert (
        invoke("audit", "--help").stdout == invoke("audit", "-h").stdout == invoke("--help", "audit").stdout
    )
    assert invoke().stdout == invoke("--help").stdout
    assert invoke("study").stdout == invoke("study", "--help").stdout != invoke("study", "run", "-h").stdout


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_has_options_and_values_that_exist(example: str) -> None:
    name, *words = shlex.split(example)[1:]
    verb = find_verb(name)
    known = setting_fields(verb.settings) | setting_fields(output_options(verb))
    if verb.simulation is not None:
        known |= setting_fields(verb.simulation.settings)
    given = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            option = known[word[2:].replace("-", "_")]
            flag = option.types == (bool,)
            given[option.name] = True if flag else words[place + 1]
    for option_name, values in parse_words(known, given).items():
        for value in values if isinstance(values, list) else [values]:
            known[option_name].validate(value)


def in_a_directory_with_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory with the models that the examples name."""
    (folder / "examples").symlink_to(ROOT / "examples")
    for name in ("base", "tuned"):
        shutil.copytree(ROOT / "examples" / "tiny-decoder", folder / name)
    monkeypatch.chdir(folder)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_directory_with_models(tmp_path, monkeypatch)
    assert invoke(*shlex.split(example)[1:]).stdout


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in VERBS
        if any(known.default is MISSING for known in setting_fields(find_verb(name).settings).values())
    ],
)
def test_a_command_without_its_words_shows_an_example(name: str) -> None:
    line = invoke(name, status=2).stderr
    assert line.startswith("attnlaw: ")
    assert line.endswith(f" is missing; try: {next(iter(find_verb(name).examples))}\n")
