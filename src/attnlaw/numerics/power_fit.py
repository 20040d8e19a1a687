"""The power with which one positive quantity follows another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def fit_exponent(ratios: Sequence[float], errors: Sequence[float]) -> tuple[float, float | None]:
    """Least-squares slope of log error against log ratio and its standard error, None below three points.

    >>> slope, error = fit_exponent([1, 2, 4, 8], [1, 0.5, 0.25, 0.125])
    >>> round(slope, 12), error < 1e-12
    (-1.0, True)
    """
    x, y = np.log(np.asarray(ratios, dtype=float)), np.log(np.asarray(errors, dtype=float))
    centred = x - x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ y / spread)
    if x.size < 3:
        return slope, None
    rest = y - y.mean() - slope * centred
    return slope, float(np.sqrt(rest @ rest / (x.size - 2) / spread))
