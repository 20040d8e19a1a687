"""Families of z-scores of simulations against their theory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlaw.core.estimate import Estimate
from attnlaw.theory.learn.agreement import extrapolate


def z_score(theory: float, sizes: Sequence[int], measured: Sequence[Estimate]) -> float:
    """Of the value that measurements at several sizes tend to, as 1/size."""
    fit = extrapolate(
        sizes, [estimate.value for estimate in measured], [estimate.error for estimate in measured]
    )
    return (fit.value - theory) / fit.standard_error


def holds(family: Sequence[float]) -> bool:
    """Root mean square below 1.3, none beyond 4."""
    z = np.asarray(family)
    return bool(np.sqrt(np.mean(z**2)) < 1.3 and np.abs(z).max() < 4)
