"""Draws of finite random attention, compared with the law and with a Gaussian equivalent.

All matrices are normalised as in `attnlaw.theory.laws.multi_head`. The Gaussian equivalent has the same Q, K,
V and W^O, but `sqrt(n) A_r^perp` is replaced by `(beta S_r + sqrt(theta1 - theta2) W_r)/sqrt(n)` with a
Gaussian W_r (arXiv 2610.10033, Theorem 3.1). A single attention matrix can also be compared with
Marchenko-Pastur of the same mean.

| letter | meaning |
|---|---|
| n, h, d_K | tokens, heads, head size |
| theta1, theta2 | `e^(beta^2) - 1`, `beta^2` |
| B_r | contribution of head r: `A_r^perp` times its values |
| F | the matrix whose squared singular values are studied |
| gram | `F F^T`, n x n |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate
from attnlaw.core.progress import Progress, no_progress
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.laws.attention_shape import (
    CENTRINGS,
    MATRICES,
    SHARINGS,
    AttentionShape,
    Matrix,
    RandomLayer,
)
from attnlaw.theory.laws.law import Law


@dataclass(frozen=True)
class MultiHeadSample:
    """Squared singular values of one draw, compared with their law and with the Gaussian equivalent.

    Fields that end in `_distance` are Kolmogorov-Smirnov distances. Fields that end in `_w1` are
    Wasserstein-1 distances divided by the law's mean.

    Args:
        values: the n squared singular values of the softmax layer, in ascending order.
        edge: the upper edge of the law.
        beyond: the number of values above the edge.
        spike: the expected position of the outlier that remains if only 1/n is subtracted. None if no outlier
            is expected, or if K = V, for which no prediction is known.
        spike_found: the largest value that was found if only 1/n is subtracted.
    """

    shape: AttentionShape
    beta: float
    of: str
    law: Law
    values: Reals
    equivalent: Reals
    law_distance: float
    law_w1: float
    equivalent_distance: float
    equivalent_w1: float
    edge: float
    largest: float
    beyond: int
    spike: float | None
    spike_found: float
    warnings: tuple[str, ...]


def multi_head_sample(
    shape: AttentionShape,
    beta: float,
    seed: int | np.random.Generator,
    of: str = "output",
    centring: str = "columns",
    second_order: bool = False,
) -> MultiHeadSample:
    """Draw one random attention layer and compare its singular values with their law.

    Queries, keys and values are standard Gaussian, and W^O has entries of variance 1/(h d_V).

    Args:
        centring: "columns" subtracts the column means. "mean" subtracts 1/n as in the paper, which leaves one
            outlier.

    >>> drawn = multi_head_sample(AttentionShape(200, 4, 100), 0.5, seed=0, of="attention")
    >>> drawn.law_distance < 0.02, abs(drawn.largest / drawn.edge - 1) < 0.05, drawn.warnings
    (True, True, ())
    """
    layer = RandomLayer(shape, beta, of, centring, second_order)
    law = layer.law
    raw, other = _grams(shape, beta, MATRICES[of], np.random.default_rng(seed))
    values = _values(_left_centred(raw) if CENTRINGS[centring].by_columns else raw, shape.rank(of))
    equivalent = _values(other, shape.rank(of))
    start = np.ones(shape.tokens)  # the direction of the spike
    top = scipy.sparse.linalg.eigsh(raw, k=1, which="LA", v0=start, return_eigenvectors=False)
    edge, levels = law.support[1], (np.arange(values.size) + 0.5) / values.size
    return MultiHeadSample(
        *(shape, beta, of, law, values, equivalent),
        law_distance=distance_to_law(values, law),
        law_w1=float(np.abs(values - law.quantile(levels)).mean() / law.mean),
        equivalent_distance=_distance(values, equivalent),
        equivalent_w1=float(np.abs(values - equivalent).mean() / law.mean),
        edge=edge,
        largest=float(values[-1]),
        beyond=int((values > edge).sum()),
        spike=layer.spike,
        spike_found=float(top[0]),
        warnings=layer.warnings,
    )


def distance_to_law(values: Reals, law: Law) -> float:
    """Return the Kolmogorov-Smirnov distance between sorted values and a law, which may have atoms."""
    above = law.cdf(values)
    below = above - sum(weight * (values == place) for place, weight in law.atoms)
    left, right = (np.searchsorted(values, values, side) / values.size for side in ("left", "right"))
    return float(max(np.abs(right - above).max(), np.abs(left - below).max()))


def _distance(values: Reals, others: Reals) -> float:
    """Return the Kolmogorov-Smirnov distance between two samples of ascending values."""
    points = np.concatenate([values, others])
    shares = [np.searchsorted(sample, points, "right") / sample.size for sample in (values, others)]
    return float(np.abs(shares[0] - shares[1]).max())


def _values(gram: Reals, rank: int) -> Reals:
    """Return the eigenvalues in ascending order, with all but the `rank` largest set to zero."""
    values = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    values[: values.size - rank] = 0.0
    return np.asarray(values)


def _left_centred(gram: Reals) -> Reals:
    """Return `F F^T` after the column means of every A_r are subtracted."""
    rows = gram.mean(axis=0)
    return np.asarray(gram - rows - rows[:, None] + rows.mean())


def _grams(shape: AttentionShape, beta: float, of: Matrix, rng: np.random.Generator) -> tuple[Reals, Reals]:
    """Return the matrices `F F^T` of the softmax layer and of its Gaussian equivalent."""
    n, h = shape.tokens, shape.heads
    sums = [np.zeros((n, shape.d_O if of.output else n)) for _ in range(2)]
    for parts in _heads(shape, beta, of, rng):
        for total, part in zip(sums, parts, strict=True):
            # The gram of matrices side by side is the sum of their grams.
            total += part if of.added else part @ part.T
    scale = 1.0 if of.values else n / h
    grams = [scale * (total @ total.T if of.added else total) for total in sums]
    return grams[0], grams[1]


def _heads(
    shape: AttentionShape, beta: float, of: Matrix, rng: np.random.Generator
) -> Iterator[tuple[Reals, Reals]]:
    """Yield the contribution of each head, as a pair (softmax, Gaussian equivalent)."""
    n, d, sharing = shape.tokens, shape.head_size, SHARINGS[shape.sharing]
    rest = np.sqrt(np.expm1(beta**2) - beta**2)
    keys = values = np.empty(0)
    for head in range(shape.heads):
        queries = rng.standard_normal((n, d))
        if head == 0 or not sharing.across:
            keys = rng.standard_normal((n, d))
            values = keys if sharing.tied else rng.standard_normal((n, shape.d_V))
        scores = (beta / np.sqrt(d)) * queries
        attention = scipy.special.softmax(scores @ keys.T, axis=1) - 1 / n
        if not of.values:
            yield attention, (scores @ keys.T + rest * rng.standard_normal((n, n))) / n
            continue
        # W V has independent Gaussian rows of covariance V^T V.
        root = np.asarray(np.linalg.qr(values, mode="r"))
        noise = rng.standard_normal((n, root.shape[0])) @ root
        parts = attention @ values, (scores @ (keys.T @ values) + rest * noise) / n
        if of.output:
            out = rng.standard_normal((shape.d_V, shape.d_O)) / np.sqrt(shape.heads * shape.d_V)
            parts = parts[0] @ out, parts[1] @ out
        yield parts


def draw_bytes(shape: AttentionShape, of: str) -> int:
    """Return an upper estimate of the memory in bytes that a random draw of a matrix needs."""
    n, matrix = shape.tokens, MATRICES[of]
    numbers = 9 * n * n + 4 * n * shape.head_size + (9 if matrix.values else 3) * n * shape.d_V
    if matrix.output:
        numbers += (7 * n + 2 * shape.d_V) * shape.d_O
    return 8 * numbers


LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)  # of the quantiles that are compared with the law's
MEASURED = ("equivalent_w1", "equivalent_distance", "law_w1", "law_distance", "spike_found")


@dataclass(frozen=True)
class MultiHeadDraws:
    """Means of the numbers in `MultiHeadSample` over several draws, with standard errors."""

    layer: RandomLayer
    equivalent_w1: Estimate | None = None
    equivalent_distance: Estimate | None = None
    law_w1: Estimate | None = None
    law_distance: Estimate | None = None
    spike_found: Estimate | None = None
    values: Reals | None = None  # squared singular values of the first draw
    quantiles: list[Estimate] | None = None  # singular values (not squared) at `LEVELS`


def multi_head_draws(
    layer: RandomLayer, draws: int, seed: int, progress: Progress = no_progress
) -> MultiHeadDraws:
    """Draw a layer several times, and average its distances to the law."""
    given = (layer.of, layer.centring, layer.second_order)
    drawn = []
    for child in np.random.SeedSequence(seed).spawn(draws):
        drawn.append(multi_head_sample(layer.shape, layer.beta, np.random.default_rng(child), *given))
        progress(len(drawn), draws)
    if not drawn:
        return MultiHeadDraws(layer)
    means = {name: mean_of([getattr(figure, name) for figure in drawn]) for name in MEASURED}
    quantiles = np.quantile([figure.values**0.5 for figure in drawn], LEVELS, axis=1, method="hazen")
    return MultiHeadDraws(
        layer, **means, values=drawn[0].values, quantiles=[mean_of(many) for many in quantiles]
    )
