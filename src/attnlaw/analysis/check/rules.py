"""What a gate asks for, read and checked: rules, and what it makes of findings.

What a value must be: `"< 0.25"`, `"== dense"`, or a list of allowed values.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.check.levels import OFF
from attnlaw.core.errors import BadSetting
from attnlaw.core.quantity import Quantity

OPERATORS: dict[str, Callable[[pl.Expr, Any], pl.Expr]] = {
    "<": lambda column, bound: column < bound,
    "<=": lambda column, bound: column <= bound,
    ">": lambda column, bound: column > bound,
    ">=": lambda column, bound: column >= bound,
    "==": lambda column, bound: column == bound,
    "!=": lambda column, bound: column != bound,
}
NUMBERS = ("float", "int", "small")
WRITTEN = re.compile(r"(<=|>=|==|!=|<|>)\s*(.*\S)\s*")
EXPECTED = 'expected a comparison such as "< 0.25", or a list of allowed values'


@dataclass(frozen=True)
class RuleCondition:
    """A comparison with one value, or (`operator` "in") a list of values that are allowed."""

    operator: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        shown = " or ".join(value_text(value) for value in self.values)
        return f"is {shown}" if self.operator == "in" else f"{self.operator} {shown}"

    def holds(self, column: pl.Expr) -> pl.Expr:
        """Whether the values of a column fulfil it; null where they are missing."""
        if self.operator == "in":
            return column.is_in(list(self.values))
        return OPERATORS[self.operator](column, self.values[0])

    @property
    def ordered(self) -> bool:
        """Whether one value can be worse than another."""
        return self.operator not in ("in", "!=") and isinstance(self.values[0], float)

    def violation(self, value: Any) -> float:
        """How far a value is from what it must be: failures are told with the largest first."""
        if not self.ordered:
            return 0.0
        apart = float(value) - float(self.values[0])
        return {"<": apart, "<=": apart, ">": -apart, ">=": -apart, "==": abs(apart)}[self.operator]


def read_condition(written: Any, column: Quantity, numeric: bool = False) -> RuleCondition:
    """The condition on a column; a `BadSetting` where it is none, or none that such a column can fulfil.

    `numeric`: what is compared is a number whatever the column holds (a count, a relative change).
    """
    kind = "float" if numeric else column.kind
    if isinstance(written, list) and written:
        return RuleCondition("in", tuple(read_value("is", value, kind, column) for value in written))
    match = WRITTEN.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        raise BadSetting("is", EXPECTED, written)
    operator, text = match.groups()
    if kind in NUMBERS:
        return RuleCondition(operator, (_number(text, written),))
    if operator not in ("==", "!="):
        raise BadSetting("is", f"but {column.name} holds no numbers; expected == or !=, or a list", written)
    value = {"true": True, "false": False}.get(text, text) if kind == "bool" else text.strip("\"'")
    return RuleCondition(operator, (read_value("is", value, kind, column),))


def read_value(key: str, value: Any, kind: str, column: Quantity) -> Any:
    """A value of TOML as one that a column can hold, as this kind; a `BadSetting` where it cannot."""
    fits = {"text": isinstance(value, str), "bool": isinstance(value, bool)}
    number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    if not fits.get(kind, number):
        words = {"text": "texts", "bool": "true or false"}.get(kind, "numbers")
        raise BadSetting(key, f"but {column.name} holds {words}", value)
    if kind == "text" and column.choices is not None and value not in column.choices:
        raise BadSetting(key, nearest(value, column.choices), value)
    return value if kind in fits else float(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """What might have been meant, or all that is known.

    >>> nearest("densse", ["dense", "noise"]), nearest("?", ["dense", "noise"])
    ('did you mean dense?', 'expected one of dense, noise')
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"expected one of {', '.join(names)}"


def _number(text: str, written: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise BadSetting("is", EXPECTED, written)
    return number


def value_text(value: Any) -> str:
    """A value as reports print it.

    >>> [value_text(value) for value in (0.25, 1e-7, 12345678.0, True, "dense", None)]
    ['0.25', '1e-07', '1.23457e+07', 'true', 'dense', 'missing']
    """
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


BASELINE, FIRST = "baseline", "first"

# Columns of tables, by their names: those that rules may be about.
Tables = Mapping[str, Iterable[Quantity]]


@dataclass(frozen=True)
class GateRule:
    """One rule, checked: rows of a table, a column of them, and what it must be."""

    name: str
    of: str
    column: Quantity
    condition: RuleCondition
    where: Mapping[str, tuple[Any, ...]]
    layers: str | tuple[int, ...] | None
    over: str | None
    mostly: float | None
    against: str | None
    level: str
    missing: str

    def __str__(self) -> str:
        """What it asks for, in words."""
        change = {None: "", BASELINE: " over the baseline's - 1", FIRST: " over the first - 1"}[self.against]
        share = "" if self.mostly is None else f" in {100 * self.mostly:.6g}% of rows"
        over = "" if self.over is None else f"{self.over} of "
        return f"{over}{self.column.name}{change} {self.condition}{share}"


@dataclass(frozen=True)
class RuleFile:
    """What a gate asks for. Without a file: no finding of level error."""

    path: Path | None = None
    fail_on: str = "error"
    base: Any = None
    rules: tuple[GateRule, ...] = ()
    ignore: tuple[str, ...] = ()
    levels: Mapping[str, str] | None = None
    thresholds: Mapping[str, float] | None = None

    def active_rules(self, *tables: str) -> tuple[GateRule, ...]:
        """The rules of these tables that are not off."""
        return tuple(rule for rule in self.rules if rule.of in tables and rule.level != OFF)

    def rules_against(self, what: str) -> tuple[GateRule, ...]:
        """The rules that compare with this and are not off."""
        return tuple(rule for rule in self.rules if rule.against == what and rule.level != OFF)
