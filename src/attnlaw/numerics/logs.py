"""Computations with logarithms: sums of numbers that are given as logarithms, and exponents of power laws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LN10 = float(np.log(10.0))


def log_sums(logs: NDArray[np.float64], counts: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the logarithm of the sum of `counts` * exp(`logs`) along the last axis.

    >>> log_sums(np.array([[0.0, -np.inf], [-np.inf, -np.inf], [1000.0, 1000.0]]))
    array([   0.        ,         -inf, 1000.69314718])
    """
    peak = logs.max(axis=-1, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        terms = np.exp(logs - peak) if counts is None else counts * np.exp(logs - peak)
        total: NDArray[np.float64] = np.log(terms.sum(axis=-1)) + peak[..., 0]
    return total


def log_sum(logs: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the logarithm of the sum of exp(`logs`) over all entries."""
    return float(log_sums(np.asarray(logs, dtype=np.float64)))


def fit_exponent(ratios: Sequence[float], errors: Sequence[float]) -> tuple[float, float | None]:
    """Return the least-squares slope of log error over log ratio, and its standard error.

    The standard error is None if there are fewer than three points.
    """
    x, y = np.log(np.asarray(ratios, dtype=float)), np.log(np.asarray(errors, dtype=float))
    centred = x - x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ y / spread)
    if x.size < 3:
        return slope, None
    rest = y - y.mean() - slope * centred
    return slope, float(np.sqrt(rest @ rest / (x.size - 2) / spread))
