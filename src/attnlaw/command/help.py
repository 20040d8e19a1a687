"""Print the help of the command line: the list of all commands, and for each its purpose, usage, examples,
the options in groups, the rest of its text, and what several options have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from rich.console import Console
from rich.text import Text

from attnlaw.command.commands import Command, command_lines
from attnlaw.core.errors import as_option
from attnlaw.core.settings import OptionPanel, SettingField
from attnlaw.render.terminal.console import to_screen
from attnlaw.render.terminal.screen import print_hanging
from attnlaw.verbs import QUESTIONS

METAVARS: dict[Any, str] = {float: "NUMBER", int: "N", str: "TEXT"}
COMMAND_WIDTH = 12  # letters of a command's name in a list of commands
WIDEST_LABEL = 26  # letters of an option's name and value that leave room for its meaning on the same line
LONGEST_CHOICES = 44  # letters; longer lists of choices are in the help text
PURPOSE = "Find out what is broken, learned or changed in a Transformer, from its spectra."
SWEEPS = (
    "Options marked with ,... take several values, joined by commas. attnlaw computes a result for each "
    "value. You can also write numbers as FROM:TO:COUNT. For example, 0.1:1:10 means ten values from 0.1 "
    "to 1."
)
GENERAL = {
    "--help, -h": "Print this list. Show this help. After a command, show its options.",
    "--version, -V": "Print the version.",
    "--install-completion": "Set up the shell to complete commands and options.",
}
START = "attnlaw audit examples/tiny-decoder"


def print_overview(console: Console) -> None:
    """Print the list of all commands, grouped by the questions that they answer."""
    _print_paragraph(console, PURPOSE)
    _print_next_paragraph(console, "Usage: attnlaw COMMAND [OPTIONS] ...")
    lines = command_lines()
    listed = {name for names in QUESTIONS.values() for name in names}
    others = tuple(name for name in lines if name not in listed)
    for title, names in (QUESTIONS | ({"More": others} if others else {})).items():
        _print_rows(console, title, {name: lines[name] for name in names}, COMMAND_WIDTH)
    _print_rows(console, "Options", GENERAL, WIDEST_LABEL)
    _print_next_paragraph(console, f"Start with: {START}")


def print_group(console: Console, name: str, commands: Mapping[str, Command]) -> None:
    """Print a list of the commands in a group, such as `study`."""
    _print_paragraph(console, command_lines()[name])
    _print_next_paragraph(console, f"Usage: attnlaw {name} COMMAND [OPTIONS] ...")
    purposes = {word: command.purpose for word, command in commands.items()}
    _print_rows(console, "Commands", purposes, COMMAND_WIDTH)
    firsts = [next(iter(command.examples.items())) for command in commands.values() if command.examples]
    _print_examples(console, dict(firsts))
    _print_next_paragraph(console, f"More about each: attnlaw {name} {next(iter(commands))} --help")


def print_help(console: Console, command: Command) -> None:
    """Print the help of a command."""
    _print_paragraph(console, command.purpose)
    _print_next_paragraph(console, usage(command))
    _print_examples(console, command.examples)
    groups: dict[str, dict[str, str]] = {}
    for known in sorted(command.known.values(), key=lambda known: not known.rule.positional):
        groups.setdefault(known.rule.panel, {})[label(known)] = meaning(known)
    lengths = [len(typed) for rows in groups.values() for typed in rows]
    width = max((length for length in lengths if length <= WIDEST_LABEL), default=0) + 2
    for title in sorted(groups, key=_panel_order):
        _print_rows(console, title, groups[title], width)
    paragraphs = command.paragraphs[1:]
    if any(known.rule.sweepable and not known.rule.is_path for known in command.known.values()):
        paragraphs.append(SWEEPS)
    if command.python:
        paragraphs.append(f"In Python: {command.python}")
    for paragraph in paragraphs:
        _print_next_paragraph(console, paragraph)


def usage(command: Command) -> str:
    """Return the line that shows how to call a command."""
    required = [
        f"{label(known)}"
        for known in command.known.values()
        if known.default is MISSING and not known.rule.positional
    ]
    words = [label(place) if place.default is MISSING else f"[{label(place)}]" for place in command.places]
    return f"Usage: attnlaw {' '.join([command.title, *words, *required, '[OPTIONS]'])}"


def label(known: SettingField) -> str:
    """Return how help spells an option or a positional argument, such as `--alpha NUMBER,...`."""
    rule = known.rule
    if rule.positional:
        return f"{rule.metavar or known.name.upper()}{'...' if takes_several_words(known) else ''}"
    if known.types == (bool,):
        return as_option(known.name)
    choices = "|".join(rule.choices or ())
    metavar = (
        rule.metavar
        or (choices if len(choices) <= LONGEST_CHOICES else "NAME")
        or METAVARS.get(known.types[0], "TEXT")
    )
    several = ",..." if rule.sweepable and not rule.is_path else ""
    return f"{as_option(known.name)} {metavar}{several}"


def takes_several_words(known: SettingField) -> bool:
    """Return whether this setting takes several positional arguments."""
    return known.rule.sweepable or tuple[str, ...] in known.types


def meaning(known: SettingField) -> str:
    """Return the help text of an option, with its choices if `label` does not show them, and its default."""
    rule = known.rule
    default = ",".join(map(str, rule.default_sweep)) if rule.default_sweep else known.default
    words = [rule.help]
    if rule.choices and f"|{next(iter(rule.choices))}|" not in f"|{label(known)}|".replace(" ", "|"):
        words.append(f"One of {', '.join(rule.choices)}.")
    if default is MISSING:
        words.append("(required)")
    elif default is not None and known.types != (bool,):
        words.append(f"(default: {default})")
    return " ".join(words)


def _panel_order(title: str) -> tuple[int, int]:
    """Return where a group of options is: input first, then the groups of this command, then the others."""
    common = [str(panel) for panel in OptionPanel]
    return (common.index(title), 0) if title in common else (0, 1)


def _print_examples(console: Console, examples: Mapping[str, str]) -> None:
    if not examples:
        return
    _print_head(console, "Examples")
    for command, purpose in examples.items():
        console.print(Text(to_screen(console, f"  {command}")), soft_wrap=True)
        print_hanging(console, Text(" " * 6), purpose, style="dim")


def _print_rows(console: Console, title: str, rows: Mapping[str, str], width: int) -> None:
    """Print a group of lines: what is typed, and what it means. A long label has a line of its own."""
    _print_head(console, title)
    for typed, text in rows.items():
        head = Text(f"  {to_screen(console, typed)}", style="cyan")
        if head.cell_len > width:
            console.print(head, soft_wrap=True)
            head = Text()
        head.pad_right(width + 2 - head.cell_len)
        print_hanging(console, head, text)


def _print_head(console: Console, title: str) -> None:
    console.print()
    console.print(Text(to_screen(console, title), style="bold"))


def _print_next_paragraph(console: Console, text: str) -> None:
    console.print()
    _print_paragraph(console, text)


def _print_paragraph(console: Console, text: str) -> None:
    for line in text.splitlines():
        print_hanging(console, Text(), line)
