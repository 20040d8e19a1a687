"""All rules over one model: findings, the gravest first.

Findings in words, the same on screen, on the page and in summary.json: one entry a rule and level.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.detectors import RULES, Finding, FindingRule
from attnlaw.analysis.findings.evidence import Subject
from attnlaw.core.errors import InputError, printable

OFF = "off"


def apply_rules(
    subject: Subject,
    ignore: Iterable[str] = (),
    levels: Mapping[str, str] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> list[Finding]:
    """What the rules find, errors first, then in the order of rules.

    `ignore` names rules that are left out, `levels` and `thresholds` replace those of a rule, by its name;
    the level `off` leaves a rule out.
    """
    levels, thresholds = dict(levels or {}), dict(thresholds or {})
    left_out = {*ignore, *(name for name, level in levels.items() if level == OFF)}
    for name in (*left_out, *levels, *thresholds):
        require_rule(name)
    for name, level in levels.items():
        if level not in (*LEVELS, OFF):
            raise InputError(f"level {level!r} of {name}: expected one of {', '.join((OFF, *LEVELS))}")
    all_findings = []
    for name, rule in RULES.items():
        if name not in left_out:
            threshold = _threshold(rule, thresholds)
            for hit in rule.look(subject, threshold):
                level = levels.get(name) or hit.level or rule.level
                meaning = f"{hit.detail}; {rule.meaning}" if hit.detail else rule.meaning
                value = hit.value if hit.value is None or math.isfinite(hit.value) else None
                all_findings.append(Finding(name, level, hit.location, value, threshold, meaning))
    return sorted(all_findings, key=lambda finding: -LEVELS.index(finding.level))


def require_rule(name: str) -> FindingRule:
    """The rule of a name; an `InputError` with the nearest one where there is none."""
    if name in RULES:
        return RULES[name]
    close = difflib.get_close_matches(name, RULES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(RULES)}"
    raise InputError(f"{name}: no such rule of findings; {hint}")


def _threshold(rule: FindingRule, given: Mapping[str, float]) -> float | None:
    if rule.name not in given:
        return rule.threshold
    asked: Any = given[rule.name]
    if rule.threshold is None:
        raise InputError(f"threshold of {rule.name}: this rule has none; ignore it, or change its level")
    number = isinstance(asked, int | float) and not isinstance(asked, bool) and math.isfinite(asked)
    if not number or asked < rule.least:
        raise InputError(f"threshold of {rule.name}: {asked!r}; expected a number, {rule.least:g} or more")
    return float(asked)


MOST_LOCATIONS = 4


@dataclass(frozen=True)
class FindingGroup:
    """What one rule found at one level: how often, where, and the value farthest past its threshold."""

    rule: str
    level: str
    count: int
    locations: list[str]
    value: float | None
    threshold: float | None
    meaning: str

    @property
    def where(self) -> str:
        more = self.count - len(self.locations)
        return "; ".join([*self.locations, *([f"{more} more"] if more else [])])

    @property
    def number(self) -> str:
        """The value and the threshold; empty where there is nothing to compare."""
        if self.value is None or self.threshold is None:
            return ""
        often = " at most" if self.count > 1 and self.value > self.threshold else ""
        often = " at least" if self.count > 1 and self.value < self.threshold else often
        return f"{self.value:.4g}{often} (threshold {self.threshold:.4g})"

    @property
    def sentence(self) -> str:
        """The number with what it means.

        >>> FindingGroup("random-head", "note", 1, ["layer 2"], 0.9, 0.01, "as good as noise").sentence
        '0.9 (threshold 0.01): as good as noise'
        """
        return f"{self.number}: {self.meaning}" if self.number else self.meaning


def group_findings(rows: Iterable[Mapping[str, Any]]) -> list[FindingGroup]:
    """The rows of a table of findings by rule and level, the gravest first."""
    rows_by_rule: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        rows_by_rule.setdefault((row["rule"], row["level"]), []).append(row)
    groups = [_group(rule, level, members) for (rule, level), members in rows_by_rule.items()]
    return sorted(groups, key=lambda group: -LEVELS.index(group.level))


def _group(rule: str, level: str, rows: list[Mapping[str, Any]]) -> FindingGroup:
    by_distance = sorted(rows, key=_distance, reverse=True)
    worst = by_distance[0]
    general = RULES[rule].meaning if rule in RULES else worst["meaning"]
    return FindingGroup(
        rule,
        level,
        len(rows),
        [location_text(row) for row in by_distance[:MOST_LOCATIONS]],
        worst["value"],
        worst["threshold"],
        worst["meaning"] if len(rows) == 1 else general,
    )


def _distance(row: Mapping[str, Any]) -> float:
    """How far a value lies past its threshold, in logarithms; 0 where that says nothing."""
    value, threshold = row["value"], row["threshold"]
    return abs(log(value / threshold)) if value and threshold and value > 0 and threshold > 0 else 0.0


def location_text(row: Mapping[str, Any]) -> str:
    """Where a finding stands, in words.

    >>> location_text({"layer": 3, "stack": "decoder", "kind": "qk", "head": 0})
    'decoder layer 3, qk, head 0'
    """
    layer = None if row.get("layer") is None else f"layer {row['layer']}"
    first = " ".join(part for part in (row.get("stack"), layer) if part)
    numbered = [f"{name} {row[name]}" for name in ("head", "expert") if row.get(name) is not None]
    # A tensor's name tells its layer and its kind.
    words = [row["tensor"]] if row.get("tensor") else [first, row.get("kind"), *numbered]
    return printable(", ".join(word for word in words if word)) or "the model"


def count_by_level(counts: Mapping[str, int]) -> str:
    """How many findings of each level, the gravest first.

    >>> count_by_level({"note": 2, "warning": 0, "error": 1})
    '1 error, 2 notes'
    """
    there = [(level, counts.get(level) or 0) for level in reversed(LEVELS)]
    return ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for level, count in there if count)
