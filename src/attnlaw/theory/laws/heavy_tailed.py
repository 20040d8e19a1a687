"""High-temperature Marchenko-Pastur: a law of heavy-tailed weight spectra.

The law is the limit of the beta-Laguerre ensemble at beta = kappa/N (arXiv 2506.03470), scaled to mean 1. Its
second moment is `1 + gamma (1 + 2/kappa)`. As kappa -> infinity it becomes Marchenko-Pastur of ratio gamma.
As kappa -> 0 at fixed kappa/gamma it becomes the Gamma law of shape kappa/(2 gamma).

| letter | meaning |
|---|---|
| b | `kappa / 2` |
| a | `b (1/gamma - 1) - 1`: the density is `~ x^a` at zero |
| y | `b x / gamma`, in which the law is the orthogonality measure of associated Laguerre polynomials |
| f | `U(b, -a, -y + i0)`, Tricomi's function on its cut, up to a constant factor |

In y, the density is `y^a e^(-y) / (Gamma(b+1) Gamma(a+b+1) |f|^2)` and the transform `-f'/(b f)`. The density
is also `Im(f'/f)/(pi b)`, so the distribution function is the phase: `(arg f(y) - arg f(0)) / (pi b)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.core.errors import InputError
from attnlaw.numerics.tricomi import Cut, continued_fraction, log_growth, solve_cut
from attnlaw.theory.laws.law import Decades, HalfLine, Law, Piece, ToZero, require_levels, require_scale

# Above it the series of the density grow without end; below its inverse most mass is below 1e-300.
LARGEST_KAPPA = 1e5


@dataclass(frozen=True)
class HighTemperatureMP(Law):
    """The limit of the beta-Laguerre ensemble at beta = kappa/N, scaled to mean 1 (arXiv 2506.03470).

    The log-density is accurate up to rounding if the density is above about 1e-17 of its peak. Further out it
    is below -40, with an error below 1. The transform is not accurate at complex points within 1e-3 of zero.
    The method `nodes` omits a mass below 1e-290. If a + 1 < 0.05, nodes and moments are therefore wrong.

    Args:
        kappa: beta times N. Large values approach Marchenko-Pastur.
        gamma: the shorter side of the matrix divided by the longer side, between 0 and 1.

    >>> law = HighTemperatureMP(12.0, 0.25)
    >>> round(law.moment(2), 12), round(float(law.cdf(1.0)), 6)
    (1.291666666667, 0.559785)
    """

    kappa: float
    gamma: float

    def __post_init__(self) -> None:
        require_scale("high-temperature law: kappa", self.kappa, LARGEST_KAPPA)
        if not 0 < self.gamma < 1:
            raise InputError(
                f"high-temperature law: found gamma {self.gamma}, expected a number between 0 and 1; "
                "give the shorter side of the matrix divided by the longer"
            )

    @property
    def a(self) -> float:
        return self.b * (1 / self.gamma - 1) - 1

    @property
    def b(self) -> float:
        return self.kappa / 2

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return ((0.0, np.inf),)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The three parts of the support: below, inside and above the range in which f oscillates."""
        scale = self.gamma / self.b
        low = max(self.a, 1.0) ** 2 / (self._top + 1)
        return (
            ToZero(low * scale, (self.a + 1) ** (-1 if self.a < 0 else -2 / 3)),
            Decades(low * scale, self._top * scale),
            HalfLine(self._top * scale, float(np.sqrt(self._top)) * scale),
        )

    def log_density(self, x: ArrayLike) -> Reals:
        x = np.asarray(x, dtype=float)
        a, b, cut = self.a, self.b, self._cut
        y = np.where(x > 0, x, 1.0) * (b / self.gamma)
        peak = np.log(-cut.transform.imag / np.pi * b / self.gamma)
        solved = y.min(initial=np.inf) >= cut.edges[0] and y.max(initial=0.0) <= cut.edges[-1]
        log_size = cut.log_size(y) if solved else self._log_f(y).real
        value = peak + a * np.log(y / cut.start) - (y - cut.start) - 2 * log_size
        return np.where(x > 0, value, -np.inf)

    def density(self, x: ArrayLike) -> Reals:
        return np.asarray(np.exp(self.log_density(x)))

    def cdf(self, x: ArrayLike) -> Reals:
        y = np.maximum(np.asarray(x, dtype=float), 0.0) * (self.b / self.gamma)
        turned = self._log_f(np.maximum(y, 1e-300)).imag - self._cut.phase_at_zero
        return np.where(y > 0, np.clip(turned / (np.pi * self.b), 0.0, 1.0), 0.0)

    def quantile(self, p: ArrayLike) -> Reals:
        """Return the points at which the distribution function reaches the levels p."""
        p = require_levels(p)
        edges = self._cut.edges * (self.gamma / self.b)
        ends = np.log(np.concatenate([[1e-300], edges, [2 * edges[-1]]]))
        place = np.searchsorted(self.cdf(edges), p)
        below, above = ends[place], ends[place + 1]
        for _ in range(60):
            middle = 0.5 * (below + above)
            short = self.cdf(np.exp(middle)) < p
            below, above = np.where(short, middle, below), np.where(short, above, middle)
        return np.where(p >= 1, np.inf, np.where(p <= 0, 0.0, np.exp(above)))

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the Stieltjes transform: `-f'/(b f)` near the support, elsewhere a continued fraction."""
        z = np.asarray(z)
        y = z.astype(complex) * (self.b / self.gamma)
        upper = np.where(y.imag < 0, y.conj(), y)
        cut = self._cut
        step = cut.step(upper)
        near = (upper.real > cut.edges[0]) & (upper.real < cut.edges[-1])
        near &= upper.imag <= 0.5 * np.diff(cut.edges)[step]
        g = np.empty(y.shape, dtype=complex)
        g[near] = -cut.at(upper[near])[1] / self.b
        if not near.all():
            g[~near] = continued_fraction(self.a, self.b, upper[~near])
        return np.asarray(np.where(y.imag < 0, g.conj(), g) * (self.b / self.gamma))

    def moment(self, order: int) -> float:
        """Return the moment as the first entry of `J^order`, where J is the Jacobi matrix of the law.

        Here `J = L L^T` with `L_nn^2 = n + b/gamma` and `L_(n+1)n^2 = n + 1 + b`.
        """
        n = np.arange(order + 1)
        L = np.diag(np.sqrt(n + self.b / self.gamma)) + np.diag(np.sqrt(n[1:] + self.b), -1)
        vector = np.eye(order + 1)[0]
        for _ in range(order):
            vector = L @ (L.T @ vector) * (self.gamma / self.b)
        return float(vector[0])

    def _log_f(self, y: Reals) -> Complexes:
        """Return log f at y > 0, by its leading behaviour outside the range in which f was solved."""
        cut, a = self._cut, self.a
        low, high = cut.edges[0], cut.edges[-1]
        value, ratio = cut.at(np.clip(y, low, high))
        if a < 1:
            inward = np.log(1 + ratio * low / (1 + a) * np.expm1((1 + a) * np.log(np.minimum(y / low, 1.0))))
        else:
            inward = log_growth(a, self.b, np.minimum(y, low)) - log_growth(a, self.b, low)
            inward = inward + 1j * (cut.phase_at_zero - value.imag) * (y < low)
        outward = log_growth(a, self.b, np.maximum(y, high)) - log_growth(a, self.b, high)
        return np.asarray(value + inward + outward)

    @property
    def _top(self) -> float:
        """The largest y at which Tricomi's function f oscillates, or 1 if that is larger."""
        a, b = self.a, self.b
        return max(a + 2 * b + 2 * float(np.sqrt(max(b * b + a * b, 0.0))), 1.0)

    @cached_property
    def _cut(self) -> Cut:
        """Tricomi's function f on a range of y that contains all but 1e-17 of the mass."""
        a, top = self.a, self._top
        soft_edge = a * a / top * np.exp(-46 / (a + 1) - 8 / np.sqrt(a + 1))
        low = 1e-17 / max(self.b, 1.0) if a < 1 else soft_edge
        return solve_cut(a, self.b, float(low), float(top + 60 + 8 * np.sqrt(top)))
