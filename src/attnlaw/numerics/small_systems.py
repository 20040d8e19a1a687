"""Small symmetric linear systems for many draws at once. The last axis of all arrays runs over the draws.

The matrices are factorised as `A = L D L^T` without pivoting, exactly up to round-off if A is positive
definite. Otherwise a pivot may be tiny and the solution poor, so the caller must check the step.
"""

from __future__ import annotations

import numpy as np

from attnlaw.core.arrays import Reals


def factor(A: Reals) -> Reals:
    """Factorise symmetric matrices A (P, P, N) in place: L is below the diagonal, 1/D on it.

    >>> A = np.array([[4.0, 2.0], [2.0, 5.0]])[..., None]
    >>> solve(factor(A), np.array([[8.0], [12.0]])).ravel().tolist()
    [1.0, 2.0]
    """
    size, L = A.shape[0], A
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for k in range(size):
            L[k, k] = 1.0 / L[k, k]
            column = L[k + 1 :, k] * L[k, k]
            for i in range(k + 1, size):
                L[i, k + 1 : i + 1] -= column[i - k - 1] * L[k + 1 : i + 1, k]
            L[k + 1 :, k] = column
    return L


def solve(L: Reals, b: Reals) -> Reals:
    """Solve `A x = b` for right-hand sides (P, N). The argument L is the result of `factor(A)`."""
    size = L.shape[0]
    x = b.copy()
    with np.errstate(invalid="ignore", over="ignore"):
        for k in range(size):
            x[k + 1 :] -= L[k + 1 :, k] * x[k]
            x[k] *= L[k, k]
        for k in range(size - 1, 0, -1):
            x[:k] -= L[k, :k] * x[k]
    return x


def inverse(L: Reals) -> Reals:
    """Return `A^-1` of shape (P, P, N). The argument L is the result of `factor(A)`."""
    size = L.shape[0]
    M = np.zeros_like(L)
    for k in range(size):
        M[k, k] = 1.0
        for i in range(k):
            M[k, : i + 1] -= L[k, i] * M[i, : i + 1]
    product = np.zeros_like(L)
    for k in range(size):
        scaled = M[k, : k + 1] * L[k, k]
        for i in range(k + 1):
            product[i, : k + 1] += scaled[i] * M[k, : k + 1]
    return product
