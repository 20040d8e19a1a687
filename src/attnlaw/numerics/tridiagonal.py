"""Eigenvalues of a symmetric tridiagonal matrix, while other threads go on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from attnlaw.numerics import openblas

Values = NDArray[np.float64]


def tridiagonal_eigenvalues(diagonal: Values, off_diagonal: Values) -> Values:
    """All eigenvalues, ascending, by LAPACK's `dsterf`; to the same bits whoever calls it.

    >>> tridiagonal_eigenvalues(np.array([2.0, 2.0]), np.array([1.0])).round(12)
    array([1., 3.])
    """
    library = openblas.library()
    if library is None:
        return np.asarray(eigvalsh_tridiagonal(diagonal, off_diagonal, lapack_driver="sterf"))
    values, work = np.array(diagonal, dtype=np.float64), np.array(off_diagonal, dtype=np.float64)
    openblas.lapack(library, "dsterf", values.size, values, work)
    return values
