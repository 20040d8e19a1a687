"""Draws of one random attention matrix, compared with its law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest

from attnlaw.core.arrays import Reals
from attnlaw.theory.laws.attention_matrix import AttentionMatrixLaw, centred, random_attention
from attnlaw.theory.laws.finite_size import finite_size_warnings
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur


@dataclass(frozen=True)
class AttentionSample:
    """Squared singular values of one draw of `sqrt(n) A_perp`, compared with two laws."""

    tokens: int
    head_size: int
    beta: float
    values: Reals  # squared singular values, ascending
    law_distance: float  # kolmogorov-Smirnov distance to `AttentionMatrixLaw`
    marchenko_pastur_distance: float  # kolmogorov-Smirnov distance to Marchenko-Pastur of the same mean
    edge: float  # the upper edge of the law
    marchenko_pastur_edge: float  # the upper edge of that Marchenko-Pastur law
    largest: float  # the largest value
    beyond: int  # the number of values above `edge`
    warnings: tuple[str, ...]  # sentences that say why not to rely on the limit


def attention_sample(
    tokens: int, head_size: int, beta: float, seed: int | np.random.Generator
) -> AttentionSample:
    """Draw one random attention matrix and compare it with its law.

    The matrix is `softmax(beta Q K^T / sqrt(d_K))` with standard Gaussian Q and K of size n x d_K.

    >>> drawn = attention_sample(200, 200, 0.5, seed=1)
    >>> drawn.law_distance < drawn.marchenko_pastur_distance, drawn.warnings
    (True, ())
    """
    law = AttentionMatrixLaw(beta, head_size / tokens)
    plain = MarchenkoPastur(1.0, law.theta)
    values = attention_spectrum(random_attention(tokens, head_size, beta, seed))
    edge = law.support[1]
    return AttentionSample(
        *(tokens, head_size, beta, values),
        law_distance=float(kstest(values, law.cdf).statistic),
        marchenko_pastur_distance=float(kstest(values, plain.cdf).statistic),
        edge=edge,
        marchenko_pastur_edge=plain.support[1],
        largest=float(values[-1]),
        beyond=int((values > edge).sum()),
        warnings=finite_size_warnings(tokens, head_size, beta),
    )


def attention_spectrum(attention: NDArray[np.float64]) -> Reals:
    """Return the squared singular values of `sqrt(n) (A - column means of A)`, in ascending order.

    The argument is the n x n attention matrix A.
    """
    return np.asarray(np.linalg.svd(centred(attention), compute_uv=False)[::-1] ** 2 * attention.shape[0])
