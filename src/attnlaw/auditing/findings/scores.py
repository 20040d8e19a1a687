"""Logits of attention by their sizes from weights (`bounds.logits`): an estimate, and a bound."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from attnlaw.auditing.findings.evidence import Hit, Subject
from attnlaw.auditing.findings.sizes import inside, spot_of


def saturated_scores(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    return _above(subject, "logit_typical", threshold, "the spread of logits over isotropic tokens")


def logit_overflow(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    return _above(subject, "logit_bound", threshold, "the bound of logits")


def _above(subject: Subject, column: str, threshold: float | None, detail: str) -> Iterator[Hit]:
    for row in inside(subject).filter(pl.col(column) > threshold).iter_rows(named=True):
        yield Hit(spot_of(row), row[column], detail)
