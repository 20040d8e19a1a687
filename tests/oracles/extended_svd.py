"""Singular values in extended precision: Gram-Schmidt and one-sided Jacobi on `np.longdouble` arrays.

Slow and plain. `np.longdouble` has 64 bits of mantissa on x86; `PRECISE` says whether it has here.
"""

import numpy as np

PRECISE = np.finfo(np.longdouble).eps < 2e-19
SWEEPS = 40


def product_values(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Singular values of `left @ right` (N x d, d x M, both of rank d), descending."""
    core = _triangle(left) @ _triangle(right.T).T
    return matrix_values(core)


def matrix_values(matrix: np.ndarray) -> np.ndarray:
    """Singular values of a square matrix: rotate pairs of columns until all are orthogonal.

    Pairs are taken by the round-robin of a tournament, so that each round rotates d/2 of them at once. Turned
    first by what float64 finds, the columns are nearly orthogonal, and two or three sweeps are enough.
    """
    a = np.asarray(matrix, dtype=np.longdouble)
    a = a @ _orthogonal(np.linalg.svd(a.astype(np.float64))[2].T)
    d = a.shape[1]
    if d % 2:
        a = np.concatenate([a, np.zeros((a.shape[0], 1), np.longdouble)], axis=1)
    order = np.arange(a.shape[1])
    for _ in range(SWEEPS):
        worst = max(_rotate_round(a, _turned(order, step)) for step in range(a.shape[1] - 1))
        if worst < 8 * np.finfo(np.longdouble).eps * np.sqrt(d):
            return np.sort(np.sqrt((a * a).sum(axis=0)))[::-1][:d]
    raise AssertionError(f"Jacobi did not converge in {SWEEPS} sweeps: {worst}")


def _orthogonal(matrix: np.ndarray) -> np.ndarray:
    """A matrix that is orthogonal to the last bit of float64 made so to the last of these (Newton)."""
    v = matrix.astype(np.longdouble)
    for _ in range(2):
        v = v @ (3 * np.eye(len(v), dtype=np.longdouble) - v.T @ v) / 2
    return v


def _turned(order: np.ndarray, step: int) -> np.ndarray:
    """Seat 0 stays, the others move on by `step`."""
    return np.concatenate([order[:1], np.roll(order[1:], step)])


def _rotate_round(a: np.ndarray, seats: np.ndarray) -> float:
    """Rotate the pairs (first seat, last), (second, last but one), ...; the largest cosine before."""
    half = seats.size // 2
    i, j = seats[:half], seats[half:][::-1]
    x, y = a[:, i], a[:, j]
    xx, yy, xy = (x * x).sum(axis=0), (y * y).sum(axis=0), (x * y).sum(axis=0)
    size = np.sqrt(xx * yy)
    active = (size > 0) & (np.abs(xy) > 0)
    cosine = np.where(active, np.abs(xy) / np.where(active, size, 1), 0)
    zeta = (yy - xx) / np.where(active, 2 * xy, 1)
    sign = np.where(zeta >= 0, 1, -1)
    t = np.where(active, sign / (np.abs(zeta) + np.sqrt(1 + zeta * zeta)), 0)
    c = 1 / np.sqrt(1 + t * t)
    s = c * t
    a[:, i], a[:, j] = c * x - s * y, s * x + c * y
    return float(cosine.max())


def _triangle(matrix: np.ndarray) -> np.ndarray:
    """R of the QR factorisation by modified Gram-Schmidt (whose R is backward stable)."""
    a = np.asarray(matrix, dtype=np.longdouble).T.copy()
    d = a.shape[0]
    r = np.zeros((d, d), np.longdouble)
    for k in range(d):
        r[k, k] = np.sqrt((a[k] * a[k]).sum())
        q = a[k] / r[k, k]
        r[k, k + 1 :] = (a[k + 1 :] * q).sum(axis=1)
        a[k + 1 :] -= r[k, k + 1 :, None] * q
    return r
