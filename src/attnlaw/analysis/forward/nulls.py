"""The participation number of a head's attention on real tokens under random weights.

Real tokens are far from orthogonal, which alone lowers the participation number (`laws/participation.py`)
below that of independent Gaussian queries and keys. Here the head's own inputs, positions and mask are kept,
and W_Q and W_K are redrawn.
"""

from __future__ import annotations

import numpy as np

from attnlaw.analysis.forward.blocks import Array
from attnlaw.analysis.forward.scores import FrozenScores
from attnlaw.core.estimate import Estimate
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.laws.participation import centred, participation

DRAWS = 20


def random_weights_participation(
    scores: FrozenScores, head: int, rng: np.random.Generator, draws: int = DRAWS
) -> Estimate:
    """The participation number with Gaussian weights on the same tokens: mean of draws and standard error.

    Each of W_Q and W_K keeps its Frobenius norm; biases, which are learned, are left out. The temperature is
    what these weights give on these tokens, not the head's own.
    """
    weights = scores.weights(head)
    samples = []
    for _ in range(draws):
        W_Q, W_K = (random_like(weight, rng) for weight in weights)
        attention = scores.attention(scores.scores_with(W_Q, W_K))
        samples.append(participation(centred(attention, scores.causal)))
    return mean_of(samples)


def random_like(weight: Array, rng: np.random.Generator) -> Array:
    """A Gaussian matrix with the shape and the Frobenius norm of a weight.

    >>> fresh = random_like(np.array([[3.0, 0.0], [0.0, 4.0]]), np.random.default_rng(0))
    >>> round(float(np.linalg.norm(fresh)), 12)
    5.0
    """
    fresh = rng.standard_normal(weight.shape)
    return np.asarray(fresh * (np.linalg.norm(weight) / np.linalg.norm(fresh)))
