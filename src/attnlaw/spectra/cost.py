"""Estimates of how long a measurement takes: the number of operations divided by a measured rate."""

from __future__ import annotations

from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from attnlaw.spectra.approximate import DEFLATED, LEADING_STEPS, POWER_STEPS, PROBES, STEPS
from attnlaw.spectra.factored import COLUMNS

# Cost of other operations in units of a float64 matrix product (measured at 4096 x 11008): the symmetric
# eigenproblem, everything in float32, and products with few columns, which wait for memory.
EIGENPROBLEM = 4.4
SINGLE = 0.55
NARROW = 4.6


def matrix_operations(rows: int, cols: int, approximate: bool, single: bool = False) -> float:
    """Return the cost of a matrix's spectrum, as a number of operations in a float64 matrix product."""
    short, long = min(rows, cols), max(rows, cols)
    if not approximate:
        return (SINGLE if single else 1.0) * (short**2 * long + EIGENPROBLEM * short**3)
    wide = (2 + POWER_STEPS + LEADING_STEPS) * DEFLATED
    return 4.0 * short * long * (wide + NARROW * STEPS * (PROBES + 1))


def product_operations(rows: int, inner: int, cols: int, every: bool = True) -> float:
    """Return the cost of the spectrum of a product of thin factors, as a number of operations.

    If `every` is true, the (1,1) norm is a sum over all entries instead of a sample.
    """
    formed = cols if every else min(COLUMNS, cols)
    return 2.0 * rows * inner * formed + 8.0 * inner**2 * (rows + cols)


def operations_per_second() -> float:
    """Measure how many operations per second a matrix product does on one thread."""
    matrix = np.full((768, 768), 0.5)
    with threadpool_limits(1):
        matrix @ matrix
        start = perf_counter()
        matrix @ matrix
        return 2 * 768**3 / (perf_counter() - start)
