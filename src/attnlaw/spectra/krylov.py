"""Lanczos's method for symmetric matrices, and a bound on their largest eigenvalue.

From a start of unit length, k steps give a k x k tridiagonal T with off-diagonal entries b_1 ... b_k, where
b_k leads out of T. The largest eigenvalue t of T is a lower bound of the largest eigenvalue l of the matrix.
Let p be the characteristic polynomial of T. Then |p(A) v|^2 = (b_1 ... b_k)^2, and this is at least c^2
p(l)^2, where c is the component of the start v along the leading eigenvector. A random start in n dimensions
has |c| >= d (pi / 2n)^(1/2) except with probability d, and p increases beyond t. So l is at most the solution
of

    ln p(x) = ln(b_1 ... b_k) - ln d - ln(pi / 2n) / 2,    x > t

(van Dorsselaer, Hochstenbach and van der Vorst 2000).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate

ROUND_OFF = 1e-13
# A largest value takes FIRST_CHECK steps, or MAX_STEPS if its relative error is then above CONVERGED_ERROR.
FIRST_CHECK, MAX_STEPS, CONVERGED_ERROR = 40, 100, 1e-4
# Probability that a stated error is too small.
CHANCE = 1e-3

Operator = Callable[[Reals], Reals]


@dataclass(frozen=True, eq=False)
class KrylovRun:
    """The Lanczos tridiagonals of several start vectors (in rows), and the squared norms of the starts."""

    squared_norm: Reals
    diagonal: Reals
    off_diagonal: Reals

    def rows(self, chosen: slice) -> KrylovRun:
        return KrylovRun(self.squared_norm[chosen], self.diagonal[chosen], self.off_diagonal[chosen])


def lanczos(
    gram: Operator, starts: Reals, steps: int, should_stop: Callable[[KrylovRun], bool] = lambda run: False
) -> KrylovRun:
    """Run Lanczos's method from each column of `starts`, all at the same time.

    Every vector is made orthogonal to the earlier ones of its start twice. After `FIRST_CHECK` steps, the run
    ends when `should_stop` returns true for it.
    """
    size, count = starts.shape
    norms = np.linalg.norm(starts, axis=0)
    vector = _divide_columns(starts, norms)
    past = np.zeros((count, steps, size))
    diagonal, off_diagonal = np.zeros((count, steps)), np.zeros((count, steps))
    largest = np.zeros(count)
    for step in range(steps):
        past[:, step] = vector.T
        image = gram(vector)
        diagonal[:, step] = np.einsum("ic,ic->c", vector, image)
        for _ in range(2):
            shares = past[:, : step + 1] @ image.T[:, :, None]
            image -= (shares.transpose(0, 2, 1) @ past[:, : step + 1])[:, 0].T
        left = np.linalg.norm(image, axis=0)
        # If only round-off is left, an invariant space was reached, and its rule is exact.
        largest = np.maximum(largest, np.maximum(np.abs(diagonal[:, step]), left))
        off_diagonal[:, step] = np.where(left > ROUND_OFF * largest, left, 0.0)
        vector = _divide_columns(image, off_diagonal[:, step])
        if step + 1 == FIRST_CHECK < steps:
            early = KrylovRun(norms**2, diagonal[:, :FIRST_CHECK], off_diagonal[:, :FIRST_CHECK])
            if should_stop(early):
                return early
    return KrylovRun(norms**2, diagonal, off_diagonal)


def _divide_columns(columns: Reals, norms: Reals) -> Reals:
    """Return the columns divided by their norms. Zeros, which mean an invariant space, stay zero."""
    return np.divide(columns, norms, out=np.zeros_like(columns), where=norms > 0)


def tridiagonals(run: KrylovRun) -> Reals:
    count, steps = run.diagonal.shape
    matrices = np.zeros((count, steps, steps))
    place = np.arange(steps)
    matrices[:, place, place] = run.diagonal
    matrices[:, place[1:], place[:-1]] = matrices[:, place[:-1], place[1:]] = run.off_diagonal[:, :-1]
    return matrices


def largest_value(gram: Operator, size: int) -> Estimate:
    """Return the square root of the largest eigenvalue of a positive semidefinite matrix.

    The value is a lower bound, and its error bounds the distance to the true value. Every run uses the same
    start vector.

    >>> largest_value(lambda block: np.array([[9.0], [4.0]]) * block, 2).value
    3.0
    """

    def has_converged(run: KrylovRun) -> bool:
        top = _largest(run, size)
        return (top.error or 0.0) <= CONVERGED_ERROR * top.value

    start = np.random.default_rng(0).standard_normal((size, 1))
    return _largest(lanczos(gram, start, min(MAX_STEPS, size), has_converged), size)


def _largest(run: KrylovRun, size: int) -> Estimate:
    values = np.linalg.eigvalsh(tridiagonals(run)[0])
    top = float(np.sqrt(max(values[-1], 0.0)))
    beyond = _distance_above(values, run.off_diagonal[0], size)
    return Estimate(top, float(np.sqrt(values[-1] + beyond)) - top + ROUND_OFF * top if top > 0 else 0.0)


def _distance_above(values: Reals, off_diagonal: Reals, size: int) -> float:
    """Return how far the largest eigenvalue may be above the last of the ascending Ritz `values`, by
    bisection.
    """
    if np.any(off_diagonal == 0):  # the invariant space contains the leading eigenvector
        return 0.0
    most = float(np.sum(np.log(off_diagonal))) - np.log(CHANCE) - np.log(np.pi / (2 * size)) / 2
    gaps = values[-1] - values[:-1]
    # The last factor of p is the smallest, so the solution is at most the k-th root of the right-hand side.
    high = most / values.size
    low = min(high, float(np.log(values[-1]) + np.log(ROUND_OFF)))
    for _ in range(60):
        middle = (low + high) / 2
        if middle + float(np.sum(np.log(gaps + np.exp(middle)))) < most:
            low = middle
        else:
            high = middle
    return float(np.exp(high))
