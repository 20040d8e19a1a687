"""A finite attention matrix on random inputs beside its law: how far the limit is to be trusted.

| letter | meaning |
|---|---|
| n, d_K | tokens and head size; `t = d_K / n` |
| theta | `e^(beta^2) - 1`, the mean of the law; plain Marchenko-Pastur (ratio 1) of that mean is the rival |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest

from attnlaw.core.settings import check_value
from attnlaw.theory.laws.attention_matrix import AttentionMatrixLaw
from attnlaw.theory.laws.finite_size import finite_size_warnings
from attnlaw.theory.laws.law import Reals
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.participation import centred, random_attention


@dataclass(frozen=True)
class AttentionSample:
    """Squared singular values of one `sqrt(n) A_perp` (ascending) and their distance from two laws.

    `law_distance` and `marchenko_pastur_distance` are Kolmogorov-Smirnov distances, `edge` and
    `marchenko_pastur_edge` the upper ends of the two laws, `largest` the largest value drawn, `beyond` the
    number of values above `edge`. `warnings` says in words where the limit must not be relied on.
    """

    tokens: int
    head_size: int
    beta: float
    values: Reals
    law_distance: float
    marchenko_pastur_distance: float
    edge: float
    marchenko_pastur_edge: float
    largest: float
    beyond: int
    warnings: tuple[str, ...]


def attention_sample(
    tokens: int, head_size: int, beta: float, seed: int | np.random.Generator
) -> AttentionSample:
    """Draw `softmax(beta Q K^T / sqrt(d_K))` with standard Gaussian Q, K (n x d_K); compare it with its law.

    >>> drawn = attention_sample(200, 200, 0.5, seed=1)
    >>> drawn.law_distance < drawn.marchenko_pastur_distance, drawn.warnings
    (True, ())
    """
    check_value("tokens", tokens, int, minimum=2)
    check_value("head_size", head_size, int, minimum=1)
    law = AttentionMatrixLaw(beta, head_size / tokens)
    plain = MarchenkoPastur(1.0, law.theta)
    values = attention_spectrum(random_attention(tokens, head_size, beta, seed))
    edge = law.support[1]
    return AttentionSample(
        tokens=tokens,
        head_size=head_size,
        beta=beta,
        values=values,
        law_distance=float(kstest(values, law.cdf).statistic),
        marchenko_pastur_distance=float(kstest(values, plain.cdf).statistic),
        edge=edge,
        marchenko_pastur_edge=plain.support[1],
        largest=float(values[-1]),
        beyond=int((values > edge).sum()),
        warnings=finite_size_warnings(tokens, head_size, beta),
    )


def attention_spectrum(attention: NDArray[np.float64]) -> Reals:
    """Squared singular values of `sqrt(n) (A - 1 mean_i(A))`, ascending, for an n x n attention matrix.

    Column means and not 1/n are taken off: the bulk is the same, and the spike of unequal keys is gone.
    """
    return np.asarray(np.linalg.svd(centred(attention), compute_uv=False)[::-1] ** 2 * attention.shape[0])
