"""Singular values of a matrix in memory, from its Gram matrix, or by SVD if that is not precise enough.

The eigenvalues of M^T M have an absolute error e s_1^2, with e at most 0.5 eps sqrt(n) for n = min(rows,
cols). A singular value s then has the error e s_1^2 / (2 s). While the smallest value is above 2e-3 s_1,
every value of a matrix up to n = 4096 has an absolute error below 1e-12 s_1 and a relative error below 1e-9.
If the smallest value is lower, attnlaw uses the SVD. If weights were stored in 16 bits or less, attnlaw tries
a float32 Gram matrix first (see `precision`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.blocks import NormFold
from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate
from attnlaw.numerics.lapack import singular_values
from attnlaw.numerics.symmetric import add_gram, symmetric_eigenvalues
from attnlaw.spectra.precision import CONSTANT, EPS, FLOAT32, FLOAT64, least_ratio, power_scaled
from attnlaw.spectra.spectrum import BLOCK, Applied, Spectrum, applied_matrix

GRAM_LIMIT = 2e-3
# Entries of a slab that is converted to the precision of the Gram matrix: 32 MB at most.
SLAB = 2**22


def matrix_spectrum(matrix: Reals, fold: NormFold | None = None, rounding: float | None = None) -> Spectrum:
    """Compute the spectrum of a matrix: all min(rows, cols) singular values and several norms.

    Args:
        matrix: the matrix, rows x cols.
        fold: the norm layer before the matrix. If given, the spectrum also describes the product of norm and
            matrix.
        rounding: relative error with which the entries were stored (see `precision`). None requires float64.

    Raises:
        OverflowError: if a norm of the matrix exceeds float64.

    >>> matrix_spectrum(np.array([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])).values
    array([4., 3.])
    """
    scaled, scale = power_scaled(matrix)
    float32_result = None if rounding is None else _in_float32(scaled, fold, rounding)
    values, applied, route, precision = float32_result or _in_float64(scaled, fold)
    shape, norms = (scaled.shape[0], scaled.shape[1]), entry_norms(scaled)
    spectrum = Spectrum(values, shape, *norms, route, applied=applied, precision=precision)
    return rescale_spectrum(spectrum, scale)


SingularValueResult = tuple[Reals, Applied | None, str, str]


def _in_float32(matrix: Reals, fold: NormFold | None, rounding: float) -> SingularValueResult | None:
    """Return the singular values computed in float32; None if that adds more error than storing did."""
    eigenvalues, applied = _eigenvalues(matrix, fold, np.dtype(np.float32))
    least = least_ratio(eigenvalues.clip(0.0), (matrix.shape[0], matrix.shape[1]), rounding)
    if eigenvalues[-1] <= least**2 * eigenvalues[0]:
        return None
    if applied is not None and fold is not None and applied.spectral.value > 0:
        # The fold multiplies the error of the Gram matrix from both sides.
        off = CONSTANT * EPS * float(eigenvalues[0]) * float(np.abs(fold.gain).max()) ** 2
        top, error = applied.spectral.value, applied.spectral.error or 0.0
        applied = replace(applied, spectral=Estimate(top, error + off / (2 * top)))
    return np.sqrt(eigenvalues), applied, "gram", FLOAT32


def _in_float64(matrix: Reals, fold: NormFold | None) -> SingularValueResult:
    eigenvalues, applied = _eigenvalues(matrix, fold, np.dtype(np.float64))
    if eigenvalues[-1] > GRAM_LIMIT**2 * eigenvalues[0]:
        return np.sqrt(eigenvalues), applied, "gram", FLOAT64
    return singular_values(matrix), applied, "svd", FLOAT64


def _eigenvalues(matrix: Reals, fold: NormFold | None, dtype: np.dtype[Any]) -> tuple[Reals, Applied | None]:
    """Return the eigenvalues of the smaller Gram matrix in descending order, and the sizes as applied."""
    rows, cols = matrix.shape
    gram = gram_matrix(matrix if rows <= cols else matrix.T, dtype)
    applied = None if fold is None else applied_matrix(matrix, fold, gram if rows <= cols else None)
    return symmetric_eigenvalues(gram)[::-1], applied


def gram_matrix(wide: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return W W^T for W = `wide` in a given precision. In float32, only its upper triangle is valid."""
    if wide.dtype == dtype == np.float64:
        return np.asarray(wide @ wide.T)
    size = wide.shape[0]
    step = wide.shape[1] if wide.dtype == dtype else max(1, SLAB // size)
    gram = np.zeros((size, size), dtype, order="F")
    for at in range(0, wide.shape[1], step):
        add_gram(wide[:, at : at + step].astype(dtype, copy=False), gram)
    if dtype == np.float64:
        for at in range(0, size, 512):  # BLAS computes one triangle only
            rows = slice(at, at + 512)
            block = gram[rows, rows]
            block += np.tril(block, -1).T
            gram[rows, at + 512 :] = gram[at + 512 :, rows].T
    return gram.T


def entry_norms(matrix: NDArray[Any]) -> tuple[float, float]:
    """Return the (2,1) norm and the (1,1) norm of a matrix, summed in float64."""
    if matrix.dtype == np.float64:
        return float(np.sqrt(np.einsum("ij,ij->j", matrix, matrix)).sum()), absolute_sum(matrix)
    norm_21, norm_11 = 0.0, 0.0
    step = max(1, BLOCK // matrix.shape[0])
    for at in range(0, matrix.shape[1], step):
        part = matrix[:, at : at + step].astype(np.float64)
        norm_21 += float(np.sqrt(np.einsum("ij,ij->j", part, part)).sum())
        norm_11 += float(np.abs(part, out=part).sum())
    return norm_21, norm_11


def rescale_spectrum(spectrum: Spectrum, scale: float) -> Spectrum:
    """Return the spectrum of `scale` times the matrix, or raise an `OverflowError` beyond float64."""
    if scale == 1:
        return spectrum
    norm_21, norm_11 = spectrum.norm_21 * scale, spectrum.norm_11 * scale
    # The (1,1) norm bounds the (2,1) norm, which bounds the nuclear norm, so no sum of values overflows.
    if not np.isfinite(norm_11):
        raise OverflowError("the sum of its absolute entries is too large for float64")
    multiplicities = spectrum.multiplicities
    if multiplicities is not None:
        lower, top_error = multiplicities.lower_values * scale, multiplicities.spectral_error * scale
        multiplicities = replace(multiplicities, lower_values=lower, spectral_error=top_error)
    applied = None if spectrum.applied is None else spectrum.applied.rescale(scale)
    error = None if spectrum.norm_11_error is None else spectrum.norm_11_error * scale
    values = replace(spectrum, values=spectrum.values * scale, multiplicities=multiplicities, applied=applied)
    return replace(values, norm_21=norm_21, norm_11=norm_11, norm_11_error=error)


def absolute_sum(matrix: Reals) -> float:
    """Return the sum of absolute entries of an array that is contiguous in either order.

    The result of BLAS would depend on the array's address in memory, so two runs could differ in the last
    digit.
    """
    entries = matrix.ravel(order="K")
    return sum(float(np.abs(entries[i : i + BLOCK]).sum()) for i in range(0, entries.size, BLOCK))
