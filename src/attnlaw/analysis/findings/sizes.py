"""Detectors that compare the sizes of matrices: norms, ranks, noise, logits, and the balance of factors.

Norms are compared with those of the same kind of matrix. If attnlaw knows the norm layer before a matrix, its
gain is folded in. Matrices that the null test does not distinguish from noise are reported by head, by layer
and for the whole model. The sizes of logits are computed from weights (`attnlaw.theory.bounds.logits`): an
estimate and a bound.

Training keeps pairs of factors in balance: Q and K, V and O, and the inner and outer feed-forward matrices. A
small gradient step does not change the difference of their squares. So the ratio of their root mean squares
is near 1 and similar in all layers, unless one tensor has a wrong scale. If queries or keys are normalised,
the ratio of Q and K is arbitrary, so attnlaw does not compare it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from attnlaw.analysis.findings.duplicates import CROSS, SELF
from attnlaw.analysis.findings.evidence import Balance, Hit, Subject, TensorLocation
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.arrays import Reals
from attnlaw.core.words import short_number

# A layer is an outlier if it is more than 6 standard deviations from the median. 1.4826 times the median
# absolute deviation estimates the standard deviation of normal numbers.
DEVIATIONS, MAD = 6, 1.4826
MOSTLY = 0.9  # a rank below this share of the full rank is a warning


def location_of(row: dict[str, Any]) -> TensorLocation:
    return TensorLocation(row["layer"], row["stack"], row["kind"], row["head"], row["expert"])


def layer_matrices(subject: Subject) -> pl.DataFrame:
    """Return the rows of the matrices in layers, without the rows of adapters."""
    return subject.matrices.filter(pl.col("layer").is_not_null() & (pl.col("kind") != "lora"))


def norms_as_applied(rows: pl.DataFrame, name: str) -> pl.Series:
    applied = rows[f"{name}_applied"]
    return rows[name] if applied.null_count() else applied


def dead_map(subject: Subject, threshold: float) -> Iterator[Hit]:
    for (kind,), rows in layer_matrices(subject).group_by("kind", maintain_order=True):
        sizes = norms_as_applied(rows, "frobenius_norm")
        middle = sizes.median()
        usual = middle if isinstance(middle, float) else 0.0
        for row, size in zip(rows.iter_rows(named=True), sizes, strict=True):
            # If most heads are pruned, the median is 0.
            if size == 0 or size < threshold * usual:
                median_of = f"median over all {KINDS[str(kind)].label} matrices is {short_number(usual)}"
                detail = f"its Frobenius norm is {short_number(size)}; the {median_of}"
                share, detail = (size / usual, detail) if size else (0.0, "every entry is 0")
                yield Hit(location_of(row), share, detail)


def norm_outlier(subject: Subject, threshold: float) -> Iterator[Hit]:
    """Yield the layers whose median norm over heads is far from that of the other layers with a norm."""
    for (kind,), rows in layer_matrices(subject).group_by("kind", maintain_order=True):
        of_kind = rows.with_columns(size=norms_as_applied(rows, "spectral_norm"))
        layers = of_kind.group_by("stack", "layer", maintain_order=True).agg(pl.col("size").median())
        logs = {(stack, layer): log(size) for stack, layer, size in layers.iter_rows() if (size or 0) > 0}
        if len(logs) < 2:
            continue
        middle = median(logs.values())
        spread = MAD * median(abs(value - middle) for value in logs.values())
        for (stack, layer), value in logs.items():
            distance = abs(value - middle)
            if distance > log(threshold) and distance > DEVIATIONS * spread:
                side = "above" if value > middle else "below"
                detail = (
                    f"its spectral norm is {short_number(exp(value))}, {side} the median layer's "
                    f"{short_number(exp(middle))}"
                )
                yield Hit(TensorLocation(layer, stack, str(kind)), exp(distance), detail)


def rank_deficient(subject: Subject, threshold: float) -> Iterator[Hit]:
    """Yield the matrices whose numerical rank is known and below the full rank."""
    exact = subject.matrices.filter(pl.col("numerical_rank_error").is_null())
    for row in exact.iter_rows(named=True):
        full = min(size for size in (row["rows"], row["cols"], row["inner"]) if size is not None)
        share = row["numerical_rank"] / full
        if share < threshold:
            level = "warning" if share < MOSTLY else None
            yield Hit(location_of(row), share, f"it has rank {row['numerical_rank']} of {full}", level)


LEVEL = 0.01  # significance level of the null test of one matrix


def is_trained(subject: Subject) -> bool:
    """Return whether at least half of the matrices that were tested differ from noise."""
    p_values = layer_matrices(subject)["random_p_value"].drop_nulls()
    return 2 * int((p_values > LEVEL).sum()) <= p_values.len()


def random_head(subject: Subject, threshold: float) -> Iterator[Hit]:
    rows = layer_matrices(subject).filter(pl.col("random_p_value").is_not_null())
    for pair in (SELF, CROSS):
        heads = rows.filter(pl.col("kind").is_in(pair))
        by_head = heads.group_by("stack", "layer", "head", maintain_order=True).agg(
            pl.len(), pl.col("random_p_value").min()
        )
        for stack, layer, head, count, least in by_head.iter_rows():
            if count == 2 and least > threshold:
                location = TensorLocation(layer, stack, None if pair == SELF else CROSS[0], head)
                yield Hit(location, least)


def untrained_layer(subject: Subject, threshold: float) -> Iterator[Hit]:
    rows = layer_matrices(subject).filter(pl.col("random_p_value").is_not_null())
    by_layer = rows.group_by("stack", "layer", maintain_order=True).agg(
        pl.len(), (pl.col("random_p_value") > LEVEL).sum().alias("random")
    )
    for stack, layer, tested, random in by_layer.iter_rows():
        if random > threshold * tested:
            detail = f"{random} of {tested} matrices do not differ from random ones"
            yield Hit(TensorLocation(layer, stack), random / tested, detail)


def untrained_model(subject: Subject, threshold: float) -> Iterator[Hit]:
    chance = subject.chance
    if chance is not None and chance > threshold:
        yield Hit(TensorLocation(), chance)


def saturated_scores(subject: Subject, threshold: float) -> Iterator[Hit]:
    detail = "this number is how much the logits vary for tokens in random directions"
    return _above(subject, "logit_typical", threshold, detail)


def logit_overflow(subject: Subject, threshold: float) -> Iterator[Hit]:
    return _above(subject, "logit_bound", threshold)


def _above(subject: Subject, column: str, threshold: float, detail: str = "") -> Iterator[Hit]:
    for row in layer_matrices(subject).filter(pl.col(column) > threshold).iter_rows(named=True):
        yield Hit(location_of(row), row[column], detail)


LEAST_LAYERS = 4
# For each pair, the two fields of a block and the kind of the matrix in findings.
PAIRS = {
    "Q/K": ("query", "key", "qk"),
    "V/O": ("value", "output", "vo"),
    "in/out": ("inner", "outer", "ffn_in"),
}
PAIR_LABELS = {"in/out": "FFN in/FFN out"}


def rms(matrix: Reals) -> float:
    """Return the root mean square of the entries, which may be infinite."""
    entries = matrix.ravel(order="K")
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.dot(entries, entries) / entries.size))


def unbalanced(subject: Subject, threshold: float) -> Iterator[Hit]:
    groups: dict[tuple[str, str | None], list[Balance]] = {}
    for balance in subject.evidence.balances:
        groups.setdefault((balance.pair, balance.location.kind), []).append(balance)
    for (pair, _), balances in groups.items():
        if len({(balance.location.stack, balance.location.layer) for balance in balances}) < LEAST_LAYERS:
            continue
        usual = median(balance.ratio for balance in balances)
        for balance in balances:
            factor = max(balance.ratio / usual, usual / balance.ratio)
            if factor > threshold:
                first, second = PAIR_LABELS.get(pair, pair).split("/")
                detail = (
                    f"the entries of {first} are {short_number(balance.ratio)} times as large as those of "
                    f"{second}; the median layer has {short_number(usual)} times"
                )
                yield Hit(balance.location, factor, detail)
