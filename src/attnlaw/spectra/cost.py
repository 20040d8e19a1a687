"""What a measurement will cost: floating-point operations of each factorisation, over a measured rate."""

from __future__ import annotations

from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from attnlaw.spectra.lanczos import DEFLATED, LEADING_STEPS, POWER_STEPS, PROBES, STEPS

# Operations that do not run at the rate of a matrix product, as multiples of those that do (measured at 4096
# x 11008): the symmetric eigenproblem, and products with few columns, which wait for memory.
EIGENPROBLEM = 1.6
NARROW = 1.5


def matrix_operations(rows: int, cols: int, approximate: bool) -> float:
    """Operations for the spectrum of one matrix, in units of a large matrix product's.

    >>> matrix_operations(8192, 28672, True) < 0.5 * matrix_operations(8192, 28672, False)
    True
    """
    short, long = min(rows, cols), max(rows, cols)
    if not approximate:
        return short**2 * long + EIGENPROBLEM * short**3
    wide = (2 + POWER_STEPS + LEADING_STEPS) * DEFLATED
    return 4.0 * short * long * (wide + NARROW * STEPS * (PROBES + 1))


def product_operations(rows: int, inner: int, cols: int) -> float:
    """Operations for the spectrum of a product of thin factors; its (1,1) norm needs every entry.

    Its factors are made triangular twice: as stored, and as applied.
    """
    return 2.0 * rows * inner * cols + 8.0 * inner**2 * (rows + cols)


def operations_per_second() -> float:
    """The rate of a product of matrices on one thread, measured in a few hundredths of a second."""
    matrix = np.full((768, 768), 0.5)
    with threadpool_limits(1):
        matrix @ matrix
        start = perf_counter()
        matrix @ matrix
        return 2 * 768**3 / (perf_counter() - start)
