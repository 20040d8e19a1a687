"""Logits of attention by their sizes from weights (`theory.bounds.logits`): an estimate, and a bound."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from attnlaw.analysis.findings.evidence import Hit, Subject
from attnlaw.analysis.findings.sizes import layer_matrices, location_of


def saturated_scores(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    return _above(subject, "logit_typical", threshold, "the spread of logits over isotropic tokens")


def logit_overflow(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    return _above(subject, "logit_bound", threshold, "the bound of logits")


def _above(subject: Subject, column: str, threshold: float | None, detail: str) -> Iterator[Hit]:
    for row in layer_matrices(subject).filter(pl.col(column) > threshold).iter_rows(named=True):
        yield Hit(location_of(row), row[column], detail)
