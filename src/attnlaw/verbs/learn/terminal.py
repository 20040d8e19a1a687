"""The screen of `learn`: the answer, then the numbers of one problem or a line for each of several."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.console import Console

from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.render.terminal.cases import (
    error_meaning,
    print_details,
    print_settings,
    setting_columns,
    unusual_settings,
)
from attnlaw.render.terminal.console import Column, print_table
from attnlaw.render.terminal.screen import print_answer, print_definitions, print_next, print_title
from attnlaw.verbs.learn.answer import answer, percent, varying_cases
from attnlaw.verbs.learn.comparison import TrainedStudents, relative_error, trained_students

if TYPE_CHECKING:
    from attnlaw import LearnResult

RELATIVE = "relative_error"
# Titles of the numbers that the first screen shows, with whether they are percentages.
TITLES = {
    RELATIVE: ("error", True),
    "estimation_error": ("E", False),
    "wrong_keys": ("wrong keys", True),
    "rank_fraction": ("rank", True),
    "training_loss": ("training loss", False),
    "prediction_error": ("test loss", False),
    "smallest_value": ("smallest value", False),
}
IN_ROWS = (RELATIVE, "estimation_error", "wrong_keys", "rank_fraction", "training_loss")
MEANINGS = {
    RELATIVE: "error E relative to that of a zero matrix, which has learned nothing (100%)",
}
DIMENSION = {"d": "dimension of a token; the learned matrix has d² entries"}
THRESHOLD = "threshold_"
FLAGS = ("thresholds", "spectrum")


def show_summary(result: LearnResult, console: Console, details: bool = False) -> None:
    """Print the answer, a table of the main numbers, what they mean, and the next commands."""
    shown = answer(result)
    print_title(console, result.verb.title, _facts(result))
    print_answer(console, shown)
    students = trained_students(result)
    single = result.finished_rows.height == 1
    meanings = _print_case(result, console, students[0]) if single else _print_rows(result, console, students)
    if details:
        console.print()
        print_details(console, result, apart="floats")
    console.print()
    more = {"theory": "values that theory predicts for infinite d"} if single else {}
    print_definitions(console, {**more, **meanings, **DIMENSION})
    if details:
        print_settings(console, result, _varied(result))
    if shown.next_commands:
        console.print()
        print_next(console, shown.next_commands)


def _facts(result: LearnResult) -> str:
    varied, row = _varied(result), result.row()
    facts = []
    if "student" not in varied:
        facts.append(f"{row['student']} student")
    if "attention" not in varied and row["attention"] != "tied":
        facts.append(f"{row['attention']} attention")
    if "tokens" not in varied:
        facts.append("1 token per sample" if row["tokens"] == 1 else f"{row['tokens']} tokens per sample")
    left_out = ("alpha", "student", "attention", "tokens", "simulate", "seeds", "seed", *FLAGS, *varied)
    facts += unusual_settings(result, row, left_out, always=("noise", "weight_decay", "target_rank"))
    return " · ".join(facts)


def _varied(result: LearnResult) -> list[str]:
    names = [name for name in result.verb.setting_columns.values() if name not in FLAGS]
    return varying_cases(result.rows, names)


def _cell(value: Any, as_percent: bool) -> str:
    if value is None:
        return ""
    estimate = value if isinstance(value, Estimate) else Estimate(value)
    if as_percent:
        return percent(estimate)
    return str(estimate) if estimate.error else f"{estimate.value:.4g}"


def _bounded(cell: str, name: str, value: Any, recovered: bool) -> str:
    """Return a cell, or an upper bound with one digit if the target is recovered and rounding hides E."""
    number = float(value.value if isinstance(value, Estimate) else value or 0.0)
    if name != "estimation_error" or not recovered or number <= 0:
        return cell
    exponent = math.floor(math.log10(number))
    return f"< {math.ceil(number / 10.0**exponent):d}e{exponent:+03d}"


def _values(result: LearnResult, case: int) -> dict[str, Any]:
    values = result.values(case)
    if RELATIVE not in values:  # trained students alone
        values[RELATIVE] = relative_error(values)
    if values["wrong_keys"] is not None:  # this loss sets no scale, so the error says little
        values[RELATIVE] = None
    return values


def _trained(students: TrainedStudents | None, name: str) -> Estimate | None:
    if students is None:
        return None
    return students.relative_error if name == RELATIVE else students.values.get(name)


def _meaning(result: LearnResult, name: str) -> str:
    descriptions = {quantity.name: quantity.description for quantity in result.verb.quantities}
    return MEANINGS.get(name) or descriptions[name]


def _print_case(result: LearnResult, console: Console, students: TrainedStudents | None) -> dict[str, str]:
    case = int(result.finished_rows["case"][0])
    values, meanings, lines = _values(result, case), {}, []
    thresholds = {
        quantity.name: (quantity.label, False)
        for quantity in result.verb.quantities
        if quantity.name.startswith(THRESHOLD)
    }
    recovered = result.finished_rows["status"][0] == Outcome.RECOVERED
    for name, (title, as_percent) in (TITLES | thresholds).items():
        if values.get(name) is None:
            continue
        theory = _bounded(_cell(values[name], as_percent), name, values[name], recovered)
        lines.append((title, theory, _cell(_trained(students, name), as_percent)))
        meanings[title] = _meaning(result, name)
    head = "theory" if result.verb.simulation is not None else "trained"
    columns = [
        Column("", [line[0] for line in lines], is_text=True),
        Column(head, [line[1] for line in lines]),
    ]
    if students is not None:
        columns.append(Column(f"trained, d = {students.largest}", [line[2] for line in lines]))
    print_table(console, columns)
    return meanings | error_meaning(cell for line in lines for cell in line)


def _print_rows(
    result: LearnResult, console: Console, students: list[TrainedStudents | None]
) -> dict[str, str]:
    rows = result.finished_rows
    columns = setting_columns(result, rows, _varied(result))
    columns = [c._replace(title="samples / d²") if c.title == "alpha" else c for c in columns]
    values = [_values(result, case) for case in rows["case"]]
    meanings, droppable = {}, []
    for name in IN_ROWS:
        title, as_percent = TITLES[name]
        cells = [
            _bounded(_cell(known[name], as_percent), name, known[name], status == Outcome.RECOVERED)
            for known, status in zip(values, rows["status"], strict=True)
        ]
        if not any(cells):
            continue
        columns.append(Column(title, cells))
        droppable.append(title)
        meanings[title] = _meaning(result, name)
        trained = [_cell(_trained(each, name), as_percent) for each in students]
        if any(trained) and name in (RELATIVE, "wrong_keys", "rank_fraction"):
            key = f"{title}, trained"
            columns.append(Column("trained", trained, name=key))
            droppable.append(key)
    if any(students):
        sizes = sorted({each.largest for each in students if each is not None})
        meanings["trained"] = f"students of dimension d = {', '.join(map(str, sizes))}"
    print_table(console, columns, droppable[:0:-1])
    return meanings | error_meaning(cell for column in columns for cell in column.cells)
