"""Two laws for heavy tails above x_min: the power law, and the lognormal law as its usual alternative.

| letter | meaning |
|---|---|
| alpha | exponent of the power law's density, `(alpha - 1)/x_min (x/x_min)^(-alpha)` |
| mu, sigma | mean and standard deviation of log x before the cut at x_min |
| s | `(log x - mu)/sigma`; `s_min` is that of x_min |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.core.settings import check_value
from attnlaw.theory.laws.law import Decades, HeavyHalfLine, Law, Piece, ToZero, require_levels


@dataclass(frozen=True)
class PowerLaw(Law):
    """The continuous power law for values above `x_min` (Clauset, Shalizi and Newman, arXiv 0706.1062).

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
        """Return the distribution function `1 - (x/x_min)^(1 - alpha)`."""
        at = np.maximum(np.asarray(x, dtype=float), self.x_min)
        return np.asarray(-np.expm1((1 - self.alpha) * np.log(at / self.x_min)))

    def quantile(self, p: ArrayLike) -> Reals:
        p = require_levels(p)
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.x_min * np.exp(-np.log1p(-p) / (self.alpha - 1)))

    def moment(self, order: int) -> float:
        """Return the moment of order k, which is infinite if k >= alpha - 1."""
        left = self.alpha - 1 - order
        return float(self.x_min**order * (self.alpha - 1) / left) if left > 0 else np.inf

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the transform `-(alpha - 1)/(alpha x_min) 2F1(1, alpha; alpha + 1; z/x_min)`."""
        z = np.asarray(z)
        factor = -(self.alpha - 1) / (self.alpha * self.x_min)
        g = factor * scipy.special.hyp2f1(1.0, self.alpha, self.alpha + 1, z.astype(complex) / self.x_min)
        return np.asarray(g if np.iscomplexobj(z) else g.real - 1j * np.pi * self.density(z))


@dataclass(frozen=True)
class Lognormal(Law):
    """The lognormal law of `exp(mu + sigma N(0, 1))`, restricted to values above `x_min`.

    >>> law = Lognormal(0.0, 1.0)
    >>> round(law.moment(2), 9), float(law.cdf(1.0))
    (7.389056099, 0.5)
    """

    mu: float
    sigma: float
    x_min: float = 0.0

    def __post_init__(self) -> None:
        check_value("lognormal mu", self.mu, float)
        check_value("lognormal sigma", self.sigma, float, greater_than=0)
        check_value("lognormal x_min", self.x_min, float, minimum=0)

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return ((self.x_min, np.inf),)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        middle, s_min = float(np.exp(self.mu)), self._s_min
        if s_min >= 0:
            return (HeavyHalfLine(self.x_min, self.sigma / max(s_min, 1.0)),)
        above = HeavyHalfLine(middle, self.sigma)
        # Beyond 38 standard deviations the mass underflows.
        return (Decades(self.x_min, middle), above) if s_min > -38 else (ToZero(middle, self.sigma), above)

    def density(self, x: ArrayLike) -> Reals:
        return np.asarray(np.exp(self.log_density(x)))

    def log_density(self, x: ArrayLike) -> Reals:
        """Return the logarithm of the density, `-s^2/2 - log(sqrt(2 pi) sigma x) - log P(s > s_min)`."""
        x = np.asarray(x, dtype=float)
        inside = (x >= self.x_min) & (x > 0)
        log_x = np.log(np.where(inside, x, 1.0))
        s = (log_x - self.mu) / self.sigma
        value = -0.5 * s * s - log_x - np.log(np.sqrt(2 * np.pi) * self.sigma) - self._log_mass
        return np.where(inside, value, -np.inf)

    def cdf(self, x: ArrayLike) -> Reals:
        at = np.maximum(np.asarray(x, dtype=float), self.x_min)
        with np.errstate(divide="ignore"):
            s = (np.log(at) - self.mu) / self.sigma
        return np.asarray(-np.expm1(np.minimum(scipy.special.log_ndtr(-s) - self._log_mass, 0.0)))

    def quantile(self, p: ArrayLike) -> Reals:
        with np.errstate(divide="ignore", over="ignore"):
            log_above = np.log1p(-require_levels(p)) + self._log_mass
            x = np.exp(self.mu - self.sigma * scipy.special.ndtri_exp(log_above))
        return np.asarray(np.maximum(x, self.x_min))

    def moment(self, order: int) -> float:
        """Return the k-th moment, `exp(k mu + k^2 sigma^2 / 2) P(s > s_min - k sigma) / P(s > s_min)`."""
        tail = scipy.special.log_ndtr(order * self.sigma - self._s_min) - self._log_mass
        with np.errstate(over="ignore"):
            return float(np.exp(order * self.mu + 0.5 * (order * self.sigma) ** 2 + tail))

    @property
    def _s_min(self) -> float:
        return float((np.log(self.x_min) - self.mu) / self.sigma) if self.x_min > 0 else -np.inf

    @property
    def _log_mass(self) -> float:
        return float(scipy.special.log_ndtr(-self._s_min))
