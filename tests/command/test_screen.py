"""The parts of a screen at the width of a terminal."""

import shlex
from io import StringIO

from rich.console import Console

from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.render.terminal.screen import print_definitions, print_lines, print_next, typed_options

LONG = (
    "Forty of forty weight matrices differ from random ones, and chance alone would give about 0.4 of them."
)


def screen(print_part, *given, width=80):
    file = StringIO()
    print_part(Console(width=width, file=file, force_terminal=True, no_color=True, color_system=None), *given)
    return file.getvalue().splitlines()


def test_sentences_stay_within_the_screen_and_below_each_other():
    lines = screen(print_lines, (Line(LONG, AnswerStatus.OK), Line("Fine.")))
    assert all(len(line) <= 80 for line in lines)
    assert [line[:9] for line in lines] == ["OK       ", " " * 9, " " * 9]
    assert " ".join(line[9:].strip() for line in lines[:2]) == LONG


def test_a_long_command_can_be_pasted_from_a_terminal():
    command = (
        f"attnlaw lens {'very-long-name/' * 4}model --text 'a text of two \"quoted\" words' --out results"
    )
    *lines, purpose = screen(print_next, {command: "writes an interactive report"})
    assert purpose.strip() == "writes an interactive report"
    assert len(lines) > 1
    assert all(len(line) <= 80 for line in lines)
    assert shlex.split("\n".join(lines).removeprefix("Next").replace("\\\n", " ")) == shlex.split(command)


def test_a_command_in_a_file_is_never_broken():
    command = f"attnlaw audit {'very-long-name/' * 8}model --out results"
    file = StringIO()
    print_next(Console(width=80, file=file), {command: "writes an interactive report"})
    assert file.getvalue().splitlines()[0] == f"Next   {command}"


def test_next_commands_do_not_repeat_what_was_typed():
    commands = {"attnlaw audit M --out results": "", "attnlaw audit M --details": "", "attnlaw fit M": ""}
    with typed_options(["--details"], "audit", ["--as-stored"]):
        lines = screen(print_next, commands)
    assert [line[7:].strip() for line in lines] == [
        "attnlaw audit M --out results --as-stored",
        "attnlaw fit M",
    ]
    assert len(screen(print_next, commands)) == 3


def test_meanings_start_at_the_same_place():
    lines = screen(print_definitions, {"norm": "largest singular value", "rank": LONG})
    assert [line[:6] for line in lines] == ["norm  ", "rank  ", "      "]


def test_the_worst_line_is_the_status_of_an_answer():
    lines = (Line("a", AnswerStatus.UNUSUAL), Line("b", AnswerStatus.OK), Line("c"))
    assert Answer(lines).status == AnswerStatus.UNUSUAL
    assert Answer((Line("c"),)).status is None
