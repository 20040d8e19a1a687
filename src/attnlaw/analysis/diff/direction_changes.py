"""How far singular values moved, against noise of the size of the update; directions that are new.

Under independent noise of deviation tau in every entry of a matrix (n x m, values s)

    sd of s_j = tau,    mean of its move = tau^2/2 (sum_{l != j} 2 s_j / (s_j^2 - s_l^2) + |n - m| / s_j)

and of a head A B with noise of variances va in A (n x d) and vb in B (d x m), with w_l = va |B v_l|^2 + vb
|A^T u_l|^2, to second order (E of dM = E_A B + A E_B + E_A E_B, whose last term has mean zero)

    sd of s_j = sqrt(w_j)
    mean = (va (n - d) |B v_j|^2 + vb (m - d) |A^T u_j|^2) / (2 s_j)
           + sum_{l != j} s_j (w_j + w_l) / (2 (s_j^2 - s_l^2))

where the values lie further apart than that (nearer ones repel each other alike and are left out of the sum).

Intruders (arXiv 2410.21228): vectors among the model's first 10 whose cosine with every vector of the base is
below 1/2. Values that lie near each other mix under any update, and count. So `new` counts those of which
less than 1/4 lies in base vectors of at least half their value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.diff.vectors import SIDES, ProductVectors, Side, SingularVectors

Matrix = NDArray[np.float64]
MOVED_DEVIATIONS = 4.0  # standard deviations from which a value has moved
LEADING_COUNT = 10
STRANGE, SHARED, COMPARABLE = 0.5, 0.25, 0.5


def matrix_moves(before: Matrix, after: Matrix, shape: tuple[int, int], size: float, count: int) -> Matrix:
    """z of the first moves of a matrix's values, by the formulas; `size` is |dW|_F.

    >>> matrix_moves(np.array([4.0, 1.0]), np.array([4.5, 1.0]), (2, 2), size=0.2, count=1)
    array([4.97333333])
    """
    n, m = shape
    tau = size / np.sqrt(n * m)
    leading, others = before[:count, None], before[None, :]
    apart = leading**2 - others**2
    near = np.abs(leading - others) <= tau
    repelled = np.where(near, 0.0, 2 * leading / np.where(near, 1.0, apart)).sum(axis=1)
    mean = tau**2 / 2 * (repelled + abs(n - m) / before[:count])
    return np.asarray((after[:count] - before[:count] - mean) / tau)


def head_moves(
    base: ProductVectors,
    factors: tuple[Matrix, Matrix],
    shape: tuple[int, int],
    sizes: tuple[float, float],
    after: Matrix,
    count: int,
) -> Matrix:
    """The same of a head A B of shape (n, m); `sizes` are |dA|_F and |dB|_F."""
    left, right = factors
    (n, m), d, s, first = shape, left.shape[1], base.values, slice(0, count)
    va, vb = sizes[0] ** 2 / (n * d), sizes[1] ** 2 / (m * d)
    through_right = va * np.sum((right @ base.right) ** 2, axis=0)
    through_left = vb * np.sum((left.T @ base.left) ** 2, axis=0)
    variances = through_right + through_left
    deviation = np.sqrt(variances[first])
    leading, others = s[first, None], s[None, :]
    near = np.abs(leading - others) <= deviation[:, None]
    pairs = leading * (variances[first, None] + variances[None, :])
    repelled = np.where(near, 0.0, pairs / np.where(near, 1.0, 2 * (leading**2 - others**2))).sum(axis=1)
    beside = (n - d) * through_right[first] + (m - d) * through_left[first]
    mean = beside / (2 * s[first]) + repelled
    return np.asarray((after[first] - s[first] - mean) / deviation)


def count_intruders(base: SingularVectors, model: SingularVectors) -> dict[Side, tuple[int, int]]:
    """On each side: vectors among the model's first 10 that are no base vector, and those that are new."""
    count = min(LEADING_COUNT, model.values.size)
    by_side: dict[Side, tuple[int, int]] = {}
    for side in SIDES:
        squares = base.coordinates(side, model.leading(side, count)) ** 2
        strange = squares.max(axis=0) < STRANGE**2
        strong = base.values[:, None] >= COMPARABLE * model.values[None, :count]
        fresh = np.where(strong, squares, 0.0).sum(axis=0) < SHARED
        by_side[side] = int(strange.sum()), int(fresh.sum())
    return by_side


def overlap(base: SingularVectors, model: SingularVectors, side: Side, k: int) -> float:
    """Mean squared cosine of the angles between the spans of the first k vectors of both."""
    crossed = base.leading(side, k).T @ model.leading(side, k)
    return float(np.sum(crossed**2) / k)
