"""Norm-based baselines: Edelman et al. 2022, and one in the style of Trauger and Tewari 2024.

    B = (1 + sum over matrices of (alpha_l gamma' |W|)^(2/3))^(3/2)

with |W| the (2,1) norm (Edelman) or the (1,1) norm (Trauger-Tewari), and gamma' the sensitivity without
the 2 of QK. As adapted in arXiv 2605.07297; leading factors only, not guarantees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attnlaw.bounds.factors import MatrixFactors
from attnlaw.numerics.logs import log_sum
from attnlaw.spectra import Spectrum

NORMS: dict[str, Callable[[Spectrum], float]] = {
    "edelman": lambda spectrum: spectrum.norm_21,
    "trauger_tewari": lambda spectrum: spectrum.norm_11,
}


def log_norm_based(matrices: list[MatrixFactors], norm: Callable[[Spectrum], float]) -> float:
    """ln of the norm-based proxy with the given norm of each matrix."""
    terms = [_log(norm(m.spectrum)) + m.log_alpha + m.log_norm_gamma for m in matrices]
    return 1.5 * float(np.logaddexp(0.0, log_sum(np.array(terms) * (2 / 3))))


def log_norm_based_error(matrices: list[MatrixFactors], norm: Callable[[Spectrum], float]) -> float:
    """How far it may lie above: norms of entries are exact, gamma and alpha have their errors."""
    upper = [replace(m, log_alpha=m.log_alpha + (m.log_scale_error or 0.0)) for m in matrices]
    return log_norm_based(upper, norm) - log_norm_based(matrices, norm)


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0 else -np.inf
