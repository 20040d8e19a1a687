"""Half of a Gram matrix, added to, while other threads go on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

from attnlaw.numerics import openblas


def add_gram(wide: NDArray[Any], gram: NDArray[Any]) -> None:
    """Add W W^T to the lower triangle of a matrix in Fortran's order, of the same type.

    >>> gram = np.zeros((2, 2), order="F")
    >>> add_gram(np.array([[1.0, 2.0], [3.0, 4.0]]), gram)
    >>> gram
    array([[ 5.,  0.],
           [11., 25.]])
    """
    library = openblas.library()
    by_columns = wide.flags.f_contiguous
    laid = wide if by_columns else np.ascontiguousarray(wide).T  # in Fortran's order, both
    if library is None:
        (update,) = get_blas_funcs(("syrk",), dtype=gram.dtype)
        gram[...] = update(1.0, laid, 1.0, gram, not by_columns, lower=1, overwrite_c=1)
        return
    size, inner = wide.shape
    one, letter = np.ones(1, gram.dtype), openblas.LETTERS[gram.dtype.name]
    way = b"N" if by_columns else b"T"
    openblas.blas(library, f"{letter}syrk", b"L", way, size, inner, one, laid, laid.shape[0], one, gram, size)
