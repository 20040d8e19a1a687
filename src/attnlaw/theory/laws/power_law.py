"""The power law: a tail without a scale, from x_min to infinity.

| letter | meaning |
|---|---|
| alpha | exponent of the density, `(alpha - 1)/x_min (x/x_min)^(-alpha)` |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import hyp2f1

from attnlaw.core.settings import check_value
from attnlaw.theory.laws.law import Complexes, Law, Reals, require_levels
from attnlaw.theory.laws.pieces import HeavyHalfLine, Piece


@dataclass(frozen=True)
class PowerLaw(Law):
    """Continuous power law above `x_min` (Clauset, Shalizi and Newman, arXiv 0706.1062).

    Moments of order `alpha - 1` and above are infinite.

    >>> law = PowerLaw(3.5, 2.0)
    >>> round(law.moment(1), 12), law.moment(3)
    (3.333333333333, inf)
    """

    alpha: float
    x_min: float

    def __post_init__(self) -> None:
        check_value("power law alpha", self.alpha, float, greater_than=1)
        check_value("power law x_min", self.x_min, float, greater_than=0)

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return ((self.x_min, np.inf),)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (HeavyHalfLine(self.x_min, 1 / (self.alpha - 1)),)

    def density(self, x: ArrayLike) -> Reals:
        return np.asarray(np.exp(self.log_density(x)))

    def log_density(self, x: ArrayLike) -> Reals:
        x = np.asarray(x, dtype=float)
        at = np.maximum(x, self.x_min)
        value = np.log((self.alpha - 1) / self.x_min) - self.alpha * np.log(at / self.x_min)
        return np.where(x >= self.x_min, value, -np.inf)

    def cdf(self, x: ArrayLike) -> Reals:
        """`1 - (x/x_min)^(1 - alpha)`."""
        at = np.maximum(np.asarray(x, dtype=float), self.x_min)
        return np.asarray(-np.expm1((1 - self.alpha) * np.log(at / self.x_min)))

    def quantile(self, p: ArrayLike) -> Reals:
        p = require_levels(p)
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.x_min * np.exp(-np.log1p(-p) / (self.alpha - 1)))

    def moment(self, order: int) -> float:
        """`x_min^k (alpha - 1)/(alpha - 1 - k)`, infinite for `k >= alpha - 1`."""
        left = self.alpha - 1 - order
        return float(self.x_min**order * (self.alpha - 1) / left) if left > 0 else np.inf

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """`-(alpha - 1)/(alpha x_min) 2F1(1, alpha; alpha + 1; z/x_min)`."""
        z = np.asarray(z)
        factor = -(self.alpha - 1) / (self.alpha * self.x_min)
        g = factor * hyp2f1(1.0, self.alpha, self.alpha + 1, z.astype(complex) / self.x_min)
        return np.asarray(g if np.iscomplexobj(z) else g.real - 1j * np.pi * self.density(z))
