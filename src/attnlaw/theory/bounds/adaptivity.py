"""The value of adaptivity: what one common Schatten index costs over the post hoc choice per matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.estimate import Estimate
from attnlaw.numerics.logs import log_sum, log_sums
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.log_errors import LogError, combine_log_errors
from attnlaw.theory.bounds.spectrum_adaptive import Contribution, index_grid, log_contribution


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
    return Estimate(value, value * _log_error(contributions, depth, hidden_size))


def _log_error(parts: Sequence[Contribution], depth: int, hidden_size: int) -> float:
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
        errors.append((part.factors.place, 1.0, error))
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
