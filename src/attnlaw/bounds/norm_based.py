"""Norm-based baselines: Edelman et al. 2022, and one in the style of Trauger and Tewari 2024.

    B = (1 + sum over matrices of (alpha_l gamma' |W|)^(2/3))^(3/2)

with |W| the (2,1) norm (Edelman) or the (1,1) norm (Trauger-Tewari), and gamma' the sensitivity without
the 2 of QK. As adapted in arXiv 2605.07297; leading factors only, not guarantees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlaw.base.estimate import Estimate
from attnlaw.bounds.factors import MatrixFactors
from attnlaw.numerics.logs import log_sum


def log_norm_based(matrices: Sequence[MatrixFactors], norm: str) -> Estimate:
    """ln of the norm-based proxy with the given norm of each matrix (an attribute of its spectrum).

    Its error is how far it may lie above: norms of entries are exact, gamma and alpha have their errors.
    """
    value = _log_norm_based(matrices, norm, [m.log_alpha.value for m in matrices])
    if all(m.log_scale_error is None for m in matrices):
        return Estimate(value)
    raised = [m.log_alpha.value + (m.log_scale_error or 0.0) for m in matrices]
    return Estimate(value, _log_norm_based(matrices, norm, raised) - value)


def _log_norm_based(matrices: Sequence[MatrixFactors], norm: str, log_alpha: Sequence[float]) -> float:
    terms = [
        _log(getattr(m.spectrum, norm)) + own + m.log_norm_gamma
        for m, own in zip(matrices, log_alpha, strict=True)
    ]
    return 1.5 * float(np.logaddexp(0.0, log_sum(np.array(terms) * (2 / 3))))


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0 else -np.inf
