"""The value of adaptivity: what one common Schatten index costs over the post hoc choice per matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnlaw.bounds.errors import LogError, combined
from attnlaw.bounds.spectrum_adaptive import Contribution, index_grid, log_contribution
from attnlaw.numerics.logs import log_sum, log_sums
from attnlaw.spectra.spectrum import Spectrum


def value_of_adaptivity(parts: Sequence[Contribution]) -> float | None:
    """The smallest sum over matrices with one common p, over the post hoc sum; 1 means no gain.

    None where every contribution is zero.
    """
    total = log_sum([part.log_value for part in parts])
    if total == -np.inf:
        return None
    # At least 1 by definition; two orders of summation may differ in the last digit.
    return max(1.0, float(np.exp(np.min(_common(parts)) - total)))


def adaptivity_error(parts: Sequence[Contribution], depth: int, hidden_size: int) -> float | None:
    """Its error where spectra are approximate: both sums err together, so it is taken of their ratio."""
    value = value_of_adaptivity(parts)
    if value is None:
        return None
    best = int(np.argmin(_common(parts)))
    p = float(index_grid(depth, hidden_size)[best])
    logs = np.array([[part.log_curve[best], part.log_value] for part in parts])
    weights = np.exp(logs - log_sums(logs.T)) * [1.0, -1.0]
    errors = [
        (part.factors.place, 1.0, _error(part, np.array([p, part.p]), own, hidden_size))
        for part, own in zip(parts, weights, strict=True)
    ]
    return value * combined(errors)


def _common(parts: Sequence[Contribution]) -> NDArray[np.float64]:
    """ln of the sum over matrices at each index of the grid."""
    return log_sums(np.array([part.log_curve for part in parts]).T)


def _error(
    part: Contribution, p: NDArray[np.float64], weights: NDArray[np.float64], hidden_size: int
) -> LogError:
    """Of the sum of weight times ln C(p) over the indices p of one matrix."""
    used = weights != 0

    def value(spectrum: Spectrum) -> float:
        return float(weights[used] @ log_contribution(p[used], spectrum, part.log_scale, hidden_size))

    spread = part.factors.spectrum.error(value) if used.any() else None
    bound = abs(float(np.sum(weights * p / (p + 2)))) * (part.factors.log_scale_error or 0.0)
    return LogError(spread or 0.0, bound)
