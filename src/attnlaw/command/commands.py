"""The commands, by name: their settings, their help, and the function that runs them. Only the module of the
command that the user calls is imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import cleandoc
from typing import Any

from attnlaw.command.execute import output_options, parse_words, run_command
from attnlaw.core.settings import SettingField, Settings, setting_fields
from attnlaw.core.verb import Verb
from attnlaw.verbs import VERBS, find_verb

# Further commands. Each module of attnlaw has COMMANDS: name -> settings class with `execute`.
OTHER_COMMANDS = {
    "study": ("command.study", "Run a sweep, here or on a cluster, without losing a row."),
    "reproduce": ("reproduce.command", "Repeat the figures of a paper and compare its numbers."),
    "report": ("command.report", "Write one page about saved results."),
    "lab": ("command.lab", "Explore the theory with sliders in your browser."),
}


@dataclass(frozen=True)
class Command:
    """A command of attnlaw:

    Args:
        title: the words that call the command, such as "study run".
        settings: the class of its settings. The docstring of this class is the help text.
        known: all options and positional arguments of the command.
        run: a function that receives the typed values by setting name and returns the exit status.
        examples: a mapping from each example command to its description.
        python: code that does the same in Python.
    """

    title: str
    settings: type[Settings]
    known: Mapping[str, SettingField]
    run: Callable[[dict[str, Any]], int]
    examples: Mapping[str, str] = field(default_factory=dict)
    python: str = ""

    @property
    def paragraphs(self) -> list[str]:
        """The paragraphs of the help text. Each is one line, except lists such as `name: what it means`."""
        text = cleandoc(self.settings.__doc__ or "")
        return re.sub(r"(?<!\n)\n(?!\n|[a-z-]+( [a-z]+)?: )", " ", text).split("\n\n")

    @property
    def purpose(self) -> str:
        """The first paragraph of the help text."""
        return self.paragraphs[0]

    @property
    def places(self) -> list[SettingField]:
        """The positional arguments of the command, in order. Only the last one may take several values."""
        return [known for known in self.known.values() if known.rule.positional]


def command_lines() -> dict[str, str]:
    """Return a mapping from command names to descriptions, in the order in which help lists them."""
    return {name: line for name, (_, line) in (VERBS | OTHER_COMMANDS).items()}


def find_commands(name: str) -> dict[str, Command]:
    """Return the command with this name, or a mapping of the commands in a group such as `study`."""
    if name in VERBS:
        return {name: _verb_command(find_verb(name))}
    commands = import_module(f"attnlaw.{OTHER_COMMANDS[name][0]}").COMMANDS
    alone = list(commands) == [name]
    return {
        word: _other_command(settings, name if alone else f"{name} {word}")
        for word, settings in commands.items()
    }


def _verb_command(verb: Verb[Any, Any]) -> Command:
    known = setting_fields(verb.settings) | setting_fields(output_options(verb))
    if verb.simulation is not None:  # without its required settings it does not run: they are optional
        more = setting_fields(verb.simulation.settings).items()
        known = {name: replace(other, default=None) for name, other in more if name not in known} | known
    python = f"attnlaw.{verb.name}(...) returns the same numbers; see help(attnlaw.{verb.name})."
    return Command(
        verb.name, verb.settings, known, lambda given: run_command(verb, given), verb.examples, python
    )


def _other_command(settings: type[Settings], title: str) -> Command:
    known = setting_fields(settings)

    def run(given: dict[str, Any]) -> int:
        return int(settings.parse(parse_words(known, given), title).execute())  # type: ignore[attr-defined]

    return Command(title, settings, known, run, settings.examples, settings.python)
