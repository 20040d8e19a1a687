"""Norm-based baselines: Edelman et al. 2022, and one in the style of Trauger and Tewari 2024.

    B = (1 + sum over matrices of (alpha_l gamma' |W|)^(2/3))^(3/2)

Here |W| is the (2,1) norm (Edelman) or the (1,1) norm (Trauger-Tewari). The amplification alpha_l is defined
in `factors`, and so is the sensitivity gamma. For QK matrices gamma' = gamma / 2, for all others gamma' =
gamma. Both baselines are adapted as in arXiv 2605.07297. They are leading factors only, not guarantees.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.estimate import Estimate
from attnlaw.numerics.logs import log_sum
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.factors import MatrixFactors
from attnlaw.theory.bounds.log_errors import LogError, combine_log_errors


def log_norm_based(matrices: Sequence[MatrixFactors], norm: str) -> Estimate:
    """Return the logarithm of a norm-based proxy. Its error includes the error of norms that were sampled."""
    terms = _terms(matrices, norm, [m.log_alpha.value for m in matrices])
    value = _total(terms)
    sampled = [_relative_error(m.spectrum) if norm == "norm_11" else None for m in matrices]
    known = all(m.log_scale_error is None for m in matrices)
    if known and all(error is None for error in sampled):
        return Estimate(value)
    raised = [m.log_alpha.value + (m.log_scale_error or 0.0) for m in matrices]
    bound = 0.0 if known else _total(_terms(matrices, norm, raised)) - value
    weights = np.exp((terms - value) * (2 / 3))
    spreads = (
        (m.location, float(weight), LogError(error or 0.0, 0.0))
        for m, weight, error in zip(matrices, weights, sampled, strict=True)
    )
    return Estimate(value, hypot(combine_log_errors(spreads), bound))


def _terms(matrices: Sequence[MatrixFactors], norm: str, log_alpha: Sequence[float]) -> NDArray[np.float64]:
    return np.array(
        [
            _log(getattr(m.spectrum, norm)) + ln_alpha + m.log_norm_gamma
            for m, ln_alpha in zip(matrices, log_alpha, strict=True)
        ]
    )


def _total(terms: NDArray[np.float64]) -> float:
    return 1.5 * float(np.logaddexp(0.0, log_sum(terms * (2 / 3))))


def _relative_error(spectrum: Spectrum) -> float | None:
    """Return the relative error of the (1,1) norm; None if the norm is exact."""
    return spectrum.norm_11_error / spectrum.norm_11 if spectrum.norm_11_error else None


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0 else -np.inf
