"""The screen of `dynamics`: when the student finds the target, and a table of times or of cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.render.terminal.cases import (
    error_meaning,
    number_cells,
    print_details,
    print_measures,
    print_settings,
    setting_columns,
    unusual_settings,
)
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
TRAINED = ("alignment", "estimation_error")  # shown for trained students too


def show_summary(result: DynamicsResult, console: Console, details: bool = False) -> None:
    """Print the answer, a table of times or of cases, what its columns mean, and the next commands."""
    shown = answer(result)
    print_title(console, result.verb.title, _facts(result))
    print_answer(console, shown)
    single = result.finished_rows.height == 1
    meanings = _print_times(result, console, details) if single else _print_cases(result, console)
    console.print()
    print_definitions(console, meanings | DIMENSION)
    if details:
        console.print()
        print_details(console, result)
        print_settings(console, result)
    if shown.next_commands:
        console.print()
        print_next(console, shown.next_commands)


def _facts(result: DynamicsResult) -> str:
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
    left_out = ("learning_rate", "student", *NOT_THE_CASE, *varied)
    facts += unusual_settings(result, row, left_out, always=("target_rank",))
    return " · ".join(facts)


def _print_times(result: DynamicsResult, console: Console, details: bool) -> dict[str, str]:
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
        columns.append(Column(title, number_cells(times[chosen], name)))
        meanings[title] = _description(result, name)
        droppable += [] if name in ("time", "alignment") else [title]
        if students is not None and (name in TRAINED or hidden or details) and students[name].count():
            if name in ("time", "samples"):
                continue
            columns.append(Column("trained", number_cells(students[chosen], name), name=f"{title}, trained"))
            droppable += [f"{title}, trained"]
    if runs:
        meanings["trained"] = f"mean over students of dimension d = {max(runs)}, trained by SGD"
    meanings = without(meanings, print_table(console, columns, droppable[::-1]))
    if times[chosen]["alignment"].null_count():
        console.print(Text("Empty cells: training diverged, so there are no numbers.", style="dim"))
    return meanings | error_meaning(cell for column in columns for cell in column.cells)


def _description(result: DynamicsResult, name: str) -> str:
    table = result.verb.tables[0]
    meaning = next(quantity.description for quantity in table.columns if quantity.name == name)
    return meaning.removesuffix("; empty for gradient flow")


def _print_cases(result: DynamicsResult, console: Console) -> dict[str, str]:
    rows = result.finished_rows
    descriptions = {quantity.name: quantity.description for quantity in result.verb.quantities}
    measures = [
        (title, descriptions[name].removesuffix("; empty for gradient flow"), number_cells(rows, name))
        for name, title in CASE_TITLES.items()
        if name in rows.columns
    ]
    meanings = print_measures(console, setting_columns(result, rows, varying_cases(result, rows)), measures)
    return meanings | error_meaning(cell for _, _, cells in measures for cell in cells)
