"""The result of a gate: a verdict for every rule, the findings, and the exit status.

| status | meaning |
|---|---|
| 0 | passed |
| 3 | failed: there is a failed rule or a finding of the level at which the gate fails, or above |

The status is the same for all output formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from attnlaw import __version__
from attnlaw.analysis.check.columns import FINDINGS, VERDICT_VALUES, VERDICTS
from attnlaw.analysis.check.locations import Location, row_location_text
from attnlaw.analysis.check.rules import OFF, is_at_least, value_text
from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.apply import checks_text, count_by_level, number_text
from attnlaw.analysis.findings.detectors import Detector
from attnlaw.core.quantity import column_kinds
from attnlaw.core.tables import to_frame, to_schema
from attnlaw.core.words import count_of

PASSED, FAILED = "passed", "failed"
STATUS_FAILED = 3
# Exchanged layers, another head count or another activation give weights as sound as those of the model.
NOT_CHECKED = "the number of heads and the activation that config.json states, the order of layers"
NOT_CHECKED_LEAD = "Not checked, because weights alone cannot show it:"


@dataclass(frozen=True)
class FailedRow:
    """A row that fails a rule, and why, if the value alone does not show it."""

    location: Location
    value: Any = None
    why: str = ""

    def __str__(self) -> str:
        return f"{row_location_text(self.location)}: {self.why or value_text(self.value)}"


@dataclass(frozen=True)
class Verdict:
    """The outcome of one rule.

    Args:
        of: name of the table.
        asked: the requirement of the rule, in words.
        selected: number of rows that the rule applies to.
        held: number of selected rows that meet the condition.
        value: the compared value of the worst row, or the one number that is computed from all rows.
        failures: the rows that fail the rule, the worst first.
        remark: the reason if no row was judged.
    """

    rule: str
    of: str
    asked: str
    level: str
    outcome: str
    selected: int = 0
    held: int = 0
    value: Any = None
    failures: tuple[FailedRow, ...] = ()
    remark: str | None = None

    def __str__(self) -> str:
        if self.outcome == OFF:
            return "off"
        if self.remark is not None:
            return self.remark
        if not self.failures and self.value is not None:
            return f"found {value_text(self.value)}, expected {self.asked}"
        if self.selected == len(self.failures) == 1:
            return f"{self.failures[0]}, expected {self.asked}"
        worst = f"; the worst is {self.failures[0]}" if self.failures else ""
        return f"{self.held} of {self.selected} rows hold, expected {self.asked}{worst}"


@dataclass(frozen=True)
class GateFinding:
    """A finding of an audit at the level that the rule file gives it.

    The finding is `known` if the baseline has the same finding. Known findings do not fail the gate.
    """

    rule: str
    level: str
    location: Location
    value: Any
    threshold: Any
    meaning: str
    known: bool = False

    @property
    def location_and_value(self) -> str:
        """The place of the row, and its value with the limit."""
        number = number_text(self.rule, self.value, self.threshold)
        return ": ".join(filter(None, (row_location_text(self.location), number)))

    def __str__(self) -> str:
        return f"{self.location_and_value}; {self.meaning}"


@dataclass(frozen=True, eq=False)
class Verdicts:
    """The verdicts on one model.

    Args:
        location: the file that reports point at.
        detectors: the detectors that looked for findings, by name.
        skipped: number of detectors that could not look, because parts of the model were left out.
        fail_on: the lowest level that fails the gate.
        baseline: the directory of the baseline whose findings are known, if one was given.
    """

    model: str
    location: str
    rules: tuple[Verdict, ...]
    findings: tuple[GateFinding, ...]
    detectors: Mapping[str, Detector] = field(default_factory=dict)
    fail_on: str = "error"
    baseline: str | None = None
    skipped: int = 0

    @property
    def failed_rules(self) -> tuple[Verdict, ...]:
        """The rules that failed, the most severe level first."""
        return _by_severity(rule for rule in self.rules if rule.outcome == FAILED)

    @property
    def new_findings(self) -> tuple[GateFinding, ...]:
        """The findings that are not in the baseline, the most severe level first."""
        return _by_severity(finding for finding in self.findings if not finding.known)

    @property
    def gate_failures(self) -> tuple[Verdict | GateFinding, ...]:
        """The failed rules and new findings that fail the gate."""
        every: list[Verdict | GateFinding] = [*self.failed_rules, *self.new_findings]
        return tuple(problem for problem in every if is_at_least(problem.level, self.fail_on))

    @property
    def passed(self) -> bool:
        return not self.gate_failures

    @property
    def status(self) -> int:
        return 0 if self.passed else STATUS_FAILED

    @property
    def quantities(self) -> dict[str, Any]:
        new = [finding.level for finding in self.new_findings]
        return {
            "headline": self.headline,
            "not_checked": self.not_checked,
            "passed": self.passed,
            "exit_status": self.status,
            "fail_on": self.fail_on,
            "rule_count": len([rule for rule in self.rules if rule.outcome != OFF]),
            "failed_rules": len(self.failed_rules),
            **{f"{level}s": new.count(level) for level in LEVELS},
            "known_findings": len(self.findings) - len(new),
        }

    @property
    def headline(self) -> str:
        """The result in one line, which counts failed rules and new findings by level."""
        levels = [rule.level for rule in self.failed_rules] + [item.level for item in self.new_findings]
        counts = count_by_level({level: levels.count(level) for level in LEVELS})
        outcome = f"Gate {PASSED if self.passed else FAILED}"
        if counts:
            outcome += f" with {counts}" if self.passed else f": {counts}"
        elif self.detectors:
            outcome += ": no problems found"
        judged = len([rule for rule in self.rules if rule.outcome != OFF])
        known = len(self.findings) - len(self.new_findings)
        parts = [self.checks] if self.detectors else []
        if judged and self.failed_rules:
            parts.append(f"{len(self.failed_rules)} of {count_of(judged, 'rule')} failed")
        elif judged:
            parts.append("the rule holds" if judged == 1 else f"all {judged} rules hold")
        if self.fail_on != "error":
            parts.append(f"{self.fail_on}s fail the gate")
        if known:
            parts.append(f"{count_of(known, 'known finding')} not counted")
        return f"{outcome} ({'; '.join(parts)})" if parts else f"{outcome}: nothing was checked"

    @property
    def checks(self) -> str:
        return checks_text(len(self.detectors), self.skipped)

    @property
    def not_checked(self) -> str | None:
        """A sentence on the limits of checks of weights, or None if no detector looked at weights."""
        return NOT_CHECKED if self.detectors else None

    def rule_table(self) -> pl.DataFrame:
        rows = [
            {
                **vars(rule),
                "model": self.model,
                "value": rule.value if isinstance(rule.value, int | float) else None,
                "failures": [str(failure) for failure in rule.failures],
                "remark": None if rule.outcome == OFF else str(rule),
                "attnlaw_version": __version__,
            }
            for rule in self.rules
        ]
        return to_frame(rows, to_schema(column_kinds(VERDICTS)))

    def value_table(self) -> pl.DataFrame:
        """Return a table with a row for each rule and its compared value, as text."""
        values = [None if rule.value is None else value_text(rule.value) for rule in self.rules]
        pairs = zip(self.rules, values, strict=True)
        rows = [{"model": self.model, "rule": rule.rule, "found": text} for rule, text in pairs]
        return to_frame(rows, to_schema(column_kinds(VERDICT_VALUES)))

    def finding_table(self) -> pl.DataFrame:
        rows = [
            {**vars(finding), **finding.location, "model": self.model, "attnlaw_version": __version__}
            for finding in self.findings
        ]
        return to_frame(rows, to_schema(column_kinds(FINDINGS)))

    def __repr__(self) -> str:
        return f"<Verdicts {self.model}: {self.headline}>"


def _by_severity(problems: Any) -> tuple[Any, ...]:
    return tuple(sorted(problems, key=lambda problem: -LEVELS.index(problem.level)))
