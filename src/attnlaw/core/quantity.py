"""The quantities that a verb computes, as columns of rows, as JSON, and as tables too large for a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from attnlaw.core.estimate import Estimate, Range

R = TypeVar("R")


@dataclass(frozen=True)
class Quantity:
    """The declaration of a number, text or list that a verb computes.

    Args:
        name: The name of the column, and of the attribute that a result has for it.
        description: The meaning, in words that make sense without the name.
        symbol: The letter that the theory uses for it.
        kind: One of `attnlaw.core.tables.KINDS`.
        error: Whether there is an error of the quantity, in the column `NAME_error`.
        range: Whether there is an interval of the quantity, in the columns `NAME_low` and `NAME_high`.
        in_summary: Whether the terminal shows the quantity if there are several cases.
        hidden: Whether the terminal never shows the quantity.
        log: Whether a chart's axis for the quantity is logarithmic.
        display_name: The name in tables and on axes, if `name` is not suitable.
        axis: The title on axes and in legends, with symbol and unit, if it differs from the title in tables.
        choices: The table of variants, if the values are names of variants such as activations.
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
        """The columns with their kinds: `x`, then `x_error`, or `x_low` and `x_high`."""
        beside = ("error",) if self.error else ("low", "high") if self.range else ()
        kind = "floats" if self.kind == "floats" else "float"
        return {self.name: self.kind} | {f"{self.name}_{end}": kind for end in beside}


def column_kinds(quantities: Iterable[Quantity]) -> dict[str, str]:
    """Return the kind of each column of these quantities, by column name and in order."""
    return {name: kind for quantity in quantities for name, kind in quantity.columns.items()}


def to_cells(quantities: Iterable[Quantity], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a row for a mapping of values. A missing value becomes None.

    `values` may also have errors and ends of intervals, under their column names.

    >>> to_cells([Quantity("x", error=True), Quantity("y")], {"x": Estimate(2.0, 0.5)})
    {'x': 2.0, 'x_error': 0.5, 'y': None}
    """
    row: dict[str, Any] = {}
    for quantity in quantities:
        value = values.get(quantity.name)
        if len(quantity.columns) == 1 and not isinstance(value, Estimate):
            row[quantity.name] = value
            continue
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
    """Return the cells of a row in the form for JSON, where `x` and `x_error` become one object.

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
    """Return the cells of a row as Python values: a value and its error become an `Estimate`.

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
            pairs = zip(value, beside[0] or [None] * len(value), strict=True)
            values[quantity.name] = [None if pair[0] is None else Estimate(*pair) for pair in pairs]
        else:
            values[quantity.name] = Estimate(value, beside[0])
    return values


@dataclass(frozen=True, eq=False)
class TableSpec(Generic[R]):
    """The declaration of a table of a result, which is too large for a row.

    Args:
        name: The name of the table and of its file.
        columns: The columns.
        rows: A function that makes the table from the record of a case. The function returns a polars table,
            rows by column name, or None if the record has no such table. The default is the record's
            attribute of this name, unless `on_save` makes the table.
        json: Whether `--json` prints the rows of the table.
        optional: Whether a case may lack the table. Then JSON has null instead of an empty list.
        on_save: A function of the record and `progress=` that makes a table only when attnlaw saves a result,
            because the table takes too long for the screen.
        on_plot: A function of the record that makes a table only when attnlaw draws a single case.
        description: What each line of the table is, such as "one line for each matrix".
    """

    name: str
    columns: tuple[Quantity, ...]
    rows: Callable[[R], Any] | None = None
    json: bool = False
    optional: bool = False
    on_save: Callable[..., Any] | None = None
    on_plot: Callable[[R], Any] | None = None
    description: str = ""
