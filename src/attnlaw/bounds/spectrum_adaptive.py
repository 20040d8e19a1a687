"""Spectrum-adaptive proxies: the Schatten index of every matrix chosen after training.

Paper: M. Sakai, M. Imaizumi, arXiv 2605.07297. The contribution of one matrix at index p in [0, 2] is

    C(p) = (sum_i s_i^p)^(1/(p+2)) * scale^(p/(p+2)) * N^((p+1)/(p+2)),    scale = gamma alpha L,

with the numerical rank in place of the sum at p = 0; the proxy is `sum over matrices of min_p C(p)
+ sqrt(L)`. It is the leading factor of a bound: no constants, no logarithms, not a guarantee.

ln C(p) = f(p) / (p + 2) with f convex (a log-sum-exp plus a linear function), so C has one valley:
{p : f(p) <= t (p + 2)} is convex for every t. Its bottom is where f'(p)(p + 2) - f(p), which increases,
changes sign; the continuous choice below is therefore the global minimiser.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from attnlaw.bounds.factors import MatrixFactors
from attnlaw.numerics.logs import log_sum, log_sums
from attnlaw.spectra.spectrum import Spectrum


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one matrix adds: ln C on the grid, the best index on the grid and over all of [0, 2].

    `log_error` is the error of `log_value` where the spectrum is approximate, else None.
    """

    factors: MatrixFactors
    log_scale: float
    log_curve: NDArray[np.float64]
    p: float
    log_value: float
    continuous_p: float
    continuous_log_value: float
    log_error: float | None


def index_grid(depth: int, hidden_size: int) -> NDArray[np.float64]:
    """The paper's grid {0, 1/m, ..., 2} with m = ceil(L + ln N).

    >>> index_grid(depth=1, hidden_size=2)
    array([0. , 0.5, 1. , 1.5, 2. ])
    """
    m = ceil(depth + log(hidden_size))
    return np.arange(2 * m + 1) / m


def contribution(factors: MatrixFactors, depth: int, hidden_size: int) -> Contribution:
    """C(p) of one matrix on the grid, with the post hoc choice of p on it and over continuous p."""
    grid = index_grid(depth, hidden_size)
    log_scale = factors.log_gamma + factors.log_alpha + log(depth)
    curve = log_contribution(grid, factors.spectrum, log_scale, hidden_size)
    best = int(np.argmin(curve))
    p = _valley(factors.spectrum, log_scale, hidden_size)
    at_p = float(log_contribution(np.array([p]), factors.spectrum, log_scale, hidden_size)[0])
    error = factors.spectrum.error(
        lambda spectrum: float(log_contribution(grid[best : best + 1], spectrum, log_scale, hidden_size)[0])
    )
    return Contribution(factors, log_scale, curve, float(grid[best]), float(curve[best]), p, at_p, error)


def log_contribution(
    p: NDArray[np.float64], spectrum: Spectrum, log_scale: float, hidden_size: int
) -> NDArray[np.float64]:
    """ln C at every index in `p`; -inf where C is zero (a zero matrix, or scale 0 and p > 0)."""
    log_values = np.log(spectrum.above_tolerance)
    if log_values.size == 0:
        return np.full(p.shape, -np.inf)
    powers = log_sums(np.multiply.outer(p, log_values), spectrum.counts_above_tolerance)
    # p ln(scale) with 0 * -inf = 0: at p = 0 the scale plays no part.
    scaled = np.multiply(p, log_scale, out=np.zeros_like(p), where=p > 0)
    return np.asarray((powers + scaled + (p + 1) * log(hidden_size)) / (p + 2))


def proxy(log_contributions: NDArray[np.float64], depth: int) -> float:
    """ln of (the sum of contributions + sqrt(L))."""
    return float(np.logaddexp(log_sum(log_contributions), log(sqrt(depth))))


def value_of_adaptivity(curves: NDArray[np.float64], log_values: NDArray[np.float64]) -> float | None:
    """The smallest sum over matrices with one common p, over the post hoc sum; 1 means no gain.

    `curves` is (matrices, grid). None where every contribution is zero.
    """
    total = log_sum(log_values)
    if total == -np.inf:
        return None
    # At least 1 by definition; two orders of summation may differ in the last digit.
    return max(1.0, float(np.exp(np.min(log_sums(curves.T)) - total)))


def _valley(spectrum: Spectrum, log_scale: float, hidden_size: int) -> float:
    """The minimiser of C over [0, 2], by the sign of f'(p)(p + 2) - f(p)."""
    log_values, counts = np.log(spectrum.above_tolerance), spectrum.counts_above_tolerance
    if log_values.size == 0:
        return 0.0
    if log_scale == -np.inf:
        return 2.0

    def slope(p: float) -> float:
        powers = p * log_values
        weights = counts * np.exp(powers - powers.max())
        mean = float(np.sum(weights * log_values) / weights.sum())
        f = float(log_sums(powers, counts)) + p * log_scale + (p + 1) * log(hidden_size)
        return (mean + log_scale + log(hidden_size)) * (p + 2) - f

    if slope(0.0) >= 0:
        return 0.0
    if slope(2.0) <= 0:
        return 2.0
    return float(brentq(slope, 0.0, 2.0, xtol=1e-12))
