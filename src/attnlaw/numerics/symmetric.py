"""Eigenvalues and Gram matrices of large matrices, computed without blocking other threads.

LAPACK's `?sytrd_sy2sb` and `?sytrd_sb2st` first reduce the matrix to a band of width `BANDS`, all in matrix
products, and then reduce the band to a tridiagonal. If these routines are missing (see `openblas`), one stage
computes the same numbers. A float32 matrix is reduced in float32, which is nearly all the work. The
eigenvalues of its tridiagonal are computed in float64: `ssterf` itself was off by 20 to 270 eps |A| (512 to
4096 rows), the reduction by 3.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals
from attnlaw.numerics import openblas


def tridiagonal_eigenvalues(diagonal: Reals, off_diagonal: Reals) -> Reals:
    """Return all eigenvalues of a symmetric tridiagonal matrix in ascending order (LAPACK `dsterf`)."""
    library = openblas.library()
    if library is None:
        return np.asarray(scipy.linalg.eigvalsh_tridiagonal(diagonal, off_diagonal, lapack_driver="sterf"))
    values, work = np.array(diagonal, dtype=np.float64), np.array(off_diagonal, dtype=np.float64)
    openblas.lapack(library, "dsterf", values.size, values, work)
    return values


# Rows whose negative pivots are counted in 8 bits before they are added up.
FLUSH = 100


def count_eigenvalues_below(diagonal: Reals, off_diagonal: Reals, points: Reals) -> NDArray[np.int32]:
    """Count the eigenvalues of symmetric tridiagonal matrices below each of their points.

    The count is the number of negative pivots of T - x for a point x (Sturm). A pivot of 0 makes the next one
    infinite, and the count is still right. `off_diagonal` (matrices, n - 1) must not contain 0.

    >>> count_eigenvalues_below(np.array([[2.0, 2.0]]), np.array([[1.0]]), np.array([0.0, 2.0, 4.0]))
    array([[0, 1, 2]], dtype=int32)
    """
    squares = off_diagonal**2
    pivots = diagonal[:, 0, None] - points
    counts, recent = np.zeros(pivots.shape, np.int32), (pivots < 0).view(np.int8)
    negative = np.empty(pivots.shape, bool)
    with np.errstate(divide="ignore", over="ignore"):
        for row in range(1, diagonal.shape[1]):
            np.divide(squares[:, row - 1, None], pivots, out=pivots)
            pivots += points
            np.subtract(diagonal[:, row, None], pivots, out=pivots)
            np.less(pivots, 0, out=negative)
            recent += negative.view(np.int8)
            if row % FLUSH == 0:
                counts += recent
                recent[...] = 0
    return np.asarray(counts + recent)


# Two stages are faster than one from this many rows (measured on one core). The band between has this width.
LARGE = 1536
BANDS = {"float32": 64, "float64": 48}


def symmetric_eigenvalues(matrix: NDArray[Any]) -> Reals:
    """Return all eigenvalues of a symmetric float32 or float64 matrix in ascending order.

    The matrix may be overwritten. Each eigenvalue has an error of about eps |A|, with eps of the matrix's
    type. Only the upper triangle of a float32 matrix is read.
    """
    library = openblas.library()
    if library is None and matrix.dtype == np.float64:
        return np.asarray(np.linalg.eigvalsh(matrix))
    # NumPy would convert a float32 matrix to float64 first, and it copies matrices.
    if library is not None and len(matrix) >= LARGE:
        return _float64_eigenvalues(*_two_stages(library, matrix))
    return _float64_eigenvalues(*_one_stage(library, matrix))


Tridiagonal = tuple[NDArray[Any], NDArray[Any]]


def _float64_eigenvalues(diagonal: NDArray[Any], off_diagonal: NDArray[Any]) -> Reals:
    return tridiagonal_eigenvalues(diagonal.astype(np.float64), off_diagonal.astype(np.float64))


def _one_stage(library: ctypes.CDLL | None, matrix: NDArray[Any]) -> Tridiagonal:
    transpose = np.asarray(matrix.T, order="F")
    n, letter = len(transpose), openblas.LETTERS[transpose.dtype.name]
    if library is None:
        size = int(scipy.linalg.lapack.ssytrd_lwork(n, lower=1)[0])
        result = scipy.linalg.lapack.ssytrd(transpose, lower=1, lwork=size, overwrite_a=1)
        _, diagonal, off_diagonal, _, _ = result
    else:
        diagonal, off_diagonal, tau, query = (np.zeros(n, transpose.dtype) for _ in range(4))
        routine = f"{letter}sytrd", b"L", n, transpose, n, diagonal, off_diagonal, tau
        openblas.lapack(library, *routine, query, -1)
        work = np.zeros(int(query[0]), transpose.dtype)
        openblas.lapack(library, *routine, work, work.size)
    return diagonal, off_diagonal[: n - 1]


def _two_stages(library: ctypes.CDLL, matrix: NDArray[Any]) -> Tridiagonal:
    transpose = np.asarray(matrix.T, order="F")  # Fortran order, without a copy if rows are contiguous
    n, letter, band = len(transpose), openblas.LETTERS[transpose.dtype.name], BANDS[transpose.dtype.name]

    def zeros(*shape: int) -> NDArray[Any]:
        return np.zeros(shape, dtype=transpose.dtype)

    banded, query = zeros(n, band + 1), zeros(1)
    first = f"{letter}sytrd_sy2sb", b"L", n, band, transpose, n, banded, band + 1, zeros(n)
    openblas.lapack(library, *first, query, -1)
    work = zeros(int(query[0]))
    openblas.lapack(library, *first, work, work.size)

    diagonal, off_diagonal, reflectors = zeros(n), zeros(n), zeros(1)
    second = f"{letter}sytrd_sb2st", b"Y", b"N", b"L", n, band, banded, band + 1, diagonal, off_diagonal
    openblas.lapack(library, *second, reflectors, -1, query, -1)
    reflectors, work = zeros(int(reflectors[0])), zeros(int(query[0]))
    openblas.lapack(library, *second, reflectors, reflectors.size, work, work.size)
    return diagonal, off_diagonal[: n - 1]


def add_gram(wide: NDArray[Any], gram: NDArray[Any]) -> None:
    """Add W W^T to the lower triangle of `gram`, a Fortran-ordered array of the same type as W."""
    library = openblas.library()
    by_columns = wide.flags.f_contiguous
    columns = wide if by_columns else np.ascontiguousarray(wide).T  # both are in Fortran order
    if library is None:
        (update,) = scipy.linalg.get_blas_funcs(("syrk",), dtype=gram.dtype)
        gram[...] = update(1.0, columns, 1.0, gram, not by_columns, lower=1, overwrite_c=1)
        return
    size, inner = wide.shape
    one, letter = np.ones(1, gram.dtype), openblas.LETTERS[gram.dtype.name]
    routine = f"{letter}syrk", b"L", b"N" if by_columns else b"T"
    openblas.blas(library, *routine, size, inner, one, columns, columns.shape[0], one, gram, size)
