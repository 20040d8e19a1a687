"""The screen of `dynamics`: when the student finds the target, and a table of times or of cases."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import format_column, format_value
from attnlaw.core.settings import setting_fields
from attnlaw.render.describe_rows import ValueLabels
from attnlaw.render.terminal.console import Column, print_table
from attnlaw.render.terminal.screen import print_answer, print_definitions, print_next, print_title, without
from attnlaw.verbs.dynamics.answer import (
    NOT_THE_CASE,
    answer,
    runs_of,
    trajectory_of,
    varying_cases,
)

if TYPE_CHECKING:
    from attnlaw import DynamicsResult

MOST_TIMES = 12  # times on the first screen; JSON and --out have all of them
# Titles of the columns, and whether only `--details` shows them.
TITLES = {
    "time": ("time", False),
    "samples": ("samples / d²", False),
    "alignment": ("alignment", False),
    "estimation_error": ("error E", False),
    "prediction_error": ("loss", False),
    "overlap": ("overlap m", True),
    "norm": ("norm q", True),
    "trace": ("trace", True),
}
CASE_TITLES = {
    "recovery_time": "time to 0.5",
    "recovery_time_90": "time to 0.9",
    "recovery_samples": "samples to 0.5",
    "alignment": "alignment",
    "prediction_error": "loss",
}
DIMENSION = {"d": "dimension of a token; the learned matrix S has d² entries"}
CASES_BESIDE = 3  # columns of a table of details, so that it fits the screen
TRAINED = ("alignment", "estimation_error")  # shown for trained students too


def show_case(result: DynamicsResult, console: Console, details: bool = False) -> None:
    """Print nothing, because theory and trained students are compared at the end."""


def show_summary(result: DynamicsResult, console: Console, details: bool = False) -> None:
    """Print the answer, a table of times or of cases, its meanings, and the next commands."""
    shown = answer(result)
    print_title(console, result.verb.title, _facts(result))
    print_answer(console, shown)
    single = result.finished_rows.height == 1
    meanings = _print_times(result, console, details) if single else _print_cases(result, console)
    console.print()
    print_definitions(console, meanings | DIMENSION)
    if details:
        console.print()
        _print_details(result, console)
    if shown.next_commands:
        console.print()
        print_next(console, shown.next_commands)


def _facts(result: DynamicsResult) -> str:
    """Describe how all cases are trained, and settings that are not the default."""
    row = result.finished_rows.row(0, named=True)
    varied = varying_cases(result, result.finished_rows)
    facts = []
    if "learning_rate" not in varied:
        rate = row["learning_rate"]
        facts.append(
            f"one-pass SGD, learning rate {rate:g}" if rate else "gradient flow (infinitely small steps)"
        )
    if "student" not in varied:
        facts.append(f"{row['student']} student")
    said = ("learning_rate", "student", *NOT_THE_CASE)
    for name, field in setting_fields(result.verb.settings).items():
        value = row[result.verb.setting_columns[name]]
        if name in said or name in varied or value in (None, False):
            continue
        if value != field.default or name == "target_rank":
            facts.append(f"{name.replace('_', ' ')} {_number(value)}")
    return " · ".join(facts)


def _number(value: Any) -> str:
    return "∞" if value == math.inf else format_value(value)


def _cells(times: pl.DataFrame, name: str) -> list[str]:
    error = f"{name}_error"
    errors: Iterable[Any] = times[error] if error in times.columns else [None] * times.height
    errors = list(errors)
    if any(errors):
        return format_column(times[name], errors)
    return ["" if value is None else f"{value:.4g}" for value in times[name]]


def _print_times(result: DynamicsResult, console: Console, details: bool) -> dict[str, str]:
    """Print a line for each of some times. Return the meanings of the columns."""
    if result.verb.simulation is None:
        times = result.finished_table("runs").sort("time")
        runs: dict[int, pl.DataFrame] = {}
    else:
        row = result.finished_rows.row(0, named=True)
        times, runs = trajectory_of(result, row["case"]), runs_of(result, row)
    step = 1 if details else max(-(-(times.height - 1) // (MOST_TIMES - 1)), 1)
    chosen = [0, *range((times.height - 2) % step + 1, times.height, step)]
    students = runs[max(runs)] if runs else None
    columns, meanings, droppable = [], {}, []
    for name, (title, hidden) in TITLES.items():
        if (hidden and not details) or not times[name].count():
            continue
        columns.append(Column(title, _cells(times[chosen], name)))
        meanings[title] = _description(result, name)
        droppable += [] if name in ("time", "alignment") else [title]
        if students is not None and (name in TRAINED or hidden or details) and students[name].count():
            if name in ("time", "samples"):
                continue
            columns.append(Column("trained", _cells(students[chosen], name), name=f"{title}, trained"))
            droppable += [f"{title}, trained"]
    if runs:
        meanings["trained"] = f"mean over students of dimension d = {max(runs)}, trained by SGD"
    meanings = without(meanings, print_table(console, columns, droppable[::-1]))
    if times[chosen]["alignment"].null_count():
        console.print(Text("Empty cells: training has diverged, so there are no numbers.", style="dim"))
    return meanings | _error_meaning(columns)


def _description(result: DynamicsResult, name: str) -> str:
    table = result.verb.tables[0]
    meaning = next(quantity.description for quantity in table.columns if quantity.name == name)
    return meaning.removesuffix("; empty for gradient flow")


def _print_cases(result: DynamicsResult, console: Console) -> dict[str, str]:
    """Print a line for each case. Return the meanings of the columns."""
    rows, labels = result.finished_rows, ValueLabels(result.verb, result.rows)
    columns = [
        Column(
            name.replace("_", " "),
            ["" if value is None else labels.label_of(name, value) for value in rows[name]],
            is_text=rows[name].dtype == pl.String,
        )
        for name in varying_cases(result, rows)
    ]
    meanings, droppable = {}, []
    descriptions = {quantity.name: quantity.description for quantity in result.verb.quantities}
    for name, title in CASE_TITLES.items():
        if name in rows.columns and rows[name].count():
            columns.append(Column(title, _cells(rows, name)))
            meanings[title] = descriptions[name].removesuffix("; empty for gradient flow")
            droppable.append(title)
    meanings = without(meanings, print_table(console, columns, droppable[:0:-1]))
    return meanings | _error_meaning(columns)


def _error_meaning(columns: list[Column]) -> dict[str, str]:
    has_error = any(re.search(r"\d\(", str(cell)) for column in columns for cell in column.cells)
    return {"0.25(1)": "0.25 with a standard error of 0.01"} if has_error else {}


def _print_details(result: DynamicsResult, console: Console) -> None:
    """Print every quantity of every case with its meaning, and all settings."""
    for part in filter(None, (result, result.simulation)):
        cases = part.finished_rows["case"].to_list()
        values = [part.values(case) for case in cases]
        known = [q for q in part.verb.quantities if any(numbers[q.name] is not None for numbers in values)]
        several = len(cases) > 1
        console.print(Text(part.verb.title, style="bold"))
        labels = Column("quantity", [q.label for q in known], is_text=True)
        columns = [
            Column(f"case {i}" if several else "", [format_value(numbers[q.name]) for q in known])
            for i, numbers in enumerate(values, start=1)
        ]
        meanings = {q.label: q.description for q in known}
        explained = Column("", list(meanings.values()), is_text=True, wraps=True)
        for start in range(0, len(columns), CASES_BESIDE):
            beside = columns[start : start + CASES_BESIDE]
            print_table(console, [labels, *beside] if several else [labels, *beside, explained])
        if several:
            print_definitions(console, meanings)
    settings = {name: value for name, value in result.settings().items() if value is not None}
    words = ", ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in settings.items())
    print_definitions(console, {"settings": words})
