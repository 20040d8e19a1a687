"""Singular values of a matrix that is held whole: a float64 Gram matrix, or the SVD where that is too coarse.

The eigenvalues of M^T M carry an absolute error e s_1^2, where e was at most 0.5 eps sqrt(n) over many
spectra and sizes n = min(rows, cols); a singular value s then carries e s_1^2 / (2 s). While the smallest
one stays above 2e-3 s_1, every value of a matrix up to n = 4096 is right to 1e-12 s_1 and to 1e-9 of
itself; below that the SVD is used.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svdvals

from attnlaw.models.norms import Fold
from attnlaw.numerics.two_stage import symmetric_eigenvalues
from attnlaw.spectra.applied import applied_matrix
from attnlaw.spectra.scaling import power_scaled
from attnlaw.spectra.spectrum import Spectrum

GRAM_LIMIT = 2e-3
# Entries worked on at a time where a copy is needed: 2 MB, which stays in a core's cache.
BLOCK = 2**18

Matrix = NDArray[np.float64]


def matrix_spectrum(matrix: Matrix, fold: Fold | None = None) -> Spectrum:
    """The spectrum of a float64 matrix; all min(rows, cols) singular values.

    With `fold` its sizes as applied stand beside them. Raises OverflowError where a norm of the matrix
    exceeds float64.

    >>> matrix_spectrum(np.array([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])).values
    array([4., 3.])
    """
    scaled, scale = power_scaled(matrix)
    rows, cols = scaled.shape
    gram = scaled @ scaled.T if rows <= cols else scaled.T @ scaled
    applied = None if fold is None else applied_matrix(scaled, fold, gram if rows <= cols else None)
    eigenvalues = symmetric_eigenvalues(gram)[::-1]
    del gram
    values, route = _singular_values(scaled, eigenvalues)
    norm_21, norm_11 = entry_norms(scaled)
    return rescaled(Spectrum(values, (rows, cols), norm_21, norm_11, route, applied=applied), scale)


def entry_norms(matrix: Matrix) -> tuple[float, float]:
    """The (2,1) and the (1,1) norm."""
    return float(np.sqrt(np.einsum("ij,ij->j", matrix, matrix)).sum()), absolute_sum(matrix)


def rescaled(spectrum: Spectrum, scale: float) -> Spectrum:
    """The spectrum of the matrix times `scale`."""
    if scale == 1:
        return spectrum
    norm_21, norm_11 = spectrum.norm_21 * scale, spectrum.norm_11 * scale
    # The (1,1) norm bounds the (2,1) norm, and that the nuclear norm: no sum of values overflows.
    if not np.isfinite(norm_11):
        raise OverflowError("the sum of its absolute entries exceeds float64")
    own = spectrum.multiplicities
    if own is not None:
        own = replace(own, lower_values=own.lower_values * scale, spectral_error=own.spectral_error * scale)
    return replace(
        spectrum,
        values=spectrum.values * scale,
        norm_21=norm_21,
        norm_11=norm_11,
        multiplicities=own,
        applied=None if spectrum.applied is None else spectrum.applied.rescaled(scale),
    )


def absolute_sum(matrix: Matrix) -> float:
    """Sum of absolute entries of an array that is contiguous in either order, in blocks.

    Not BLAS: its sum depends on where the array lies in memory, so two runs could differ in a last digit.
    """
    entries = matrix.ravel(order="K")
    return sum(float(np.abs(entries[i : i + BLOCK]).sum()) for i in range(0, entries.size, BLOCK))


def _singular_values(matrix: Matrix, eigenvalues: Matrix) -> tuple[Matrix, str]:
    """From the Gram matrix's eigenvalues, descending, where they are fine enough, and the route taken."""
    if eigenvalues[-1] > GRAM_LIMIT**2 * eigenvalues[0]:
        return np.sqrt(eigenvalues), "gram"
    return svdvals(matrix, check_finite=False), "svd"
