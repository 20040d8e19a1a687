"""What a gate asks for, read and checked: rules, and what it makes of findings.

What a value must be: `"< 0.25"`, `"== dense"`, or a list of allowed values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.analysis.columns import LEVELS
from attnlaw.core.quantity import Quantity

if TYPE_CHECKING:
    import polars as pl

OFF = "off"  # the level of rules and findings that are not looked at
FAIL_ON = LEVELS[1:]  # the levels that a gate can fail at
BASELINE, FIRST = "baseline", "first"
NUMBERS = ("float", "int", "small")

OPERATORS: dict[str, Callable[[pl.Expr, Any], pl.Expr]] = {
    "<": lambda column, bound: column < bound,
    "<=": lambda column, bound: column <= bound,
    ">": lambda column, bound: column > bound,
    ">=": lambda column, bound: column >= bound,
    "==": lambda column, bound: column == bound,
    "!=": lambda column, bound: column != bound,
}


def is_at_least(level: str, least: str) -> bool:
    """Whether a level matters at least as much as another.

    >>> is_at_least("warning", "error"), is_at_least("error", "warning")
    (False, True)
    """
    return LEVELS.index(level) >= LEVELS.index(least)


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
