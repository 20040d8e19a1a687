"""What a gate asks for, read and checked: rules, and what it makes of findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlaw.analysis.check.condition import RuleCondition
from attnlaw.analysis.check.levels import OFF
from attnlaw.core.quantity import Quantity

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
