"""Test whether an update keeps to the leading directions of its base more than chance explains.

P projects on the k leading left singular vectors of the base M0, and share = |P X|^2 / |X|^2. If the left
vectors of X (n rows, singular values s) are uniformly random, then for any s

    mean k/n,    var = 2 b (phi - 1/n),    b = k(n - k) / (n(n - 1)(n + 2)),    phi = sum s^4 / (sum s^2)^2

For a stored matrix, X is its update. For a head A B that would not work: A0 dB is always in the column space
of A0, whatever dB is. So the two halves of its update are tested: dA B1 on the left and A0 dB on the right.

The error of rounding is not uniform: it is larger where weights are larger. If an entry has the variance
v = step^2/12, the share of the error has

    mean = sum_i P_ii sum_j v_ij / sum v
    var  = (2 sum_j sum_{i != l} P_il^2 v_ij v_lj + sum_ij (P_ii - mean)^2 step_ij^4 / 180) / (sum v)^2
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate


@dataclass(frozen=True)
class Share:
    """The share of an update in the leading directions of its base, and the share by chance (`null`)."""

    value: float
    null: Estimate

    @property
    def z(self) -> float | None:
        """The z-score of the share under `null`, or None if `null` has no spread."""
        if not self.null.error:
            return None
        return (self.value - self.null.value) / self.null.error


def alignment_null(values: Reals, n: int, k: int) -> Estimate:
    """Return the mean and standard deviation of the share of a random update in k of n directions.

    The update has the given singular values and uniformly random left singular vectors.

    >>> alignment_null(np.ones(1), n=4, k=2)  # one vector: a Beta(1, 1) variable
    Estimate(value=0.5, error=0.288...)
    """
    squares = np.square(values / values[0])
    return _null(float(np.sum(squares**2) / np.sum(squares) ** 2), n, k)


def overlap_null(n: int, k: int) -> Estimate:
    """Return the mean and standard deviation of the overlap of two random k-dimensional subspaces of R^n.

    With orthonormal bases U and V, the overlap is |U^T V|_F^2 / k, the mean squared cosine of their principal
    angles.

    >>> overlap_null(128, 2).value
    0.015625
    """
    return Estimate(k / n, float(np.sqrt(2 * (n - k) ** 2 / (n**2 * (n - 1) * (n + 2)))))


def matrix_share(directions: Reals, update: Reals, values: Reals) -> Share:
    """Return the share of an update (n x m) in the span of orthonormal `directions` (n x k)."""
    n, k = directions.shape
    inside = float(np.sum((directions.T @ update) ** 2))
    return Share(inside / float(np.sum(values**2)), alignment_null(values, n, k))


def half_share(directions: Reals, factor: Reals, other: Reals, n: int | None = None) -> Share | None:
    """Return the share of one half, dA B, of a head's update in some directions; None if it is zero."""
    n, k = n or directions.shape[0], directions.shape[1]
    gram = other @ other.T
    whole, inside = factor.T @ factor, directions.T @ factor
    total = float(np.sum(whole * gram))
    if not total > 0:
        return None
    product = whole @ gram
    fourth = float(np.sum(product * product.T)) / total**2
    return Share(float(np.sum((inside.T @ inside) * gram)) / total, _null(fourth, n, k))


def rounding_share_null(directions: Reals, steps: Reals) -> Estimate:
    """Return the mean and standard deviation of the share of rounding errors in orthonormal directions."""
    projector = directions @ directions.T
    inside = np.diag(projector).copy()
    variances = steps**2 / 12
    total = float(variances.sum())
    mean = float(inside @ variances.sum(axis=1)) / total
    np.fill_diagonal(projector, 0.0)
    crossed = 2 * float(np.sum(variances * (projector**2 @ variances)))
    diagonal = float(np.sum((inside - mean)[:, None] ** 2 * steps**4)) / 180
    return Estimate(mean, float(np.sqrt(crossed + diagonal)) / total)


def rounded_half_null(directions: Reals, steps: Reals, other: Reals, uniform: Estimate) -> Estimate:
    """Return the share expected of one half of a head's update if its factor was only rounded."""
    weights = (steps**2 @ np.sum(other**2, axis=1)) / 12
    inside = np.sum(directions**2, axis=1)
    return Estimate(float(inside @ weights / weights.sum()), uniform.error)


def _null(phi: float, n: int, k: int) -> Estimate:
    if n < 2:
        return Estimate(k / n, 0.0)
    b = k * (n - k) / (n * (n - 1) * (n + 2))
    return Estimate(k / n, float(np.sqrt(max(2 * b * (phi - 1 / n), 0.0))))
