"""Repeated random draws: one generator for each draw, and the mean of their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attnlaw.core.estimate import Estimate
from attnlaw.core.settings import check_value


def generators(seed: int, seeds: int) -> Iterator[np.random.Generator]:
    """Return `seeds` independent random generators, all derived from one seed."""
    count = check_value("seeds", seeds, int, minimum=1)
    return (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(count))


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean of values with its standard error. A single value has no error."""
    many = np.asarray(values, dtype=float)
    error = float(many.std(ddof=1) / np.sqrt(many.size)) if many.size > 1 else None
    return Estimate(float(many.mean()), error)
