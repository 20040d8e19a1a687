"""Spectrum-adaptive proxies, which choose a Schatten index for every matrix after training.

M. Sakai, M. Imaizumi, arXiv 2605.07297. The contribution of one matrix with singular values s_i at index p is

    C(p) = (sum_i s_i^p)^(1/(p+2)) * scale^(p/(p+2)) * N^((p+1)/(p+2)),   scale = gamma alpha L,  0 <= p <= 2,

where N is the hidden size and `factors` defines gamma, alpha and L. At p = 0 the sum is the numerical rank.
The proxy is `sum over matrices of min_p C(p) + sqrt(L)`. It is the leading factor of a bound: it has no
constants and no logarithms, and it is not a guarantee.

ln C(p) = f(p) / (p + 2), where f is convex (a log-sum-exp plus a linear function). So C has a single minimum,
because {p : f(p) <= t (p + 2)} is convex for every t. At the minimum the increasing function f'(p)(p + 2) -
f(p) changes sign. The continuous choice below is therefore the global minimiser.

**Value of adaptivity**: the ratio min_p sum_i C_i(p) / sum_i min_p C_i(p) >= 1. A value of 1 means that the
choice for each matrix gained nothing over one index for all matrices.

**Effective directions** are the number of directions of a matrix that matter at a given scale. They come from
a lower bound of C (ours):

    B(M) = min_r max(sqrt(N r), N scale s_{r+1}) <= min_p C(p)        0 <= r <= rank, s_{rank+1} = 0

Proof: let v = C(p) and t = v / (N scale). At most sum_i s_i^p / t^p = v^2 / N of the s_i exceed t. With this
number for r, both terms are at most v. The smallest minimising r is the number of effective directions. The
other directions change the output too little at this scale to be worth their rank.
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

MOST_STEPS = 60  # steps of Newton's method; as many halvings shrink [0, 2] below round-off


@dataclass(frozen=True, eq=False)
class Contribution:
    """The contribution C(p) of one matrix, for every index p of the grid and for the best p."""

    factors: MatrixFactors  # the matrix with gamma and alpha
    log_scale: float  # ln(gamma alpha L)
    log_curve: NDArray[np.float64]  # ln C on `index_grid`
    p: float  # best index on the grid
    log_value: float  # ln C at `p`
    continuous_p: float  # best index in [0, 2]
    continuous_log_value: float  # ln C at `continuous_p`
    log_error: LogError | None  # error of `log_value`
    continuous_log_error: LogError | None  # error of `continuous_log_value`
    fixed_log_errors: tuple[LogError | None, ...]  # errors of ln C at p = 0, 1 and 2


def index_grid(depth: int, hidden_size: int) -> NDArray[np.float64]:
    """Return the grid of indices p that the paper uses: {0, 1/m, ..., 2} with m = ceil(L + ln N)."""
    m = ceil(depth + log(hidden_size))
    return np.arange(2 * m + 1) / m


def contribution(factors: MatrixFactors, depth: int, hidden_size: int) -> Contribution:
    """Compute the contribution C(p) of one matrix for every p of the grid, and its minimum over [0, 2]."""
    grid = index_grid(depth, hidden_size)
    log_scale = factors.log_gamma.value + factors.log_alpha.value + log(depth)
    curve = log_contribution(grid, factors.spectrum, log_scale, hidden_size)
    best = int(np.argmin(curve))
    p = best_index(factors.spectrum, log_scale, hidden_size)

    def value(index: float, spectrum: Spectrum) -> float:
        return float(log_contribution(np.array([index]), spectrum, log_scale, hidden_size)[0])

    # This is the error of the minimum, because another index may win for another spectrum within the errors.
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
        fixed_log_errors=tuple(_log_error(factors, q, partial(value, q)) for q in (0.0, 1.0, 2.0)),
    )


def log_contribution(
    p: NDArray[np.float64], spectrum: Spectrum, log_scale: float, hidden_size: int
) -> NDArray[np.float64]:
    """Return ln C(p) for every index in `p`. It is -inf for a zero matrix, and for scale 0 if p > 0."""
    log_values = np.log(spectrum.above_tolerance)
    if log_values.size == 0:
        return np.full(p.shape, -np.inf)
    powers = log_sums(np.multiply.outer(p, log_values), spectrum.counts_above_tolerance)
    # p ln(scale) with 0 * -inf = 0, because C does not depend on the scale at p = 0.
    scaled = np.multiply(p, log_scale, out=np.zeros_like(p), where=p > 0)
    return np.asarray((powers + scaled + (p + 1) * log(hidden_size)) / (p + 2))


def proxy(log_contributions: NDArray[np.float64], depth: int) -> float:
    """Return the logarithm of the sum of contributions + sqrt(L), from the logs of the contributions."""
    return float(np.logaddexp(log_sum(log_contributions), log(sqrt(depth))))


def _log_error(factors: MatrixFactors, p: float, value: Callable[[Spectrum], float]) -> LogError | None:
    """Return the error of ln C at p, linear in ln(scale) with slope p / (p + 2); None if C is exact."""
    spectrum = factors.spectrum
    if spectrum.is_exact and factors.log_scale_error is None:
        return None
    bound = p / (p + 2) * (factors.log_scale_error or 0.0)
    if spectrum.is_exact or value(spectrum) == -np.inf:
        return LogError(0.0, bound)
    return LogError.of(spectrum, value, bound)


def best_index(spectrum: Spectrum, log_scale: float, hidden_size: int) -> float:
    """Return the index p in [0, 2] that minimises the contribution C(p) of a matrix.

    The minimum is at the root of the increasing function `f'(p)(p + 2) - f(p)`, with f as in the module, or
    at an end of [0, 2]. The function finds the root by Newton's method with the slope `f''(p)(p + 2)`, where
    f'' is a variance of logarithms. If a step leaves the bracket, the function halves the bracket instead.
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
    """Return the best proxy with one index p for all matrices, over the proxy with the best p of each."""
    total = log_sum([part.log_value for part in contributions])
    if total == -np.inf:
        return None
    # The two sums are added in different orders, so rounding could give 1 - 1e-16.
    value = max(1.0, float(np.exp(np.min(_log_sums_by_index(contributions)) - total)))
    if all(part.log_error is None for part in contributions):
        return Estimate(value)
    return Estimate(value, value * _adaptivity_log_error(contributions, depth, hidden_size))


def _adaptivity_log_error(parts: Sequence[Contribution], depth: int, hidden_size: int) -> float:
    """Return the error of ln(value of adaptivity), whose two sums move in the same direction."""
    grid, curves = index_grid(depth, hidden_size), np.array([part.log_curve for part in parts])
    best = int(np.argmin(_log_sums_by_index(parts)))
    logs = np.array([[part.log_curve[best], part.log_value] for part in parts])
    # The error of a matrix moves both sums of the ratio in the same direction, so it partly cancels.
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
    """Return ln(sum of C(p) over matrices) for each p on the grid."""
    return log_sums(np.array([part.log_curve for part in parts]).T)


def _log_error_of_matrix(
    part: Contribution, others: NDArray[np.float64], bound: float, grid: NDArray[np.float64], hidden_size: int
) -> LogError:
    """Return the error of ln(value of adaptivity) that comes from the spectrum of one matrix."""
    common = log_sums(others.T) if len(others) else np.full(grid.shape, -np.inf)
    post_hoc = log_sum(others.min(axis=1)) if len(others) else -np.inf

    def value(spectrum: Spectrum) -> float:
        curve = log_contribution(grid, spectrum, part.log_scale, hidden_size)
        return float(np.min(np.logaddexp(common, curve)) - np.logaddexp(post_hoc, curve.min()))

    return LogError.of(part.factors.spectrum, value, bound)


def log_truncations(spectrum: Spectrum, log_scale: float, hidden_size: int) -> NDArray[np.float64]:
    """Return the logarithm of max(sqrt(N r), N scale s_{r+1}) for each r from 0 to the rank."""
    values = np.append(spectrum.above_tolerance, 0.0)
    with np.errstate(divide="ignore"):
        kept = np.log(hidden_size * np.arange(values.size, dtype=np.float64)) / 2
        left = log(hidden_size) + log_scale + np.log(values)
    return np.asarray(np.maximum(kept, left))


def effective_directions(spectrum: Spectrum, log_scale: float, hidden_size: int) -> int:
    """Return the number of effective directions: the smallest rank r that reaches the minimum B(M)."""
    return int(np.argmin(log_truncations(spectrum, log_scale, hidden_size)))
