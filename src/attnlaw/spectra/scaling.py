"""Powers of two that keep squares of entries within float64: exact, and undone in the end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.errors import InputError

Matrix = NDArray[np.float64]


def power_scaled(matrix: Matrix) -> tuple[Matrix, float]:
    """The matrix over a power of two (exact), and that power; ordinary matrices come back as they are.

    Squares of the result, and of a product of two such results, stay in range: of float64, or of float32 if
    the matrix is such and comes back so.
    """
    if matrix.size == 0:
        raise InputError(f"a matrix of shape {list(matrix.shape)}: expected at least one entry; leave it out")
    peak = max(float(matrix.max()), -float(matrix.min()))
    if not np.isfinite(peak):
        raise InputError("a matrix with NaN or infinite entries; use weights from before training diverged")
    usual = 1e70 if matrix.dtype == np.float64 else 1e8
    if peak == 0 or 1 / usual < peak < usual:
        return matrix, 1.0
    scale = 2.0 ** min(max(int(np.frexp(peak)[1]), -1021), 1023)
    return matrix / np.float64(scale), scale
