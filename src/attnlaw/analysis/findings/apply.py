"""Run all detectors on one model, and group and describe their findings for the terminal and the page."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.detectors import DETECTORS, Detector, Finding
from attnlaw.analysis.findings.evidence import Subject
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.answer import AnswerStatus, Line
from attnlaw.core.errors import InputError, printable
from attnlaw.core.words import short_number

OFF = "off"


def run_detectors(
    subject: Subject,
    ignore: Iterable[str] = (),
    levels: Mapping[str, str] | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> list[Finding]:
    """Return the findings of all detectors on a model, errors first.

    `ignore` names detectors that are not run. `levels` and `thresholds` replace those of some detectors, by
    name. The level "off" skips a detector.
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
        if name not in left_out and subject.allows(detector.needs):
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
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(DETECTORS)}"
        raise InputError(f"{name}: attnlaw has no check of this name; {hint}")


def _threshold(detector: Detector, given: Mapping[str, float]) -> float | None:
    if detector.name not in given:
        return detector.threshold
    value: Any = given[detector.name]
    if detector.threshold is None:
        raise InputError(
            f"threshold of {detector.name}: this check has no threshold; ignore the check, or change its "
            "level"
        )
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < detector.least:
        raise InputError(
            f"threshold of {detector.name}: {value!r}; expected a number, {detector.least:g} or more"
        )
    return float(value)


MOST_LOCATIONS = 4
WHOLE = "the model"  # the place of a finding that is not about a part
# How good the news of a finding is, by its level. A note is only a note.
STATUS_OF_LEVEL = {"error": AnswerStatus.ERROR, "warning": AnswerStatus.WARNING, "note": None}


@dataclass(frozen=True)
class FindingGroup:
    """The findings of one detector at one severity, with the most extreme values first."""

    rule: str
    level: str
    locations: list[str]
    values: list[float | None]  # at each place
    threshold: float | None
    details: list[str]  # special features of each place, or empty
    cause: str  # conclusion about the model from the findings of this detector

    @property
    def count(self) -> int:
        return len(self.locations)

    @property
    def where(self) -> str:
        """The four worst places in the order of their numbers, and the total count if there are more."""
        worst = sorted(self.locations[:MOST_LOCATIONS], key=_natural_order)
        shown = "; ".join(map(shorten, worst))
        more = self.count - MOST_LOCATIONS
        return f"{self.count} places: {shown}; and {more} more" if more > 0 else shown

    @property
    def number(self) -> str:
        """The value with its limit in words, or an empty text if there is no value or the details have it."""
        text = number_text(self.rule, self.values[0], self.threshold)
        return f"at worst {text.replace(' its ', ' their ')}" if text and self.count > 1 else text

    @property
    def places(self) -> list[str]:
        numbers = (number_text(self.rule, value, self.threshold) for value in self.values)
        pairs = zip(self.locations, numbers, strict=True)
        return [": ".join(filter(None, pair)) for pair in pairs]

    @property
    def title(self) -> str:
        """The rule, the places and the value in one line."""
        where = self.where if self.where != WHOLE else "" if self.number else f"in {WHOLE}"
        return ": ".join(filter(None, (self.rule, where, self.number)))

    @property
    def reason(self) -> str:
        """The finding and its meaning, as sentences. Several details are left out."""
        return sentences(self.details[0] if self.count == 1 else "", self.cause)

    @property
    def sentence(self) -> str:
        """The number, if the finding has one, and the reason, as sentences."""
        return " ".join(filter(None, (sentences(self.number), self.reason)))

    @property
    def fix(self) -> str:
        return fix_text(self.rule)

    @property
    def line(self) -> Line:
        """The finding as a line of an answer: rule, places and value, then the reason, then the remedy."""
        status = STATUS_OF_LEVEL[self.level]
        title = self.title if status else f"{self.level.capitalize()}: {self.title}"
        return Line(title, status, tuple(filter(None, (self.reason, self.fix))))


def fix_text(rule: str) -> str:
    """Return advice on how to fix a finding, as a sentence; empty if attnlaw does not know the rule."""
    return f"Fix: {DETECTORS[rule].remedy}." if rule in DETECTORS else ""


def _natural_order(text: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts texts with numbers by the numbers: layer 9 is before layer 10."""
    parts = re.split(r"([0-9]+)", text)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


LONGEST = 120  # letters of a name that a sentence has; tables have all


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def sentences(*clauses: str) -> str:
    """Return clauses as sentences. Empty clauses are left out.

    >>> sentences("it has rank 3 of 4", "", "the matrix does not use some of its directions")
    'It has rank 3 of 4. The matrix does not use some of its directions.'
    """
    return " ".join(f"{clause[:1].upper()}{clause[1:]}." for clause in clauses if clause)


def number_text(rule: str, value: float | None, threshold: float | None) -> str:
    """Return the value of a finding in words, with the limit that the value has passed.

    The text is empty if there is no value, or if the meaning of the finding already includes it.

    >>> number_text("unbalanced", 9.388, 3.0), number_text("zero-embedding-rows", 0.34, 0.01)
    ('differs from the median layer by a factor of 9.39 (limit 3)', '34% of its rows are 0 (limit 1%)')
    >>> number_text("zero-rows", 1.0, 0.0), number_text("identical-tensors", 0.0, None)
    ('1 row or column of zeros (limit 0)', '')
    """
    measure = DETECTORS[rule].measure if rule in DETECTORS else "{}"
    if measure is None or value is None:
        return ""
    measure = measure.partition("|")[0] if value == 1 else measure.rpartition("|")[2]
    scale, unit = (100, "%") if "{}%" in measure else (1, "")
    shown = short_number(scale * value)
    if threshold is None:
        return measure.format(shown)
    limit = short_number(scale * threshold)
    if shown == limit and value != threshold:  # the digits must show that the limit was passed
        shown = f"{scale * value:.7g}"
    return f"{measure.format(shown)} (limit {limit}{unit})"


def group_findings(rows: Iterable[Mapping[str, Any]]) -> list[FindingGroup]:
    """Group the rows of a table of findings by detector and level. Errors come first."""
    rows_by_rule: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        rows_by_rule.setdefault((row["rule"], row["level"]), []).append(row)
    groups = [_group(rule, level, members) for (rule, level), members in rows_by_rule.items()]
    return sorted(groups, key=lambda group: -LEVELS.index(group.level))


def _group(rule: str, level: str, rows: list[Mapping[str, Any]]) -> FindingGroup:
    by_distance = sorted(rows, key=_distance, reverse=True)
    worst, detector = by_distance[0], DETECTORS.get(rule)
    cause = detector.meaning if detector else worst["meaning"]
    meanings = [str(row["meaning"]) for row in by_distance]
    if len(rows) == 1 and not meanings[0].endswith(cause):  # another version wrote it
        cause = ""
    return FindingGroup(
        rule,
        level,
        [location_text(row) for row in by_distance],
        [row["value"] for row in by_distance],
        worst["threshold"],
        [meaning.removesuffix(cause).removesuffix("; ") for meaning in meanings],
        cause,
    )


def _distance(row: Mapping[str, Any]) -> float:
    """Return |ln(value / threshold)|, or 0 if one of them is missing or not positive."""
    value, threshold = row["value"], row["threshold"]
    return abs(log(value / threshold)) if value and threshold and value > 0 and threshold > 0 else 0.0


def location_text(row: Mapping[str, Any]) -> str:
    """Describe where a finding is.

    >>> location_text({"layer": 3, "stack": "decoder", "kind": "qk", "head": 0})
    'decoder layer 3, QK, head 0'
    """
    layer = None if row.get("layer") is None else f"layer {row['layer']}"
    first = " ".join(part for part in (row.get("stack"), layer) if part)
    kind = row.get("kind")
    kind = KINDS[kind].label if kind in KINDS else kind
    numbered = [f"{name} {row[name]}" for name in ("head", "expert") if row.get(name) is not None]
    # The name of a tensor already shows its layer and kind.
    words = [row["tensor"]] if row.get("tensor") else [first, kind, *numbered]
    return printable(", ".join(word for word in words if word)) or WHOLE


def checks_text(ran: int, skipped: int = 0) -> str:
    """Return how many checks ran, and how many did not because the audit left out parts of the model.

    >>> checks_text(28), checks_text(12, 16)
    ('28 checks', '12 checks; 16 others need the whole model')
    """
    others = f"; {skipped} other{'s need' if skipped > 1 else ' needs'} the whole model" if skipped else ""
    return f"{ran} check{'' if ran == 1 else 's'}{others}"


def count_by_level(counts: Mapping[str, int]) -> str:
    """Return a text that counts the findings of each level, errors first.

    >>> count_by_level({"note": 2, "warning": 0, "error": 1})
    '1 error, 2 notes'
    """
    levels = [(level, counts.get(level) or 0) for level in reversed(LEVELS)]
    return ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for level, count in levels if count)
