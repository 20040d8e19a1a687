"""Eigenvalues of a large symmetric matrix: dense to band, band to tridiagonal, both by blocks.

One-stage tridiagonalisation spends half of its operations in matrix-vector products, which wait for memory.
LAPACK's `?sytrd_sy2sb` and `?sytrd_sb2st` reduce to a band of width `BANDS` first, all in matrix products,
then chase the band away. Where they are not there (see `openblas`), one stage answers.

Of a float32 matrix the reduction is float32, which is nearly all the work, and the tridiagonal's eigenvalues
are found in float64: `ssterf` itself was off by 20 to 270 eps |A| (512 to 4096 rows), the reduction by 3.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from attnlaw.numerics import openblas
from attnlaw.numerics.tridiagonal import tridiagonal_eigenvalues

# Rows from which two stages are faster than one (measured on one core), and the width of the band between.
LARGE = 1536
BANDS = {"float32": 64, "float64": 48}

Values = NDArray[np.float64]


def symmetric_eigenvalues(matrix: NDArray[Any]) -> Values:
    """All eigenvalues, ascending, of a float32 or float64 matrix, which may be overwritten.

    Each is right to about eps |A| of the matrix's own precision. Of float32 the upper triangle alone is read.

    >>> symmetric_eigenvalues(np.array([[2.0, 1.0], [1.0, 2.0]])).round(12)
    array([1., 3.])
    """
    library = openblas.library()
    if library is not None and len(matrix) >= LARGE:
        return _float64_eigenvalues(*_two_stages(library, matrix))
    if matrix.dtype == np.float64:
        return np.asarray(np.linalg.eigvalsh(matrix))
    # numpy would find the eigenvalues of a float32 matrix in float64 from the start.
    return _float64_eigenvalues(*_one_stage(library, matrix))


Tridiagonal = tuple[NDArray[Any], NDArray[Any]]


def _float64_eigenvalues(diagonal: NDArray[Any], off_diagonal: NDArray[Any]) -> Values:
    return tridiagonal_eigenvalues(diagonal.astype(np.float64), off_diagonal.astype(np.float64))


def _one_stage(library: ctypes.CDLL | None, matrix: NDArray[Any]) -> Tridiagonal:
    transpose = np.asarray(matrix.T, order="F")
    n = len(transpose)
    work = np.zeros(int(lapack.ssytrd_lwork(n, lower=1)[0]), transpose.dtype)
    if library is None:
        _, diagonal, beside, _, _ = lapack.ssytrd(transpose, lower=1, lwork=work.size, overwrite_a=1)
        return diagonal, beside[: n - 1]
    diagonal, beside, tau = (np.zeros(n, transpose.dtype) for _ in range(3))
    openblas.lapack(library, "ssytrd", b"L", n, transpose, n, diagonal, beside, tau, work, work.size)
    return diagonal, beside[: n - 1]


def _two_stages(library: ctypes.CDLL, matrix: NDArray[Any]) -> Tridiagonal:
    transpose = np.asarray(matrix.T, order="F")  # what Fortran takes, and no copy of rows that lie together
    n, letter, band = len(transpose), openblas.LETTERS[transpose.dtype.name], BANDS[transpose.dtype.name]

    def zeros(*shape: int) -> NDArray[Any]:
        return np.zeros(shape, dtype=transpose.dtype)

    banded, asked = zeros(n, band + 1), zeros(1)
    first = f"{letter}sytrd_sy2sb", b"L", n, band, transpose, n, banded, band + 1, zeros(n)
    openblas.lapack(library, *first, asked, -1)
    work = zeros(int(asked[0]))
    openblas.lapack(library, *first, work, work.size)

    diagonal, beside, reflectors = zeros(n), zeros(n), zeros(1)
    second = f"{letter}sytrd_sb2st", b"Y", b"N", b"L", n, band, banded, band + 1, diagonal, beside
    openblas.lapack(library, *second, reflectors, -1, asked, -1)
    reflectors, work = zeros(int(reflectors[0])), zeros(int(asked[0]))
    openblas.lapack(library, *second, reflectors, reflectors.size, work, work.size)
    return diagonal, beside[: n - 1]
