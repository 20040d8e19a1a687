"""How far singular values moved, against noise of the size of the update; directions that are new.

Under independent noise of deviation tau in every entry of a matrix (n x m, values s)

    sd of s_j = tau,    mean of its move = tau^2/2 (sum_{l != j} 2 s_j / (s_j^2 - s_l^2) + |n - m| / s_j)

where the values lie further apart than tau (nearer ones repel each other alike and are left out of the sum).
For a head A B no formula has the mean: moves are drawn, 60 times, with noise of the size of dA in A and of dB
in B.

Intruders (arXiv 2410.21228): vectors among the model's first 10 whose cosine with every vector of the base is
below 1/2. Values that lie near each other mix under any update, and count. So `new` counts those of which
less than 1/4 lies in base vectors of at least half their value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlaw.comparing.noise import noisy_squares, top_squares
from attnlaw.comparing.vectors import SIDES, Side, Vectors

Matrix = NDArray[np.float64]
FAR = 4.0  # standard deviations from which a value has moved
FIRST = 10
STRANGE, SHARED, COMPARABLE = 0.5, 0.25, 0.5


def matrix_moves(before: Matrix, after: Matrix, shape: tuple[int, int], size: float, count: int) -> Matrix:
    """z of the first moves of a matrix's values, by the formulas; `size` is |dW|_F.

    >>> matrix_moves(np.array([4.0, 1.0]), np.array([4.5, 1.0]), (2, 2), size=0.2, count=1)
    array([4.97333333])
    """
    n, m = shape
    tau = size / np.sqrt(n * m)
    own, others = before[:count, None], before[None, :]
    apart = own**2 - others**2
    near = np.abs(own - others) <= tau
    repelled = np.where(near, 0.0, 2 * own / np.where(near, 1.0, apart)).sum(axis=1)
    mean = tau**2 / 2 * (repelled + abs(n - m) / before[:count])
    return np.asarray((after[:count] - before[:count] - mean) / tau)


def head_moves(
    factors: tuple[Matrix, Matrix], sizes: tuple[float, float], after: Matrix, count: int, seed: int = 0
) -> Matrix:
    """z of the first moves of a head's values, by draws; `sizes` are |dA|_F and |dB|_F."""
    left, right = factors
    rng = np.random.default_rng([seed, left.shape[0], right.shape[1], left.shape[1]])
    before = np.sqrt(top_squares(left.T @ left, right @ right.T, count))
    drawn = np.sqrt(noisy_squares(factors, sizes, count, rng)) - before
    return np.asarray((after[:count] - before - drawn.mean(axis=0)) / drawn.std(axis=0, ddof=1))


def intruders(base: Vectors, model: Vectors) -> dict[Side, tuple[int, int]]:
    """On each side: vectors among the model's first 10 that are no base vector, and those that are new."""
    count = min(FIRST, model.values.size)
    found: dict[Side, tuple[int, int]] = {}
    for side in SIDES:
        squares = base.coordinates(side, model.leading(side, count)) ** 2
        strange = squares.max(axis=0) < STRANGE**2
        strong = base.values[:, None] >= COMPARABLE * model.values[None, :count]
        fresh = np.where(strong, squares, 0.0).sum(axis=0) < SHARED
        found[side] = int(strange.sum()), int(fresh.sum())
    return found


def overlap(base: Vectors, model: Vectors, side: Side, k: int) -> float:
    """Mean squared cosine of the angles between the spans of the first k vectors of both."""
    crossed = base.leading(side, k).T @ model.leading(side, k)
    return float(np.sum(crossed**2) / k)
