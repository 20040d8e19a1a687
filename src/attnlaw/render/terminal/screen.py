"""The parts of a screen: it starts with the answer, has one table of what matters most with the meanings of
its columns, and ends with the commands to try next. Everything else waits for `--details`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.text import Text

from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.errors import printable
from attnlaw.render.terminal.console import to_screen

STYLES = {
    AnswerStatus.OK: "bold green",
    AnswerStatus.UNUSUAL: "bold cyan",
    AnswerStatus.WARNING: "bold yellow",
    AnswerStatus.ERROR: "bold red",
}
STATUS_WIDTH = max(map(len, AnswerStatus)) + 2
WIDEST_PROSE = 100  # letters in a line of prose; longer lines are hard to read
NEXT = "Next   "
# A word of a command line. Spaces inside quotes belong to it.
WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"[^"]*")+""")
_already_typed: ContextVar[frozenset[str]] = ContextVar("already_typed", default=frozenset())
_kept_options: ContextVar[tuple[str, tuple[str, ...]]] = ContextVar("kept_options", default=("", ()))


@contextmanager
def typed_options(shown: Iterable[str] = (), verb: str = "", kept: Iterable[str] = ()) -> Iterator[None]:
    """In this block, adapt the printed next commands to the command that the user typed.

    Commands with an option in `shown`, which the user already typed, are left out. Other commands of the
    `verb` get the options `kept`, such as `--as-stored`, which no row contains.
    """
    before = _already_typed.set(_already_typed.get() | frozenset(shown))
    kept_before = _kept_options.set((verb, tuple(kept)) if verb else _kept_options.get())
    try:
        yield
    finally:
        _already_typed.reset(before)
        _kept_options.reset(kept_before)


def print_title(console: Console, name: str, facts: str = "") -> None:
    """Print what the screen is about in one line, or in two if it is too long."""
    title = Text(to_screen(console, printable(name)), style="bold")
    facts = to_screen(console, printable(facts))
    if facts and title.cell_len + len(facts) + 4 <= console.width:
        title.append(f"    {facts}", style="not bold dim")
        facts = ""
    console.print(title, soft_wrap=True)
    if facts:
        print_hanging(console, Text(), facts, style="dim")


def print_lines(console: Console, lines: tuple[Line, ...]) -> None:
    """Print the lines of an answer. If one of them has a status, all are indented."""
    indent = STATUS_WIDTH if any(line.status for line in lines) else 0
    for line in lines:
        style = STYLES[line.status] if line.status else ""
        print_hanging(console, Text((line.status or "").ljust(indent), style=style), line.text)
        for sentence in line.details:
            print_hanging(console, Text(" " * indent), sentence, style="dim")


def without(meanings: Mapping[str, str], left_out: Iterable[str]) -> dict[str, str]:
    """Return the meanings of the columns that the screen shows."""
    hidden = set(left_out)
    return {title: meaning for title, meaning in meanings.items() if title not in hidden}


def print_definitions(console: Console, meanings: Mapping[str, str]) -> None:
    """Print a line with the meaning of each term. A long meaning continues below its start."""
    if not meanings:
        return
    width = max(Text(to_screen(console, term)).cell_len for term in meanings) + 2
    for term, meaning in meanings.items():
        shown = Text(to_screen(console, term))
        shown.pad_right(width - shown.cell_len)
        print_hanging(console, shown, meaning, style="dim")


def print_next(console: Console, commands: Mapping[str, str]) -> None:
    """Print the commands to try next, each with a description of what it shows.

    Long commands are broken after a backslash, so that they can still be pasted into a terminal. Commands
    that would only repeat the user's command are left out.
    """
    commands = _adapt(commands)
    widest = max((len(command) for command in commands), default=0)
    head = NEXT
    for command, purpose in commands.items():
        command, purpose = (to_screen(console, printable(text)) for text in (command, purpose))
        if console.is_terminal and len(NEXT) + len(command) > console.width:
            command = _break_command(command, console.width - len(NEXT))
        fits = len(NEXT) + widest + 3 + len(purpose) <= console.width
        line = Text(head).append(command.ljust(widest) if fits else command, style="bold")
        console.print(line.append(f"   {purpose}", style="dim") if fits else line, soft_wrap=True)
        if not fits:
            print_hanging(console, Text(" " * (len(NEXT) + 2)), purpose, style="dim")
        head = " " * len(NEXT)


def _adapt(commands: Mapping[str, str]) -> dict[str, str]:
    """Return the commands without those that the user has just typed, and with options that no row has."""
    typed, (verb, kept) = _already_typed.get(), _kept_options.get()
    adapted = {}
    for command, purpose in commands.items():
        if typed & set(WORD.findall(command)):
            continue
        same = verb and command.startswith(f"attnlaw {verb} ")
        adapted[shlex.join([*shlex.split(command), *kept]) if same and kept else command] = purpose
    return adapted


def _break_command(command: str, width: int) -> str:
    """Return a command in several lines. Each but the last ends with a backslash.

    >>> print(_break_command("attnlaw lens MODEL --text 'a long text'", 23).replace(chr(92), "/"))
    attnlaw lens MODEL /
             --text /
             'a long text'
    """
    lines, indent = [""], " " * (len(NEXT) + 2)
    for word in WORD.findall(command):
        longer = f"{lines[-1]} {word}" if lines[-1].strip() else f"{lines[-1]}{word}"
        start = 0 if len(lines) == 1 else len(NEXT)
        if len(longer) - start + 2 > width and lines[-1].strip():
            lines[-1] += " \\"
            lines.append(f"{indent}{word}")
        else:
            lines[-1] = longer
    return "\n".join(lines)


def print_hanging(console: Console, head: Text, text: str, style: str = "") -> None:
    """Print a text with a heading before it. All lines of the text start in the same column."""
    width = max(min(console.width, WIDEST_PROSE) - head.cell_len, 20)
    body = Text(to_screen(console, printable(text)), style=style)
    for number, line in enumerate(body.wrap(console, width)):
        line.rstrip()
        start = head if number == 0 else Text(" " * head.cell_len)
        console.print(Text.assemble(start, line), soft_wrap=True)


def print_answer(console: Console, answer: Answer | None) -> None:
    """Print the lines of an answer, followed by an empty line."""
    if answer is not None and answer.lines:
        print_lines(console, answer.lines)
        console.print()
