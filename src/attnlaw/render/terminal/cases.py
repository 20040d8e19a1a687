"""Parts of the screens of theories: columns of settings and of numbers, quantities, settings in words."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import format_column, format_value
from attnlaw.core.quantity import Quantity
from attnlaw.core.result import Result
from attnlaw.core.settings import setting_fields
from attnlaw.render.describe_rows import ValueLabels
from attnlaw.render.terminal.console import Column, print_table
from attnlaw.render.terminal.screen import print_definitions, without

CASES_BESIDE = 3  # columns of a table of quantities, so that it fits the screen
Measure = tuple[str, str, Sequence[str]]  # title, meaning and cells


def setting_columns(result: Result, rows: pl.DataFrame, names: Iterable[str]) -> list[Column]:
    labels = ValueLabels(result.verb, result.rows)
    return [
        Column(
            name.replace("_", " "),
            ["" if value is None else labels.label_of(name, value) for value in rows[name]],
            is_text=rows[name].dtype == pl.String,
        )
        for name in names
    ]


def number_cells(rows: pl.DataFrame, name: str) -> list[str]:
    """Return the cells of a column: values with errors, or with four digits if there are no errors."""
    errors = rows[f"{name}_error"].to_list() if f"{name}_error" in rows.columns else []
    if any(errors):
        return format_column(rows[name], errors)
    return ["" if value is None else f"{value:.4g}" for value in rows[name]]


def print_measures(
    console: Console,
    columns: Sequence[Column],
    measures: Iterable[Measure],
    droppable: Sequence[str] | None = None,
) -> dict[str, str]:
    """Print the columns, and the measures that have values. Return the meanings of all shown columns."""
    filled = [measure for measure in measures if any(measure[2])]
    titles = [title for title, _, _ in filled]
    every = [*columns, *(Column(title, cells) for title, _, cells in filled)]
    left_out = print_table(console, every, titles[:0:-1] if droppable is None else droppable)
    return without({title: meaning for title, meaning, _ in filled}, left_out)


def error_meaning(cells: Iterable[Any]) -> dict[str, str]:
    """Return an explanation of digits in brackets, if a cell has such digits."""
    has_error = any(re.search(r"\d\(", str(cell)) for cell in cells)
    return {"0.25(1)": "0.25 with a standard error of 0.01"} if has_error else {}


def known_quantities(result: Result) -> tuple[list[Quantity], list[dict[str, Any]]]:
    """Return the quantities that have a value in a finished case, with their values in all finished cases."""
    values = [result.values(case) for case in result.finished_rows["case"]]
    known = [q for q in result.verb.quantities if any(numbers[q.name] is not None for numbers in values)]
    return known, values


def print_quantities(
    console: Console, quantities: Sequence[Quantity], values: Sequence[Mapping[str, Any]]
) -> None:
    """Print a line with the values of each quantity, and with its meaning if there is only one case."""
    several = len(values) > 1
    labels = Column("quantity", [q.label for q in quantities], is_text=True)
    meanings = Column("", [q.description for q in quantities], is_text=True, wraps=True)
    columns = [
        Column(f"case {i}" if several else "", [format_value(numbers[q.name]) for q in quantities])
        for i, numbers in enumerate(values, start=1)
    ]
    for start in range(0, len(columns), CASES_BESIDE):
        beside = [labels, *columns[start : start + CASES_BESIDE]]
        print_table(console, beside if several else [*beside, meanings])


def print_details(console: Console, result: Result, apart: str = "") -> None:
    """Print all quantities of all cases. The table leaves out quantities of the kind `apart`."""
    for part in filter(None, (result, result.simulation)):
        known, values = known_quantities(part)
        plain = [q for q in known if q.kind != apart]
        several = len(values) > 1
        console.print(Text(part.verb.title, style="bold"))
        print_quantities(console, plain, values)
        for i, numbers in enumerate(values, start=1):
            lead = f"case {i}, " if several else ""
            lists = [q for q in known if q.kind == apart and numbers[q.name]]
            print_definitions(console, {f"{lead}{q.label}": format_value(numbers[q.name]) for q in lists})
        if several:
            print_definitions(console, {q.label: q.description for q in plain})


def unusual_settings(
    result: Result, row: Mapping[str, Any], left_out: Collection[str], always: Collection[str] = ()
) -> list[str]:
    """Return the settings of a row in words: those in `always`, and those that are not at their default."""
    facts = []
    for name, field in setting_fields(result.verb.settings).items():
        value = row[result.verb.setting_columns[name]]
        if name not in left_out and value not in (None, False) and (name in always or value != field.default):
            facts.append(f"{name.replace('_', ' ')} {'' if value is True else _text(value)}".strip())
    return facts


def print_settings(console: Console, result: Result, left_out: Collection[str] = ()) -> None:
    """Print all settings of the first case that have a value."""
    known = {name: value for name, value in result.settings().items() if name not in left_out}
    words = [f"{name.replace('_', ' ')} {_text(value)}" for name, value in known.items() if value is not None]
    print_definitions(console, {"settings": ", ".join(words)})


def _text(value: Any) -> str:
    return "∞" if value == math.inf else format_value(value)
