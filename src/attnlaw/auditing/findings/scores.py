"""Scores of attention by the sizes of QK, the gains of the norms before it folded in: proxies, not bounds.

With zhat of root mean square one, a score is c zhat^T M zhat'. Over isotropic zhat its standard deviation is
c |M|_F; c s_1(M) N is the largest without positions. Rotary positions turn queries and keys inside the
product, whose spectral norm then bounds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from attnlaw.auditing.findings.evidence import Hit, Scale, Subject
from attnlaw.auditing.findings.sizes import inside, spot_of


def _scored(subject: Subject, column: str) -> Iterator[tuple[dict[str, object], float, Scale]]:
    """The rows of QK with their applied norm and scale, where both are known."""
    for row in inside(subject).filter(pl.col(column).is_not_null()).iter_rows(named=True):
        scale = subject.evidence.scales.get((row["layer"], row["kind"]))
        if scale is not None:
            yield row, row[column], scale


def saturated_scores(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    for row, size, scale in _scored(subject, "frobenius_norm_applied"):
        spread = scale.scale * size
        if threshold is not None and spread > threshold:
            yield Hit(spot_of(row), spread, "the spread of scores over isotropic inputs, a proxy")


def large_logits(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    for row, size, scale in _scored(subject, "spectral_norm_applied"):
        largest = scale.scale * size * scale.width
        if threshold is not None and largest > threshold:
            yield Hit(spot_of(row), largest, "the largest score by the spectral norm, a proxy")
