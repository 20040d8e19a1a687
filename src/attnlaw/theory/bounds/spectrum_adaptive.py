"""Spectrum-adaptive proxies: the Schatten index of every matrix chosen after training.

Paper: M. Sakai, M. Imaizumi, arXiv 2605.07297. The contribution of one matrix at index p in [0, 2] is

    C(p) = (sum_i s_i^p)^(1/(p+2)) * scale^(p/(p+2)) * N^((p+1)/(p+2)),    scale = gamma alpha L,

with the numerical rank in place of the sum at p = 0; the proxy is `sum over matrices of min_p C(p)
+ sqrt(L)`. It is the leading factor of a bound: no constants, no logarithms, not a guarantee.

ln C(p) = f(p) / (p + 2) with f convex (a log-sum-exp plus a linear function), so C has one valley:
{p : f(p) <= t (p + 2)} is convex for every t. Its bottom is where f'(p)(p + 2) - f(p), which increases,
changes sign; the continuous choice below is therefore the global minimiser.

The value of adaptivity: what one common Schatten index costs over the post hoc choice per matrix.

How many directions of a matrix count at a scale.

    B(M) = min_r max(sqrt(N r), N scale s_{r+1}) <= min_p C(p)        0 <= r <= rank, s_{rank+1} = 0

with C(p) of `spectrum_adaptive` (arXiv 2605.07297; this bound from below is ours). Proof: let v = C(p) and
t = v / (N scale). Of the s_i at most sum_i s_i^p / t^p = v^2 / N exceed t; with that many for r, both terms
are at most v. The smallest minimising r counts the effective directions: those below them move the output too
little at this scale to be worth their rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, log, sqrt

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.estimate import Estimate
from attnlaw.numerics.logs import log_sum, log_sums
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.factors import MatrixFactors
from attnlaw.theory.bounds.log_errors import LogError, combine_log_errors

MOST_STEPS = 60  # of Newton's method: as many halvings leave nothing of [0, 2]


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one matrix adds: ln C on the grid, the best index on the grid and over all of [0, 2].

    The errors are of `log_value`, of `continuous_log_value` and of ln C at p = 0, 1 and 2; None where both
    the spectrum and the scale are exact.
    """

    factors: MatrixFactors
    log_scale: float
    log_curve: NDArray[np.float64]
    p: float
    log_value: float
    continuous_p: float
    continuous_log_value: float
    log_error: LogError | None
    continuous_log_error: LogError | None
    fixed_log_errors: tuple[LogError | None, LogError | None, LogError | None]


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
    log_scale = factors.log_gamma.value + factors.log_alpha.value + log(depth)
    curve = log_contribution(grid, factors.spectrum, log_scale, hidden_size)
    best = int(np.argmin(curve))
    p = best_index(factors.spectrum, log_scale, hidden_size)

    def value(index: float, spectrum: Spectrum) -> float:
        return float(log_contribution(np.array([index]), spectrum, log_scale, hidden_size)[0])

    # A minimum errs as a minimum: with another spectrum within the errors another index may win.
    def grid_minimum(spectrum: Spectrum) -> float:
        return float(log_contribution(grid, spectrum, log_scale, hidden_size).min())

    def minimum(spectrum: Spectrum) -> float:
        return value(best_index(spectrum, log_scale, hidden_size), spectrum)

    return Contribution(
        factors=factors,
        log_scale=log_scale,
        log_curve=curve,
        p=float(grid[best]),
        log_value=float(curve[best]),
        continuous_p=p,
        continuous_log_value=value(p, factors.spectrum),
        log_error=_log_error(factors, float(grid[best]), grid_minimum),
        continuous_log_error=_log_error(factors, p, minimum),
        fixed_log_errors=(
            _log_error(factors, 0.0, partial(value, 0.0)),
            _log_error(factors, 1.0, partial(value, 1.0)),
            _log_error(factors, 2.0, partial(value, 2.0)),
        ),
    )


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


def _log_error(factors: MatrixFactors, p: float, value: Callable[[Spectrum], float]) -> LogError | None:
    """The error of a value ln C, taken at p: it is linear in ln(scale) with slope p / (p + 2)."""
    spectrum = factors.spectrum
    if spectrum.is_exact and factors.log_scale_error is None:
        return None
    bound = p / (p + 2) * (factors.log_scale_error or 0.0)
    if value(spectrum) == -np.inf:
        return LogError(0.0, bound)
    return LogError.of(spectrum, value, bound)


def best_index(spectrum: Spectrum, log_scale: float, hidden_size: int) -> float:
    """The minimiser of C over [0, 2]: the root of the increasing `f'(p)(p + 2) - f(p)`, by Newton's method.

    Its slope is `f''(p)(p + 2)`, f'' a variance of logarithms; the bracket halves where a step leaves it.
    """
    log_values, counts = np.log(spectrum.above_tolerance), spectrum.counts_above_tolerance
    if log_values.size == 0:
        return 0.0
    if log_scale == -np.inf:
        return 2.0

    def slope(p: float) -> tuple[float, float]:
        powers = p * log_values
        weights = counts * np.exp(powers - powers.max())
        weights /= weights.sum()
        mean = float(weights @ log_values)
        f = float(log_sums(powers, counts)) + p * log_scale + (p + 1) * log(hidden_size)
        variance = float(weights @ (log_values - mean) ** 2)
        return (mean + log_scale + log(hidden_size)) * (p + 2) - f, variance * (p + 2)

    low, high = 0.0, 2.0
    if slope(low)[0] >= 0:
        return low
    if slope(high)[0] <= 0:
        return high
    p = 1.0
    for _ in range(MOST_STEPS):
        value, rise = slope(p)
        low, high = (p, high) if value < 0 else (low, p)
        step = value / rise if rise > 0 else np.inf
        if abs(step) <= 1e-12:
            break
        p = p - step if low < p - step < high else (low + high) / 2
    return p


def value_of_adaptivity(
    contributions: Sequence[Contribution], depth: int, hidden_size: int
) -> Estimate | None:
    """The smallest sum over matrices with one common p, over the post hoc sum; 1 means no gain.

    None where every contribution is zero.
    """
    total = log_sum([part.log_value for part in contributions])
    if total == -np.inf:
        return None
    # At least 1 by definition; two orders of summation may differ in the last digit.
    value = max(1.0, float(np.exp(np.min(_log_sums_by_index(contributions)) - total)))
    if all(part.log_error is None for part in contributions):
        return Estimate(value)
    return Estimate(value, value * _adaptivity_log_error(contributions, depth, hidden_size))


def _adaptivity_log_error(parts: Sequence[Contribution], depth: int, hidden_size: int) -> float:
    """Of its logarithm where spectra are approximate: both sums err together, as their ratio does."""
    grid, curves = index_grid(depth, hidden_size), np.array([part.log_curve for part in parts])
    best = int(np.argmin(_log_sums_by_index(parts)))
    logs = np.array([[part.log_curve[best], part.log_value] for part in parts])
    weights = np.exp(logs - log_sums(logs.T)) * [1.0, -1.0]
    errors = []
    for number, (part, weight_pair) in enumerate(zip(parts, weights, strict=True)):
        p = np.array([grid[best], part.p])
        bound = abs(float(np.sum(weight_pair * p / (p + 2)))) * (part.factors.log_scale_error or 0.0)
        error = LogError(0.0, bound)
        if not part.factors.spectrum.is_exact and weight_pair.any():
            error = _log_error_of_matrix(part, np.delete(curves, number, axis=0), bound, grid, hidden_size)
        errors.append((part.factors.location, 1.0, error))
    return combine_log_errors(errors)


def _log_sums_by_index(parts: Sequence[Contribution]) -> NDArray[np.float64]:
    """ln of the sum over matrices at each index of the grid."""
    return log_sums(np.array([part.log_curve for part in parts]).T)


def _log_error_of_matrix(
    part: Contribution,
    others: NDArray[np.float64],
    bound: float,
    grid: NDArray[np.float64],
    hidden_size: int,
) -> LogError:
    """Of ln(value of adaptivity) as the spectrum of one matrix varies beside the curves of the others."""
    common = log_sums(others.T) if len(others) else np.full(grid.shape, -np.inf)
    post_hoc = log_sum(others.min(axis=1)) if len(others) else -np.inf

    def value(spectrum: Spectrum) -> float:
        curve = log_contribution(grid, spectrum, part.log_scale, hidden_size)
        return float(np.min(np.logaddexp(common, curve)) - np.logaddexp(post_hoc, curve.min()))

    return LogError.of(part.factors.spectrum, value, bound)


def log_truncations(spectrum: Spectrum, log_scale: float, hidden_size: int) -> NDArray[np.float64]:
    """ln max(sqrt(N r), N scale s_{r+1}) for r = 0 .. rank, of an exact spectrum.

    >>> spectrum = Spectrum(np.array([4.0, 2.0, 1.0, 0.5]), (4, 4), norm_21=0, norm_11=0, route="svd")
    >>> np.exp(log_truncations(spectrum, log(0.01), 256)).round(2)
    array([10.24, 16.  , 22.63, 27.71, 32.  ])
    """
    values = np.append(spectrum.above_tolerance, 0.0)
    with np.errstate(divide="ignore"):
        kept = np.log(hidden_size * np.arange(values.size, dtype=np.float64)) / 2
        left = log(hidden_size) + log_scale + np.log(values)
    return np.asarray(np.maximum(kept, left))


def effective_directions(spectrum: Spectrum, log_scale: float, hidden_size: int) -> int:
    """The smallest r at which B(M) is reached.

    >>> spectrum = Spectrum(np.array([4.0, 2.0, 1.0, 0.5]), (4, 4), norm_21=0, norm_11=0, route="svd")
    >>> [effective_directions(spectrum, log(scale), 256) for scale in (0.01, 0.1, 1.0)]
    [0, 2, 4]
    """
    return int(np.argmin(log_truncations(spectrum, log_scale, hidden_size)))
