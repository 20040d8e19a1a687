"""Norms and ranks against those of the same kind, the gain of the norm before folded in where it is known."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from statistics import median
from typing import Any

import polars as pl

from attnlaw.analysis.findings.evidence import Hit, Subject, TensorLocation

DEVIATIONS = 6  # times 1.4826 MAD, which is the standard deviation of normal numbers
MAD = 1.4826
MOSTLY = 0.9  # of the full rank: below it, a missing rank is a warning


def location_of(row: dict[str, Any]) -> TensorLocation:
    return TensorLocation(row["layer"], row["stack"], row["kind"], row["head"], row["expert"])


def layer_matrices(subject: Subject) -> pl.DataFrame:
    """The rows of matrices that layers apply."""
    return subject.matrices.filter(pl.col("layer").is_not_null() & (pl.col("kind") != "lora"))


def norms_as_applied(rows: pl.DataFrame, name: str) -> pl.Series:
    """A norm as the model applies it where that is known of all these rows, else as it is stored."""
    known = rows[f"{name}_applied"]
    return known if known.null_count() == 0 else rows[name]


def dead_map(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    for (kind,), rows in layer_matrices(subject).group_by("kind", maintain_order=True):
        sizes = norms_as_applied(rows, "frobenius_norm")
        usual = sizes.median()
        for row, size in zip(rows.iter_rows(named=True), sizes, strict=True):
            if isinstance(usual, float) and usual > 0 and size < (threshold or 0) * usual:
                yield Hit(location_of(row), size / usual, f"of the median Frobenius norm of {kind}")


def norm_outlier(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    """Medians over the heads of a layer, in logarithms; a layer of zeros is left to other rules."""
    for (kind,), rows in layer_matrices(subject).group_by("kind", maintain_order=True):
        of_kind = rows.with_columns(size=norms_as_applied(rows, "spectral_norm"))
        layers = of_kind.group_by("stack", "layer", maintain_order=True).agg(pl.col("size").median())
        logs = {
            (stack, layer): log(size)
            for stack, layer, size in layers.iter_rows()
            if size is not None and size > 0
        }
        if len(logs) < 2 or threshold is None:
            continue
        middle = median(logs.values())
        spread = MAD * median(abs(value - middle) for value in logs.values())
        for (stack, layer), value in logs.items():
            away = abs(value - middle)
            if away > log(threshold) and away > DEVIATIONS * spread:
                side = "above" if value > middle else "below"
                detail = f"a factor {side} the median layer"
                yield Hit(TensorLocation(layer, stack, str(kind)), exp(away), detail)


def rank_deficient(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    """The share of the full rank; approximate ranks are left out."""
    exact = subject.matrices.filter(pl.col("numerical_rank_error").is_null())
    for row in exact.iter_rows(named=True):
        full = min(size for size in (row["rows"], row["cols"], row["inner"]) if size is not None)
        share = row["numerical_rank"] / full
        if threshold is not None and share < threshold:
            level = "warning" if share < MOSTLY else None
            yield Hit(location_of(row), share, f"rank {row['numerical_rank']} of {full}", level)
