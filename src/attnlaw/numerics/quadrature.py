"""Quadrature: Gauss-Legendre rules, and cosine series for densities with square-root edges.

On an interval, write `x = middle - half cos(theta)` for theta from 0 to pi, or a smooth function of it. For a
density with square-root edges, `F = f(x) density dx/dtheta` is an even periodic function of theta. So the
midpoint rule converges exponentially, and the integral from any angle to pi is a sine series.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals


@lru_cache(maxsize=64)
def gauss_legendre(count: int) -> tuple[Reals, Reals]:
    """Return nodes and weights of Gauss-Legendre quadrature on [0, 1], as read-only arrays."""
    x, w = scipy.special.roots_legendre(count)
    nodes, weights = 0.5 * (x + 1.0), 0.5 * w
    nodes.setflags(write=False)
    weights.setflags(write=False)
    return nodes, weights


def panels(cuts: ArrayLike, count: int) -> tuple[Reals, Reals]:
    """Return nodes and weights of Gauss-Legendre quadrature, `count` nodes between neighbouring cuts."""
    edges = np.unique(cuts)
    u, w = gauss_legendre(count)
    widths = np.diff(edges)[:, None]
    return (edges[:-1, None] + widths * u).ravel(), (widths * w).ravel()


@lru_cache(maxsize=32)
def midpoint_angles(count: int) -> Reals:
    """Return the angles `theta_j = (j + 1/2) pi / count` as a read-only array."""
    theta = np.asarray((np.arange(count) + 0.5) * (np.pi / count), dtype=float)
    theta.setflags(write=False)
    return theta


def cosine_coefficients(values: Reals) -> Reals:
    """Return the coefficients c of `F(theta) = sum_k c_k cos(k theta)`, given F at the midpoints."""
    count = values.shape[-1]
    coefficients = scipy.fft.dct(values, type=2, axis=-1) / count
    coefficients[..., 0] *= 0.5
    return np.asarray(coefficients)


def integral_above(coefficients: Reals, theta: Reals) -> Reals:
    """Return the integrals from theta to pi of cosine series, whose coefficients are in the last axis."""
    count = coefficients.shape[-1]
    k = np.arange(1, count)
    sines = np.sin(k * theta[..., None]) / k
    tail = np.einsum("f...k,...k->f...", coefficients[..., 1:], sines)
    return np.asarray(coefficients[..., 0] * (np.pi - theta) - tail)


def angle_of(coefficients: Reals, level: Reals) -> Reals:
    """Return the angle at which an increasing cosine series (..., count) has the value `level` (...).

    The function uses Newton's method inside a bracket. The start is the solution for the first two terms,
    which is exact for `x = middle - half cos(theta)`.
    """
    theta = np.arccos(np.clip((level - coefficients[..., 0]) / coefficients[..., 1], -1.0, 1.0))
    if coefficients.shape[-1] == 2:
        return np.asarray(theta)
    k = np.arange(coefficients.shape[-1])
    below, above = np.zeros(level.shape), np.full(level.shape, np.pi)
    for _ in range(60):
        phase = k * theta[..., None]
        miss = (coefficients * np.cos(phase)).sum(-1) - level
        slope = -(coefficients * k * np.sin(phase)).sum(-1)
        below, above = np.where(miss < 0, theta, below), np.where(miss < 0, above, theta)
        newton = theta - miss / np.where(slope > 0, slope, np.inf)
        usable = (slope > 0) & (newton >= below) & (newton <= above)
        new = np.where(usable, newton, 0.5 * (below + above))
        settled = np.abs(new - theta) <= 1e-14
        theta = new
        if settled.all():
            break
    return theta
