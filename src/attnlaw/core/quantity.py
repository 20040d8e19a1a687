"""Quantities: what a verb finds, as columns of rows, as JSON, and as tables too large for a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from attnlaw.core.estimate import Estimate, Range

R = TypeVar("R")


@dataclass(frozen=True)
class Quantity:
    """One number (or text, or list) that a verb finds: its column, its symbol, what it is.

    `kind` is one of `attnlaw.core.tables.KINDS`. `error` says that it carries an error, `range` that it
    carries an interval. `in_summary`: it stands in the terminal's table of several
    cases, `hidden`: in none of its tables. `log`: its axis is logarithmic.
    `display_name`: how tables and axes call it, where the words of its name would not do. `axis`: how axes
    and legends call it, with its symbol and unit, where tables are briefer. `choices`: the table of variants
    whose names it holds.
    """

    name: str
    description: str = ""
    symbol: str = ""
    kind: str = "float"
    error: bool = False
    range: bool = False
    in_summary: bool = False
    hidden: bool = False
    log: bool = False
    display_name: str = ""
    axis: str = ""
    choices: Mapping[str, Any] | None = None

    @property
    def label(self) -> str:
        if self.display_name:
            return self.display_name
        words = self.name.replace("_", " ")
        return f"{words} {self.symbol}" if self.symbol else words

    @cached_property
    def columns(self) -> dict[str, str]:
        """Its columns with their kinds: `x`, and beside it `x_error`, or `x_low` and `x_high`."""
        beside = ("error",) if self.error else ("low", "high") if self.range else ()
        kind = "floats" if self.kind == "floats" else "float"
        return {self.name: self.kind} | {f"{self.name}_{end}": kind for end in beside}


def column_kinds(quantities: Iterable[Quantity]) -> dict[str, str]:
    """The columns of some quantities with their kinds, in order."""
    return {name: kind for quantity in quantities for name, kind in quantity.columns.items()}


def to_cells(quantities: Iterable[Quantity], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values (numbers, `Estimate`s and lists of them, `Range`s) as the cells of a row; missing is null.

    Errors and ends may also be given by the names of their columns.

    >>> to_cells([Quantity("x", error=True), Quantity("y")], {"x": Estimate(2.0, 0.5)})
    {'x': 2.0, 'x_error': 0.5, 'y': None}
    """
    row: dict[str, Any] = {}
    for quantity in quantities:
        value = values.get(quantity.name)
        parts: Iterable[Any] = (values.get(name) for name in quantity.columns)
        if isinstance(value, Range):
            parts = value
        elif isinstance(value, Estimate):
            parts = (value.value, value.error)
        elif isinstance(value, list) and any(isinstance(entry, Estimate) for entry in value):
            known = [entry if isinstance(entry, Estimate) else Estimate(entry) for entry in value]
            parts = ([entry.value for entry in known], [entry.error for entry in known])
        row |= dict(zip(quantity.columns, parts, strict=False))
    return row


def cells_to_json(quantities: Iterable[Quantity], row: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a row as JSON has them: `x` and `x_error` become one object.

    >>> cells_to_json([Quantity("x", error=True), Quantity("y")], {"x": 2.0, "x_error": None, "y": None})
    {'x': {'value': 2.0, 'error': None}, 'y': None}
    """
    folded: dict[str, Any] = {}
    for quantity in quantities:
        cells = [row.get(name) for name in quantity.columns]
        names = ["value", *(name.removeprefix(f"{quantity.name}_") for name in list(quantity.columns)[1:])]
        alone = len(cells) == 1 or all(cell is None for cell in cells)
        folded[quantity.name] = cells[0] if alone else dict(zip(names, cells, strict=True))
    return folded


def cells_to_values(quantities: Iterable[Quantity], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a row as values: `x` and `x_error` become an `Estimate`, ends a `Range`.

    >>> cells_to_values([Quantity("x", error=True), Quantity("y")], {"x": 2.0, "x_error": 0.5, "y": None})
    {'x': Estimate(value=2.0, error=0.5), 'y': None}
    """
    values: dict[str, Any] = {}
    for quantity in quantities:
        value, *beside = (row.get(name) for name in quantity.columns)
        if quantity.range:
            values[quantity.name] = Range(value, *beside) if {value, *beside} != {None} else None
        elif not quantity.error or value is None:
            values[quantity.name] = value
        elif isinstance(value, list):
            errors = beside[0] or [None] * len(value)
            values[quantity.name] = [
                None if entry is None else Estimate(entry, error)
                for entry, error in zip(value, errors, strict=True)
            ]
        else:
            values[quantity.name] = Estimate(value, beside[0])
    return values


@dataclass(frozen=True, eq=False)
class TableSpec(Generic[R]):
    """A table too large for a row.

    Args:
        name: its name, also that of its file.
        columns: what it holds.
        rows: makes it of a record: a polars table, rows by the names of columns, or None if this record has
            none. Unless given, it is the record's attribute of the table's name, or made by `on_save`.
        json: whether JSON has its rows, too.
        optional: whether a case may be without it; JSON then has null instead of an empty list.
        on_save: makes a table that is too expensive for the screen, when a result is saved; it is called with
            the record and `progress=`.
        on_plot: makes a table that nobody asked for, when one case is drawn.
    """

    name: str
    columns: tuple[Quantity, ...]
    rows: Callable[[R], Any] | None = None
    json: bool = False
    optional: bool = False
    on_save: Callable[..., Any] | None = None
    on_plot: Callable[[R], Any] | None = None
