"""The spectrum of the Bayes-optimal estimate: a blurred spectrum, each eigenvalue shrunk as well as can be.

The posterior mean of S* given `S* + a Z` keeps the eigenvectors and maps an eigenvalue x to
`y(x) = x - 2 a^2 Re g_a(x)` (Bun, Allez, Bouchaud and Potters 2016, additive Gaussian noise).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.theory.laws.free_convolution import FreeConvolution
from attnlaw.theory.laws.law import Complexes, Law, Reals

NEAR_END = 1e-4  # the least angle on an interval; at the ends themselves g is known less well


@dataclass(frozen=True)
class Shrunk(Law):
    """The law of `X - 2 sigma^2 Re g(X)`, X of the law `base`.

    >>> from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
    >>> law = Shrunk(FreeConvolution(MarchenkoPastur(0.5), 1.0))
    >>> bool(abs(law.mean - 0.5**0.5) < 1e-10)  # shrinking keeps the trace
    True
    """

    base: FreeConvolution

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        low, high = np.array(self.base.intervals).T
        step = 0.5 * (high - low) * (1 - np.cos(NEAR_END))
        x = np.stack([low + step, high - step], axis=1)
        y = x - 2 * self.base.sigma**2 * self.base.stieltjes(x).real
        return tuple((float(first), float(last)) for first, last in y)

    def nodes(self) -> tuple[Reals, Reals]:
        points, weights = self.base.nodes()
        return points - 2 * self.base.sigma**2 * self.base.stieltjes(points).real, weights

    def density(self, x: ArrayLike) -> Reals:
        """`density of X / (dy/dx)`, interpolated in a fine table of the map."""
        x = np.asarray(x, dtype=float)
        total = np.zeros(x.shape)
        for _, y, height in self._maps:
            total = total + np.where((x > y[0]) & (x < y[-1]), np.interp(x, y, height), 0.0)
        return total

    def stieltjes(self, z: ArrayLike) -> Complexes:
        return self.stieltjes_by_quadrature(z)

    @cached_property
    def _maps(self) -> list[tuple[Reals, Reals, Reals]]:
        """Per interval: x, y(x) and the density of y, at angles that crowd towards the edges."""
        maps = []
        for low, high in self.base.intervals:
            theta = np.linspace(NEAR_END, np.pi - NEAR_END, 1201)
            x = 0.5 * (low + high) - 0.5 * (high - low) * np.cos(theta)
            g = self.base.stieltjes(x)
            y = x - 2 * self.base.sigma**2 * g.real
            slope = np.gradient(y, theta) / np.gradient(x, theta)
            maps.append((x, y, -g.imag / np.pi / np.maximum(slope, 1e-12)))
        return maps
