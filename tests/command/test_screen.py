"""The parts of a screen at the width of a terminal."""

from io import StringIO

from rich.console import Console

from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.render.terminal.screen import print_definitions, print_lines, print_next

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


def test_a_command_is_never_broken():
    command = f"attnlaw audit {'very-long-name/' * 8}model --out results"
    lines = screen(print_next, {command: "writes an interactive report"})
    assert lines[0] == f"Next   {command}"
    assert lines[1].strip() == "writes an interactive report"


def test_meanings_start_at_the_same_place():
    lines = screen(print_definitions, {"norm": "largest singular value", "rank": LONG})
    assert [line[:6] for line in lines] == ["norm  ", "rank  ", "      "]


def test_the_worst_line_is_the_status_of_an_answer():
    lines = (Line("a", AnswerStatus.UNUSUAL), Line("b", AnswerStatus.OK), Line("c"))
    assert Answer(lines).status == AnswerStatus.UNUSUAL
    assert Answer((Line("c"),)).status is None
