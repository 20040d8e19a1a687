"""The difference of two heads, and of two matrices, by singular values that small updates do not spoil.

A head is M = A B, thin factors n x d and d x m; index 0 is the base, 1 the model:

    D = M1 - M0 = [dA, A0] [B1; dB],    dA = A1 - A0,  dB = B1 - B0

of rank 2d at most: QR of both stacks, SVD of the 2d x 2d core. Subtracting first is exact for float32 and
below. [A1, -A0] [B1; B0] is the same matrix with cancellation: at dA/A = 1e-9 its values are 1e-7 off.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svdvals

from attnlaw.analysis.diff.rounding_floor import rank_above
from attnlaw.numerics.two_stage import symmetric_eigenvalues

Matrix = NDArray[np.float64]
RESOLVED = 1e-6


def head_update_values(left0: Matrix, right0: Matrix, left1: Matrix, right1: Matrix) -> Matrix:
    """Singular values of `left1 @ right1 - left0 @ right0`, descending.

    Heads of different d are compared too: the smaller one counts as filled with zeros.

    >>> ones = np.ones((2, 1))
    >>> head_update_values(ones, ones.T, 3 * ones, ones.T).round(12)
    array([4., 0.])
    """
    left0, left1 = pad_columns(left0, left1)
    bottom0, bottom1 = (part.T for part in pad_columns(right0.T, right1.T))
    first = np.hstack([left1 - left0, left0])
    second = np.vstack([bottom1, bottom1 - bottom0])
    core = triangle(first) @ triangle(second.T).T
    return np.asarray(svdvals(core, check_finite=False))


def matrix_update_values(update: Matrix, floor: float) -> Matrix:
    """Singular values of the difference of two matrices, descending: those above a floor can be counted.

    The Gram matrix resolves values down to 1e-6 of the largest. Where the floor, and a value, lie below
    that, and in an update of low rank, whose tail is compared with rounding, the SVD is used.
    """
    short = update if update.shape[0] <= update.shape[1] else update.T
    squares = symmetric_eigenvalues(short @ short.T)[::-1]
    resolved = int(np.count_nonzero(squares > RESOLVED**2 * squares[0]))
    low = rank_above(np.sqrt(np.maximum(squares, 0.0)), floor) <= short.shape[0] / 4
    if not low and (resolved == squares.size or floor > RESOLVED * np.sqrt(squares[0])):
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))
    return np.asarray(svdvals(update, check_finite=False))


def triangle(matrix: Matrix) -> Matrix:
    """R of the QR factorisation."""
    return np.asarray(np.linalg.qr(matrix, mode="r"))


def pad_columns(first: Matrix, second: Matrix) -> tuple[Matrix, Matrix]:
    """Both with the columns of the wider one, zeros in those that are new."""
    most = max(first.shape[1], second.shape[1])
    padded_first, other = (np.pad(part, ((0, 0), (0, most - part.shape[1]))) for part in (first, second))
    return padded_first, other


def product_inner(left0: Matrix, right0: Matrix, left1: Matrix, right1: Matrix) -> float:
    """<A0 B0, A1 B1>, without forming either."""
    return float(np.sum((left0.T @ left1) * (right0 @ right1.T)))
