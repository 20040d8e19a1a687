"""Gauss-Legendre quadrature rules, made once and kept; pieces of them between cuts."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
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


def panels(cuts: ArrayLike, count: int) -> tuple[Reals, Reals]:
    """`count` nodes and weights between neighbouring cuts, from the least to the largest of them.

    >>> x, w = panels([2.0, 0.0, 1.0], 3)
    >>> x.size, round(float(w @ np.abs(x - 1)), 12)
    (6, 1.0)
    """
    edges = np.unique(cuts)
    u, w = gauss_legendre(count)
    widths = np.diff(edges)[:, None]
    return (edges[:-1, None] + widths * u).ravel(), (widths * w).ravel()
