"""Run all detectors on one model, and group and describe their findings for the terminal and the page."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.detectors import DETECTORS, Detector, Finding
from attnlaw.analysis.findings.evidence import Subject
from attnlaw.core.errors import InputError, printable

OFF = "off"


def run_detectors(
    subject: Subject,
    ignore: Iterable[str] = (),
    levels: Mapping[str, str] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> list[Finding]:
    """Return what the detectors find in a model.

    Errors come first, then warnings, then notes. Findings of one level have the order of `DETECTORS`.

    Args:
        subject: the audited model.
        ignore: names of detectors that are not run.
        levels: the levels to use instead of the default, by the name of the detector. The level "off" skips
            the detector.
        thresholds: the thresholds to use instead of the default, by the name of the detector.

    Raises:
        InputError: if a name, a level or a threshold is not valid.
    """
    levels, thresholds = dict(levels or {}), dict(thresholds or {})
    left_out = {*ignore, *(name for name, level in levels.items() if level == OFF)}
    for name in (*left_out, *levels, *thresholds):
        _require_detector(name)
    for name, level in levels.items():
        if level not in (*LEVELS, OFF):
            raise InputError(f"level {level!r} of {name}: expected one of {', '.join((OFF, *LEVELS))}")
    all_findings = []
    for name, detector in DETECTORS.items():
        if name not in left_out and subject.allows(detector.needs_experts):
            threshold = _threshold(detector, thresholds)
            for hit in detector.detect(subject, threshold or 0.0):
                level = levels.get(name) or hit.level or detector.level
                meaning = f"{hit.detail}; {detector.meaning}" if hit.detail else detector.meaning
                value = hit.value if hit.value is None or math.isfinite(hit.value) else None
                all_findings.append(Finding(name, level, hit.location, value, threshold, meaning))
    return sorted(all_findings, key=lambda finding: -LEVELS.index(finding.level))


def _require_detector(name: str) -> None:
    if name not in DETECTORS:
        close = difflib.get_close_matches(name, DETECTORS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(DETECTORS)}"
        raise InputError(f"{name}: no such rule of findings; {hint}")


def _threshold(detector: Detector, given: Mapping[str, float]) -> float | None:
    if detector.name not in given:
        return detector.threshold
    value: Any = given[detector.name]
    if detector.threshold is None:
        raise InputError(f"threshold of {detector.name}: this rule has none; ignore it, or change its level")
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < detector.least:
        raise InputError(
            f"threshold of {detector.name}: {value!r}; expected a number, {detector.least:g} or more"
        )
    return float(value)


MOST_LOCATIONS = 4


@dataclass(frozen=True)
class FindingGroup:
    """The findings of one detector at one level."""

    rule: str
    level: str
    count: int
    locations: list[str]  # at most four places, those farthest past the threshold
    value: float | None  # the value that is farthest past the threshold
    threshold: float | None
    meaning: str  # meaning of the only finding; if there are several, that of the detector

    @property
    def where(self) -> str:
        more = self.count - len(self.locations)
        return "; ".join([*self.locations, *([f"{more} more"] if more else [])])

    @property
    def number(self) -> str:
        """The value with its threshold; empty if there is no value or no threshold."""
        if self.value is None or self.threshold is None:
            return ""
        limit = " at most" if self.count > 1 and self.value > self.threshold else ""
        limit = " at least" if self.count > 1 and self.value < self.threshold else limit
        return f"{self.value:.4g}{limit} (threshold {self.threshold:.4g})"

    @property
    def sentence(self) -> str:
        """The number, if there is one, and the meaning.

        >>> FindingGroup("random-head", "note", 1, ["layer 2"], 0.9, 0.01, "as good as noise").sentence
        '0.9 (threshold 0.01): as good as noise'
        """
        return f"{self.number}: {self.meaning}" if self.number else self.meaning


def group_findings(rows: Iterable[Mapping[str, Any]]) -> list[FindingGroup]:
    """Group the rows of a table of findings by detector and level. Errors come first."""
    rows_by_rule: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        rows_by_rule.setdefault((row["rule"], row["level"]), []).append(row)
    groups = [_group(rule, level, members) for (rule, level), members in rows_by_rule.items()]
    return sorted(groups, key=lambda group: -LEVELS.index(group.level))


def _group(rule: str, level: str, rows: list[Mapping[str, Any]]) -> FindingGroup:
    by_distance = sorted(rows, key=_distance, reverse=True)
    worst = by_distance[0]
    general = DETECTORS[rule].meaning if rule in DETECTORS else worst["meaning"]
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
    """Return |ln(value / threshold)|, or 0 if one of them is missing or not positive."""
    value, threshold = row["value"], row["threshold"]
    return abs(log(value / threshold)) if value and threshold and value > 0 and threshold > 0 else 0.0


def location_text(row: Mapping[str, Any]) -> str:
    """Describe where a finding is.

    >>> location_text({"layer": 3, "stack": "decoder", "kind": "qk", "head": 0})
    'decoder layer 3, qk, head 0'
    """
    layer = None if row.get("layer") is None else f"layer {row['layer']}"
    first = " ".join(part for part in (row.get("stack"), layer) if part)
    numbered = [f"{name} {row[name]}" for name in ("head", "expert") if row.get(name) is not None]
    # The name of a tensor already shows its layer and kind.
    words = [row["tensor"]] if row.get("tensor") else [first, row.get("kind"), *numbered]
    return printable(", ".join(word for word in words if word)) or "the model"


def count_by_level(counts: Mapping[str, int]) -> str:
    """Return a text that counts the findings of each level, errors first.

    >>> count_by_level({"note": 2, "warning": 0, "error": 1})
    '1 error, 2 notes'
    """
    levels = [(level, counts.get(level) or 0) for level in reversed(LEVELS)]
    return ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for level, count in levels if count)
