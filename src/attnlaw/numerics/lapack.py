"""Single routines of BLAS and LAPACK in float64, without the slow import of scipy.linalg.

If `openblas` is missing, SciPy's wrappers compute the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals
from attnlaw.numerics import openblas


def singular_values(matrix: Reals) -> Reals:
    """Return the singular values of a matrix in descending order."""
    library = openblas.library()
    if library is None or not matrix.size:
        return np.asarray(scipy.linalg.svdvals(matrix.astype(np.float64, copy=False), check_finite=False))
    (m, n), least = matrix.shape, min(matrix.shape)
    values, none, query = np.zeros(least), np.zeros(1), np.zeros(1)
    integers = np.zeros(8 * least, dtype=np.intc)
    entries = np.array(matrix, dtype=np.float64, order="F")
    job = b"N", m, n, entries, m, values, none, 1, none, 1
    openblas.lapack(library, "dgesdd", *job, query, -1, integers)
    work = np.zeros(int(query[0]))
    openblas.lapack(library, "dgesdd", *job, work, work.size, integers)
    return values


def cholesky_factor(gram: Reals) -> Reals | None:
    """Return the upper triangular R with R^T R = `gram`, or None if `gram` is not positive definite."""
    library = openblas.library()
    if library is None:
        root, failed = scipy.linalg.lapack.dpotrf(gram)
        return None if failed else root
    root, status = np.array(gram, dtype=np.float64, order="F"), np.zeros(1, dtype=np.intc)
    openblas.blas(library, "dpotrf", b"U", len(root), root, len(root), status)
    return None if status[0] else np.asfortranarray(np.triu(root))


def triangular_condition(root: Reals) -> float:
    """Estimate the inverse of the condition number of an upper triangular matrix, in the 1-norm."""
    library = openblas.library()
    if library is None:
        return float(scipy.linalg.lapack.dtrcon(root)[0])
    n, inverse, status = len(root), np.zeros(1), np.zeros(1, dtype=np.intc)
    work = np.zeros(3 * n), np.zeros(n, dtype=np.intc)
    entries = np.asfortranarray(root, dtype=np.float64)
    openblas.blas(library, "dtrcon", b"1", b"U", b"N", n, entries, n, inverse, *work, status)
    return float(inverse[0])


def symmetric_product(gram: NDArray[Any], vector: NDArray[Any]) -> NDArray[Any]:
    """Multiply a symmetric matrix (C order) by a vector. Only the upper triangle of the matrix is read."""
    library = openblas.library()
    if library is None:
        multiply = scipy.linalg.blas.dsymv if gram.dtype == np.float64 else scipy.linalg.blas.ssymv
        return np.asarray(multiply(1.0, gram.T, vector, lower=1))
    entries, product = np.asfortranarray(gram.T), np.zeros(len(gram), gram.dtype)
    factor, start = np.ones(1, gram.dtype), np.zeros(1, gram.dtype)
    column = np.ascontiguousarray(vector, dtype=gram.dtype)
    name = f"{openblas.LETTERS[gram.dtype.name]}symv"
    openblas.blas(library, name, b"L", len(gram), factor, entries, len(gram), column, 1, start, product, 1)
    return product
