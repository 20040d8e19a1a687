"""Quadrature rules made once and kept: Gauss-Legendre, and its use for square-root edges."""

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


def chebyshev_angle_rule(low: float, high: float, count: int) -> tuple[Reals, Reals]:
    """Gauss-Legendre in theta for `x = middle - half cos(theta)`: square-root edges converge fast.

    >>> x, w = chebyshev_angle_rule(-1.0, 1.0, 40)
    >>> bool(abs(w @ np.sqrt(1 - x**2) - np.pi / 2) < 1e-13)
    True
    """
    u, w = gauss_legendre(count)
    theta = np.pi * u
    half = 0.5 * (high - low)
    return 0.5 * (low + high) - half * np.cos(theta), np.pi * w * half * np.sin(theta)
