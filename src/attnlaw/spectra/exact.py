"""Singular values of a matrix that is held whole: a float64 Gram matrix, or the SVD where that is too coarse.

The eigenvalues of M^T M carry an absolute error of about eps s_1^2, so a singular value s carries
about eps s_1^2 / s. While the smallest one stays above 3e-4 s_1, every value is right to 1e-12 s_1
and to 1e-9 of itself; below that the SVD is used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, svdvals

from attnlaw.spectra.spectrum import Spectrum

GRAM_LIMIT = 3e-4

Matrix = NDArray[np.float64]


def matrix_spectrum(matrix: Matrix) -> Spectrum:
    """The spectrum of a float64 matrix; all min(rows, cols) singular values.

    >>> matrix_spectrum(np.array([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])).values
    array([4., 3.])
    """
    scaled, scale = power_scaled(matrix)
    values, route = _singular_values(scaled)
    return Spectrum(
        values * scale,
        (matrix.shape[0], matrix.shape[1]),
        norm_21=float(np.sqrt(np.einsum("ij,ij->j", scaled, scaled)).sum()) * scale,
        norm_11=absolute_sum(scaled) * scale,
        route=route,
    )


def power_scaled(matrix: Matrix) -> tuple[Matrix, float]:
    """The matrix over a power of two (exact), so that squares stay in range, and that power.

    Ordinary matrices come back as they are.
    """
    peak = max(float(matrix.max()), -float(matrix.min()))
    if peak == 0 or 1e-100 < peak < 1e100:
        return matrix, 1.0
    scale = 2.0 ** max(np.frexp(peak)[1], -1021)
    return matrix / scale, scale


def absolute_sum(matrix: Matrix) -> float:
    """Sum of absolute entries of an array that is contiguous in either order, without a temporary copy."""
    return float(blas.dasum(matrix.ravel(order="K")))


def _singular_values(matrix: Matrix) -> tuple[Matrix, str]:
    rows, cols = matrix.shape
    gram = matrix @ matrix.T if rows <= cols else matrix.T @ matrix
    eigenvalues = np.linalg.eigvalsh(gram)[::-1]
    if eigenvalues[-1] > GRAM_LIMIT**2 * eigenvalues[0]:
        return np.sqrt(eigenvalues), "gram"
    del gram
    return svdvals(matrix, check_finite=False), "svd"
