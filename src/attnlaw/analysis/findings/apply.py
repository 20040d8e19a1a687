"""All rules over one model: findings, the gravest first."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.evidence import Subject
from attnlaw.analysis.findings.rules import RULES, Finding, FindingRule
from attnlaw.core.errors import InputError

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
                all_findings.append(Finding(name, level, hit.spot, value, threshold, meaning))
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
