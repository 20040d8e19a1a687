"""Eigenvalues of a large symmetric matrix: dense to band, band to tridiagonal, both by blocks.

One-stage tridiagonalisation spends half of its operations in matrix-vector products, which wait for memory.
LAPACK's `?sytrd_sy2sb` and `?sytrd_sb2st` reduce to a band of width `BANDS` first, all in matrix products,
then chase the band away. scipy has no call of them, but the OpenBLAS that its wheels bring exports them.
Where it is not there (other builds, other platforms), one stage answers.

Of a float32 matrix the reduction is float32, which is nearly all the work, and the tridiagonal's eigenvalues
are found in float64: `ssterf` itself was off by 20 to 270 eps |A| (512 to 4096 rows), the reduction by 3.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from threadpoolctl import threadpool_info

# Rows from which two stages are faster than one (measured on one core), and the width of the band between.
LARGE = 1536
BANDS = {"float32": 64, "float64": 48}
LETTERS = {"float32": "s", "float64": "d"}


Values = NDArray[np.float64]


def symmetric_eigenvalues(matrix: NDArray[Any]) -> Values:
    """All eigenvalues, ascending, of a float32 or float64 matrix, which may be overwritten.

    Each is right to about eps |A| of the matrix's own precision. Of float32 the upper triangle alone is read.

    >>> symmetric_eigenvalues(np.array([[2.0, 1.0], [1.0, 2.0]])).round(12)
    array([1., 3.])
    """
    library = _library() if len(matrix) >= LARGE else None
    if library is not None:
        return _two_stage(library, matrix)
    # numpy would find the eigenvalues of a float32 matrix in float64 from the start.
    return _one_stage_single(matrix) if matrix.dtype == np.float32 else np.asarray(np.linalg.eigvalsh(matrix))


def _one_stage_single(matrix: NDArray[Any]) -> Values:
    own = np.asarray(matrix.T, order="F")
    work = int(lapack.ssytrd_lwork(len(own), lower=1)[0])
    _, diagonal, below, _, _ = lapack.ssytrd(own, lower=1, lwork=work, overwrite_a=1)
    if len(own) == 1:
        return np.asarray(diagonal, dtype=np.float64)
    values, status = lapack.dsterf(diagonal.astype(np.float64), below.astype(np.float64))
    if status:
        raise np.linalg.LinAlgError(f"LAPACK's dsterf returned {status}")
    return np.asarray(values)


def _two_stage(library: ctypes.CDLL, matrix: NDArray[Any]) -> Values:
    own = np.asarray(matrix.T, order="F")  # what Fortran takes, and no copy of rows that lie together
    n, letter, band = len(own), LETTERS[own.dtype.name], BANDS[own.dtype.name]
    rows, width, stored = (_integer(size) for size in (n, band, band + 1))

    def call(name: str, *arguments: Any, letters: int = 0) -> None:
        status = ctypes.c_int(0)
        hidden = [ctypes.c_size_t(1)] * letters  # Fortran's lengths of its character arguments
        getattr(library, f"scipy_{name}_")(*arguments, ctypes.byref(status), *hidden)
        if status.value:
            raise np.linalg.LinAlgError(f"LAPACK's {name} returned {status.value}")

    def zeros(*shape: int) -> NDArray[Any]:
        return np.zeros(shape, dtype=own.dtype)

    banded, tau = zeros(n, band + 1), zeros(n)
    first = b"L", rows, width, _address(own), rows, _address(banded), stored, _address(tau)
    asked = zeros(1)
    call(f"{letter}sytrd_sy2sb", *first, _address(asked), _integer(-1), letters=1)
    work = zeros(int(asked[0]))
    call(f"{letter}sytrd_sy2sb", *first, _address(work), _integer(work.size), letters=1)

    diagonal, below = zeros(n), zeros(n)
    second = b"Y", b"N", b"L", rows, width, _address(banded), stored, _address(diagonal), _address(below)
    reflectors, asked = zeros(1), zeros(1)
    unknown = _integer(-1)
    call(f"{letter}sytrd_sb2st", *second, _address(reflectors), unknown, _address(asked), unknown, letters=3)
    reflectors, work = zeros(int(reflectors[0])), zeros(int(asked[0]))
    sizes = _integer(reflectors.size), _integer(work.size)
    call(f"{letter}sytrd_sb2st", *second, _address(reflectors), sizes[0], _address(work), sizes[1], letters=3)
    values, below = diagonal.astype(np.float64), below.astype(np.float64)
    call("dsterf", rows, _address(values), _address(below))
    return values


@cache
def _library() -> ctypes.CDLL | None:
    """scipy's own OpenBLAS, where it exports the two stages with 32-bit integers."""
    import scipy.linalg  # noqa: F401  (loads it)

    for one in threadpool_info():
        library = ctypes.CDLL(one["filepath"])
        if hasattr(library, "scipy_dsytrd_sb2st_"):
            return library
    return None


def _integer(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _address(array: NDArray[Any]) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)
