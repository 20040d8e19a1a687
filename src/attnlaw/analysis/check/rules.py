"""Records of what a rule file asks for: conditions, rules and levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
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

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}


def is_at_least(level: str, least: str) -> bool:
    return LEVELS.index(level) >= LEVELS.index(least)


@dataclass(frozen=True)
class RuleCondition:
    """A condition on a value: a comparison, or "in" and "not in" with a list of values."""

    operator: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        shown = " or ".join(value_text(value) for value in self.values)
        words = {"in": "is", "not in": "is not"}
        return f"{words.get(self.operator, self.operator)} {shown}"

    def holds(self, column: pl.Expr) -> pl.Expr:
        """Return an expression that is true if a value meets the condition, and null for a missing value."""
        if self.operator in ("in", "not in"):
            listed = column.is_in(list(self.values))
            return listed if self.operator == "in" else ~listed
        compared: pl.Expr = OPERATORS[self.operator](column, self.values[0])
        return compared

    @property
    def ordered(self) -> bool:
        """Whether the condition compares with a number. If it does, one value can be worse than another."""
        return self.operator not in ("in", "not in", "!=") and isinstance(self.values[0], float)

    def violation(self, value: Any) -> float:
        """Return the amount by which a value violates the condition, by which reports order rows."""
        if not self.ordered:
            return 0.0
        apart = float(value) - float(self.values[0])
        return {"<": apart, "<=": apart, ">": -apart, ">=": -apart, "==": abs(apart)}[self.operator]


def value_text(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# The columns that rules may use, by table.
Tables = Mapping[str, Iterable[Quantity]]


@dataclass(frozen=True)
class GateRule:
    """A rule that was read and checked: a condition on one column of some rows of a table."""

    name: str
    of: str  # name of the table
    column: Quantity
    condition: RuleCondition
    where: Mapping[str, tuple[Any, ...]]  # allowed values by column
    layers: str | tuple[int, ...] | None  # allowed layers, as numbers or as a slice such as "0:-1"
    over: str | None  # how all rows become one number, such as "max"; None to judge every row
    mostly: float | None  # the share of rows that must hold, if not all of them
    against: str | None  # "baseline" or "first" to judge the change from earlier rows instead of the value
    level: str
    missing: str  # "error" if a missing value fails the rule, "skip" otherwise

    def __str__(self) -> str:
        column = self.column.name
        if self.against is not None:
            since = {BASELINE: "the baseline", FIRST: "the first step"}[self.against]
            column = f"relative change of {column} since {since}"
        share = "" if self.mostly is None else f" in at least {100 * self.mostly:.6g}% of rows"
        over = "" if self.over is None else f"{self.over} of "
        return f"{over}{column} {self.condition}{share}"


@dataclass(frozen=True)
class RuleFile:
    """The content of a rule file. Without a file, no finding may have the level "error"."""

    path: Path | None = None
    fail_on: str = "error"
    base: Any = None  # the model that the rules of a diff compare with
    rules: tuple[GateRule, ...] = ()
    ignore: tuple[str, ...] = ()  # names of findings that are left out
    levels: Mapping[str, str] | None = None  # levels of findings that differ from the default, by name
    thresholds: Mapping[str, float] | None = None  # thresholds that differ from the default, by name
