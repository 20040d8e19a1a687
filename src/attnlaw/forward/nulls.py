"""The participation number of an attention matrix, and two nulls for it.

`PR = (sum s^2)^2 / sum s^4` over the singular values s of the attention matrix A without what attention has
when it looks at nothing: its column means (A - 1 mean_i A, which also takes away the common shift that keys
of unequal length give all rows) or, under a mask, the uniform attention M over the allowed pairs. It counts
the directions that A has beyond that.

| null | drawn | holds fixed |
|---|---|---|
| Gaussian | `softmax(beta Q K^T / sqrt(d))`, Q and K standard Gaussian, s x d, the same mask | beta, s, d |
| random weights | the head's own inputs, positions and mask under Gaussian W_Q, W_K without biases | |W_Q|_F, |W_K|_F, tokens |

The first is the setting of arXiv 2610.10033 at the head's own temperature. Real tokens are far from
orthogonal, which alone lowers PR: the second null has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from attnlaw.base.estimate import Estimate
from attnlaw.forward.blocks import Array
from attnlaw.forward.scores import Scores, masked_softmax

DRAWS = 20


def participation(attention: Array, allowed: NDArray[np.bool_]) -> float:
    """`(sum s^2)^2 / sum s^4` of the centred attention matrix, s x s; 0 where nothing is left of it.

    >>> participation(np.eye(3), np.ones((3, 3), dtype=bool))
    2.0
    """
    centred = attention - (
        attention.mean(axis=0) if allowed.all() else allowed / allowed.sum(axis=1, keepdims=True)
    )
    gram = centred @ centred.T
    fourth = float((gram**2).sum())
    return float(np.trace(gram)) ** 2 / fourth if fourth > 0 else 0.0


def gaussian_participation(
    scores: Scores, beta: float, rng: np.random.Generator, draws: int = DRAWS
) -> Estimate:
    """The mean participation number of heads with iid Gaussian queries and keys at a temperature."""
    size, tokens = scores.head_size, len(scores.inputs)

    def drawn() -> Iterator[float]:
        for _ in range(draws):
            Q, K = rng.standard_normal((2, tokens, size))
            attention = masked_softmax(beta / np.sqrt(size) * (Q @ K.T), scores.allowed)
            yield participation(attention, scores.allowed)

    return _mean(list(drawn()))


def random_weights_participation(
    scores: Scores, head: int, rng: np.random.Generator, draws: int = DRAWS
) -> Estimate:
    """The mean participation number of heads with Gaussian weights on the same tokens.

    Each of W_Q and W_K keeps its Frobenius norm; biases, which are learned, are left out.
    """

    def drawn() -> Iterator[float]:
        for _ in range(draws):
            W_Q, W_K = (_redrawn(weight, rng) for weight in scores.weights(head))
            yield participation(scores.attention(scores.of(W_Q, W_K)), scores.allowed)

    return _mean(list(drawn()))


def _redrawn(weight: Array, rng: np.random.Generator) -> Array:
    """A Gaussian matrix with the shape and the Frobenius norm of a weight."""
    fresh = rng.standard_normal(weight.shape)
    return np.asarray(fresh * (np.linalg.norm(weight) / np.linalg.norm(fresh)))


def _mean(values: Sequence[float]) -> Estimate:
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))
