"""How many directions an attention matrix uses once its mean is taken off, and what random ones have.

| letter | meaning |
|---|---|
| n, d_K | tokens, head size |
| A, M | an attention matrix, and uniform attention under a causal mask: row i is 1/i on its first i tokens |
| PR | participation number `(sum s^2)^2 / sum s^4` of the singular values s: n equal ones have n |

The draws are attention of independent Gaussian queries and keys. Real tokens are not orthogonal: on text,
random weights on the same tokens are the fairer null.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from attnlaw.core.estimate import Estimate
from attnlaw.core.settings import check_value
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.laws.law import Reals


def random_attention(
    tokens: int, head_size: int, beta: float, seed: int | np.random.Generator, causal: bool = False
) -> Reals:
    """`softmax(beta Q K^T / sqrt(d_K))` by rows, shape (n, n), Q and K standard Gaussian of size n x d_K.

    >>> random_attention(3, 2, 1.0, seed=0, causal=True)[0].tolist()
    [1.0, 0.0, 0.0]
    """
    Q, K = np.random.default_rng(seed).standard_normal((2, tokens, head_size))
    scores = (beta / np.sqrt(head_size)) * (Q @ K.T)
    if causal:
        scores[np.triu_indices(tokens, 1)] = -np.inf
    return np.asarray(softmax(scores, axis=1))


def centred(attention: NDArray[np.floating], causal: bool = False) -> Reals:
    """`A - 1 mean_i(A)`, the column means taken off; with a causal mask `A - M`.

    Column means, not 1/n: keys of unequal length raise whole columns of a random A, a rank-one spike that no
    law of the bulk sees. Under a causal mask columns differ in length, and uniform attention has full rank.

    >>> centred(np.array([[0.9, 0.1], [0.5, 0.5]])).round(12).tolist()
    [[0.2, -0.2], [-0.2, 0.2]]
    """
    A = np.asarray(attention, dtype=float)
    if not causal:
        return np.asarray(A - A.mean(axis=0))
    n = A.shape[0]
    return np.asarray(A - np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None])


def participation(matrix: NDArray[np.floating]) -> float:
    """`(sum s^2)^2 / sum s^4` of its singular values, without computing any: `|C|_F^4 / |C C^T|_F^2`.

    nan for a matrix of zeros.

    >>> participation(np.diag([2.0, 2.0, 2.0, 0.0]))
    3.0
    """
    C = np.asarray(matrix, dtype=float)
    gram = C @ C.T if C.shape[0] <= C.shape[1] else C.T @ C
    # The trace to the power of two over the squared norm; a common scale first, so that neither underflows.
    scale = np.abs(gram).max(initial=0.0)
    gram = gram / scale if scale > 0 else gram
    with np.errstate(invalid="ignore"):
        return float(np.divide(np.trace(gram) ** 2, (gram**2).sum()))


def null_participation(
    tokens: int, head_size: int, beta: float, seed: int, draws: int = 20, causal: bool = False
) -> Estimate:
    """Participation number of centred random attention at this beta: the mean of draws with its error.

    Below beta_2 it is near `n / (2 + c^2 n/d_K)`, `c = beta^2/(e^(beta^2) - 1)` (arXiv 2510.06685); drawn, it
    holds at any beta and under a causal mask, where there is no law.

    >>> str(null_participation(128, 64, 0.5, seed=0))
    '34.9(2)'
    """
    check_value("draws", draws, int, minimum=2)
    seeds = np.random.SeedSequence(seed).spawn(draws)
    numbers = [
        participation(
            centred(random_attention(tokens, head_size, beta, np.random.default_rng(seed), causal), causal)
        )
        for seed in seeds
    ]
    return mean_of(numbers)
