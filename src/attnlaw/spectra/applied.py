"""Sizes of a map as the model applies it, C diag(g) M, without a second factorisation.

With B = C diag(g) the largest singular value of B M is the root of the largest eigenvalue of B M M^T B^T,
whose products with vectors are those of M M^T between two cheap ones. Its Frobenius norm is summed entry by
entry: the trace of that matrix would lose digits where C takes most of M off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from attnlaw.checkpoints.norms import NormFold
from attnlaw.core.estimate import Estimate
from attnlaw.spectra.krylov import largest_value
from attnlaw.spectra.scaling import power_scaled
from attnlaw.spectra.spectrum import Applied

# Entries folded at a time: 2 MB, which stays in a core's cache.
BLOCK = 2**18

Matrix = NDArray[np.float64]


def applied_matrix(matrix: Matrix, fold: NormFold, gram: Matrix | None = None) -> Applied:
    """The spectral norm with its error and the Frobenius norm of a folded matrix, of `power_scaled` entries.

    `gram` is M M^T where it is there anyway (of float32 its upper triangle is enough); without it products go
    through M twice, in the precision of M.

    >>> folded = applied_matrix(np.array([[3.0, 0.0], [0.0, 4.0]]), NormFold(np.array([2.0, 1.0]), False))
    >>> round(folded.spectral.value, 9), round(folded.frobenius, 9)
    (6.0, 7.211102551)
    """
    gain, scale = power_scaled(fold.gain)
    frobenius = _frobenius(matrix, NormFold(gain, fold.centred))
    if frobenius == 0:
        return Applied(Estimate(0.0), 0.0)
    # The Frobenius norm about one, by a power of two: Lanczos squares what it meets.
    size = 2.0 ** int(np.frexp(frobenius)[1])
    unit = NormFold(gain / size, fold.centred)

    def product(block: Matrix) -> Matrix:
        inside = unit.transposed(block).astype((matrix if gram is None else gram).dtype, copy=False)
        return unit(matrix @ (matrix.T @ inside) if gram is None else _symmetric(gram, inside))

    spectral = largest_value(product, matrix.shape[0])
    return Applied(spectral, frobenius / size).rescale(size).rescale(scale)


def _symmetric(gram: NDArray[Any], vector: NDArray[Any]) -> NDArray[Any]:
    """The product with one column; of float32 from the upper triangle, which is half of what memory gives."""
    if gram.dtype == np.float64:
        return np.asarray(gram @ vector)
    return np.asarray(blas.ssymv(1.0, gram.T, vector[:, 0], lower=1))[:, None]


def _frobenius(matrix: Matrix, fold: NormFold) -> float:
    columns = max(1, BLOCK // matrix.shape[0])
    starts = range(0, matrix.shape[1], columns)
    # Float64 in one order, so that the sum does not depend on how the matrix lies in memory.
    float64 = matrix.dtype == np.float64
    blocks = (matrix[:, at : at + columns] for at in starts)
    parts = (fold(np.ascontiguousarray(part) if float64 else part.astype(np.float64)) for part in blocks)
    return float(np.sqrt(sum(float(np.einsum("ij,ij->", part, part)) for part in parts)))
