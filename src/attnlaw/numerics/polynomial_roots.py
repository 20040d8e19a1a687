"""Stieltjes transforms that are roots of a polynomial."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes


def monic_roots(coefficients: Complexes) -> Complexes:
    """Return the roots of `y^n + c_1 y^(n-1) + ... + c_n`, for coefficients of shape (..., n).

    They are eigenvalues of companion matrices. Two Newton steps follow if they reduce the residual.

    >>> monic_roots(np.array([[0.0, -4.0]], dtype=complex)).real.tolist()
    [[2.0, -2.0]]
    """
    degree = coefficients.shape[-1]
    companion = np.zeros((*coefficients.shape, degree), dtype=complex)
    companion[..., 0, :] = -coefficients
    companion[..., np.arange(1, degree), np.arange(degree - 1)] = 1.0
    roots: Complexes = np.linalg.eigvals(companion).astype(complex)
    for _ in range(2):
        value, slope = _horner(coefficients, roots)
        new = roots - value / np.where(slope == 0, np.inf, slope)
        better = np.abs(_horner(coefficients, new)[0]) < np.abs(value)
        roots = np.where(better, new, roots)
    return np.asarray(roots)


def _horner(coefficients: Complexes, y: Complexes) -> tuple[Complexes, Complexes]:
    value, slope = np.ones_like(y), np.zeros_like(y)
    for k in range(coefficients.shape[-1]):
        slope = slope * y + value
        value = value * y + coefficients[..., k, None]
    return value, slope


def smallest_root(
    candidates: Callable[[Complexes], Complexes], z: ArrayLike, intervals: tuple[tuple[float, float], ...]
) -> Complexes:
    """Return the root of smallest modulus. This is the root that goes to zero at infinity.

    If all branch points are real, the ratio of this root to any other is analytic in the upper half plane. So
    if this root is the smallest on the real line and at infinity, it is the smallest everywhere (maximum
    principle). On the support, this root and its conjugate have the same size. The one below the real line
    belongs to z + i0. In the lower half plane the function uses the conjugate. At real z outside the support
    the root is real.

    `candidates` returns all roots at z along the last axis, and `intervals` is the support of the law.
    """
    z = np.asarray(z)
    if np.iscomplexobj(z):
        below = z.imag < 0
        root = _smallest(candidates(np.where(below, z.conj(), z)))
        return np.asarray(np.where(below, root.conj(), root))
    x = np.asarray(z, dtype=float)
    inside = np.zeros(x.shape, dtype=bool)
    for low, high in intervals:
        inside |= (x > low) & (x < high)
    root = _smallest(candidates(x.astype(complex)))
    return np.asarray(root.real - 1j * np.where(inside, np.abs(root.imag), 0.0))


def _smallest(roots: Complexes) -> Complexes:
    return np.asarray(np.take_along_axis(roots, np.abs(roots).argmin(-1)[..., None], axis=-1)[..., 0])
