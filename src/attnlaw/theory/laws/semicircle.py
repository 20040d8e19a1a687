"""Wigner's semicircle: the spectrum of a symmetric Gaussian matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.theory.laws.law import Law, require_scale


@dataclass(frozen=True)
class Semicircle(Law):
    """The semicircle law on `[-2 sigma, 2 sigma]`, which has variance `sigma^2` (Wigner 1958).

    >>> float(Semicircle(1.0).density(0.0).round(6))
    0.31831
    """

    sigma: float

    def __post_init__(self) -> None:
        require_scale("semicircle: sigma", self.sigma)

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return ((-2.0 * self.sigma, 2.0 * self.sigma),)

    def density(self, x: ArrayLike) -> Reals:
        """Return the density `sqrt(4 sigma^2 - x^2) / (2 pi sigma^2)`."""
        x = np.asarray(x, dtype=float)
        inside = np.maximum(4 * self.sigma**2 - x**2, 0.0)
        return np.asarray(np.sqrt(inside) / (2 * np.pi * self.sigma**2))

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the transform `(z - sqrt(z^2 - 4 sigma^2)) / (2 sigma^2)`, which is `1/z` far away."""
        z = np.asarray(z, dtype=complex)
        cut = np.sqrt(z - 2 * self.sigma) * np.sqrt(z + 2 * self.sigma)
        return np.asarray((z - cut) / (2 * self.sigma**2))

    def cdf(self, x: ArrayLike) -> Reals:
        """Return the distribution function `1/2 + (u sqrt(1 - u^2) + arcsin u) / pi`, u = x / (2 sigma)."""
        u = np.clip(np.asarray(x, dtype=float) / (2 * self.sigma), -1.0, 1.0)
        return np.asarray(0.5 + (u * np.sqrt(1 - u**2) + np.arcsin(u)) / np.pi)
