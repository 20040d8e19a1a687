"""Gauss-Legendre quadrature rules, made once and kept."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import roots_legendre

Reals = NDArray[np.float64]


@lru_cache(maxsize=64)
def gauss_legendre(count: int) -> tuple[Reals, Reals]:
    """Nodes and weights on [0, 1] (read-only).

    >>> x, w = gauss_legendre(5)
    >>> round(float(w @ x**9), 12)
    0.1
    """
    x, w = roots_legendre(count)
    nodes, weights = 0.5 * (x + 1.0), 0.5 * w
    nodes.setflags(write=False)
    weights.setflags(write=False)
    return nodes, weights
