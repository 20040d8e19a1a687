"""Marchenko-Pastur: the spectrum of a product of a Gaussian matrix with its transpose.

`W` is d x m with standard Gaussian entries, and `kappa = m/d`. The law describes the eigenvalues of
`scale * W W^T / sqrt(m d)`. It has mean `scale sqrt(kappa)`, second moment `scale^2 (1 + kappa)` and edges
`scale (sqrt(kappa) -+ 1)^2 / sqrt(kappa)`. If `kappa < 1`, there is an atom of weight `1 - kappa` at zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.theory.laws.law import LARGEST_RATIO, Law, at_zero, require_levels, require_scale


@dataclass(frozen=True)
class RankLaw(Law):
    """A scaled law of a product of Gaussian factors with d x m entries. Its shape depends on kappa = m/d."""

    subject: ClassVar[str]  # how messages start
    rank_ratio: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        remedy = "give m/d, the rank of the matrix divided by its size"
        require_scale(f"{self.subject}: rank ratio", self.rank_ratio, LARGEST_RATIO, remedy)
        require_scale(f"{self.subject}: scale", self.scale)

    def scaled(self, factor: float) -> Self:
        return replace(self, scale=self.scale * factor)

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        return at_zero(1.0 - self.rank_ratio)


@dataclass(frozen=True)
class MarchenkoPastur(RankLaw):
    """The law of `scale W W^T / sqrt(m d)` with a Gaussian d x m matrix W (Marchenko and Pastur 1967).

    Args:
        rank_ratio: the ratio kappa = m/d of columns to rows of W.

    >>> law = MarchenkoPastur(0.5)
    >>> law.atoms, round(law.moment(2), 12)
    (((0.0, 0.5),), 1.5)
    """

    subject = "Marchenko-Pastur"

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        root = float(np.sqrt(self.rank_ratio))
        return ((self.scale * (root - 1) ** 2 / root, self.scale * (root + 1) ** 2 / root),)

    def density(self, x: ArrayLike) -> Reals:
        """Return the density `sqrt(kappa) sqrt((x+ - x)(x - x-)) / (2 pi scale x)` between its edges."""
        x = np.asarray(x, dtype=float)
        low, high = self.intervals[0]
        inside = (x > low) & (x < high)
        at = np.where(inside, x, 0.5 * (low + high))
        value = np.sqrt(self.rank_ratio * (high - at) * (at - low)) / (2 * np.pi * self.scale * at)
        return np.where(inside, value, 0.0)

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the Stieltjes transform `g(z)`.

        At scale 1, g is the root of `z g^2 / c - (z + 1/c - c) g + 1 = 0` with `g ~ 1/z`, where c =
        sqrt(kappa).
        """
        z = np.asarray(z, dtype=complex) / self.scale
        low, high = (end / self.scale for end in self.intervals[0])
        root = np.sqrt(self.rank_ratio)
        # The product of two principal roots has its cut only on [low, high] and is ~ z far away.
        cut = np.sqrt(z - low) * np.sqrt(z - high)
        with np.errstate(divide="ignore", invalid="ignore"):
            g = root * (z + 1 / root - root - cut) / (2 * z)
        return np.asarray(g / self.scale)

    def cdf(self, x: ArrayLike) -> Reals:
        """Return the distribution function, from a closed form."""
        x = np.asarray(x, dtype=float)
        low, high = self.intervals[0]
        cosine = np.clip((0.5 * (low + high) - x) / (0.5 * (high - low)), -1.0, 1.0)
        atom = np.where(x >= 0, self.mass_of_atoms, 0.0)
        return np.asarray(atom + self._mass_to(np.arccos(cosine)))

    def quantile(self, p: ArrayLike) -> Reals:
        """Return the points at which the distribution function reaches the levels p, by bisection."""
        p = require_levels(p)
        wanted = p - self.mass_of_atoms
        below, above = np.zeros_like(p), np.full_like(p, np.pi)
        for _ in range(54):
            middle = 0.5 * (below + above)
            short = self._mass_to(middle) < wanted
            below, above = np.where(short, middle, below), np.where(short, above, middle)
        low, high = self.intervals[0]
        x = 0.5 * (low + high) - 0.5 * (high - low) * np.cos(above)
        return np.where(wanted <= 0, 0.0 if self.rank_ratio < 1 else low, x)

    def _mass_to(self, theta: Reals) -> Reals:
        """Return the mass up to theta, a multiple of `int_0^theta sin^2 / (A - cos)`, A = middle/half."""
        low, high = (end / self.scale for end in self.intervals[0])
        A, half = (high + low) / (high - low), 0.5 * (high - low)
        # sqrt(A^2 - 1) atan(sqrt((A+1)/(A-1)) tan(theta/2)), written so that A = 1 and theta = pi are safe.
        gap = np.sqrt(max(A * A - 1.0, 0.0))
        angle = np.arctan2(
            np.sqrt(A + 1.0) * np.sin(theta / 2), np.sqrt(max(A - 1.0, 0.0)) * np.cos(theta / 2)
        )
        integral = A * theta + np.sin(theta) - 2.0 * gap * angle
        return np.asarray(np.sqrt(self.rank_ratio) * half / (2 * np.pi) * integral)
