"""The law of a random head: squared singular values of a product of two independent Gaussian factors.

A and B are d_head x N with independent entries of variances sA^2 and sB^2. The law describes the d_head
non-zero eigenvalues of `A^T B B^T A / (N sA sB)^2`, so its mean is 1. It is the free product of two
Marchenko-Pastur laws (Voiculescu 1987; Penson and Zyczkowski, arXiv 1103.3453, c = 1).

| letter | meaning |
|---|---|
| c | `ratio = d_head / N`, at most 1 |
| u | `z g(z) - 1`, the root of `z u = (1 + u)(1 + c u)^2` with u ~ 1/z |
| v | `c u`: `v^3 + (c+2) v^2 + (1 + 2c - z) v + c = 0` |
| R | `abs(v)^2` on the support, where `x = (c - R)^2 (1 - R) / R^2` |
| s | `sqrt(c^2 + 8c)`: R is between `(c^2 + 4c - c s)/8` (upper edge of x) and `(c^2 + 4c + c s)/8` |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.core.settings import check_value
from attnlaw.numerics.polynomial_roots import monic_roots, smallest_root
from attnlaw.theory.laws.law import LARGEST_RATIO, Law, Piece, require_scale


@dataclass(frozen=True)
class HeadNull(Law):
    """The law of a random head: a free product of two equal Marchenko-Pastur laws, with mean 1.

    At ratio 1 the lower edge is zero, and the density near it grows like `x^(-2/3)`.

    Args:
        ratio: d_head / N, the size of the head divided by the width of the model.

    >>> law = HeadNull(0.25)
    >>> [round(end, 4) for end in law.intervals[0]], round(law.moment(2), 12)
    ([0.1362, 3.0982], 1.5)
    """

    ratio: float

    def __post_init__(self) -> None:
        remedy = "give d_head / N, the size of the head divided by the width of the model"
        check_value("null of a head: ratio", self.ratio, float, greater_than=0, maximum=1, remedy=remedy)
        require_scale("null of a head: ratio", self.ratio, LARGEST_RATIO)

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return ((self._layout.low, self._layout.high),)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (self._layout,)

    def density(self, x: ArrayLike) -> Reals:
        """Return the density `Im v / (pi c x)`, where v is found by Cardano's formula."""
        x = np.asarray(x, dtype=float)
        c, (low, high) = self.ratio, self.intervals[0]
        inside = (x > low) & (x < high)
        at = np.where(inside, x, 0.5 * (low + high))
        # v = t - (c+2)/3 gives t^3 + p t + q = 0.
        p = -at - (1 - c) ** 2 / 3
        q = (c + 2) * at / 3 - 2 * (1 - c) ** 3 / 27
        root = np.sqrt(at * (at - low) * (high - at) / 27)
        S = np.cbrt(np.where(q > 0, -q / 2 - root, -q / 2 + root))
        T = -p / (3 * S)
        # |S - T| from |S^3 - T^3| = 2 root: no cancellation at the edges.
        imaginary = np.sqrt(3) * root / (S * S + S * T + T * T)
        return np.where(inside, imaginary / (np.pi * c * at), 0.0)

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the transform `(1 + u)/z`, where `v = c u` is the smallest root of the module's cubic."""
        c = self.ratio

        def candidates(z: Complexes) -> Complexes:
            ones = np.ones_like(z)
            return monic_roots(np.stack([(c + 2) * ones, 1 + 2 * c - z, c * ones], axis=-1))

        v = smallest_root(candidates, z, self.intervals)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((1 + v / c) / np.asarray(z))

    def moment(self, order: int) -> float:
        """Return the moment of order k, `1/k sum_j C(k, j+1) C(2k, j) c^j`, by Lagrange's inversion."""
        k = order
        if k == 0:
            return 1.0
        return sum(comb(k, j + 1) * comb(2 * k, j) * self.ratio**j for j in range(k)) / k

    @cached_property
    def _layout(self) -> _Layout:
        return _Layout(self.ratio)


@dataclass(frozen=True)
class _Layout:
    """The quadrature piece `R = middle + half cos(theta)`, which is smooth for every ratio up to 1."""

    c: float

    @property
    def low(self) -> float:
        return float(self.at(np.array(0.0))[0])

    @property
    def high(self) -> float:
        return float(self.at(np.array(np.pi))[0])

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        c = self.c
        s = np.sqrt(c * c + 8 * c)
        half = c * s / 8
        # Distances of R from 1 and c, measured from the lower edge of x, where they vanish at c = 1.
        down = 2 * half * np.sin(theta / 2) ** 2
        to_one = 8 * (1 - c) / (8 - c * c - 4 * c + c * s) + down
        to_c = 2 * c * (1 - c) / (4 - c + s) + down
        R = (c * c + 4 * c) / 8 + half * np.cos(theta)
        x = to_c**2 * to_one / R**2
        slope = (2 * to_c * to_one + to_c**2 + 2 * x * R) / R**2
        return x, slope * half * np.sin(theta)
