"""How a law's support is laid out for quadrature: each piece is a smooth image of the angle 0 < theta < pi.

| piece | substitution | made for |
|---|---|---|
| `Bounded` | `x = middle - half cos(theta)` | square-root edges, a density like 1/sqrt(x) at a hard edge |
| `HalfLine` | `x = low + unit tan^2(theta/2)` | light tails (exponential) |
| `HeavyHalfLine` | `x = low exp(unit tan^2(theta/2))` | power-law and lognormal tails |
| `Decades` | `log x = middle - half cos(theta)` | positive intervals over several orders of magnitude |
| `HardEdge` | `x = high sin^order(theta/2)` | a density like x^(1/order - 1) at zero |
| `ToZero` | `x = high exp(-unit cot^2(theta/2))` | any integrable power of x at zero |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


class Piece(Protocol):
    """A stretch of the support from `low` to `high`, covered as theta runs from 0 to pi."""

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        """`x` and `dx/dtheta`."""
        ...


@dataclass(frozen=True)
class Bounded:
    low: float
    high: float

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        half = 0.5 * (self.high - self.low)
        # From the nearer edge, so that points next to an edge at zero keep all their digits.
        near_low = self.low + 2 * half * np.sin(theta / 2) ** 2
        near_high = self.high - 2 * half * np.cos(theta / 2) ** 2
        return np.where(theta < np.pi / 2, near_low, near_high), half * np.sin(theta)


@dataclass(frozen=True)
class Decades:
    low: float
    high: float

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        ratio, slope = Bounded(0.0, float(np.log(self.high / self.low))).at(theta)
        x = self.low * np.exp(ratio)
        return x, x * slope


@dataclass(frozen=True)
class HalfLine:
    low: float
    unit: float
    high: float = np.inf

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        step, slope = _squared_tangent(theta)
        return self.low + self.unit * step, self.unit * slope


@dataclass(frozen=True)
class HeavyHalfLine:
    low: float
    unit: float
    high: float = np.inf

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        step, slope = _squared_tangent(theta)
        # Beyond 1e290 no mass is left that a float could tell from zero.
        x = self.low * np.exp(np.minimum(self.unit * step, 667.0 - np.log(self.low)))
        return x, x * self.unit * slope


@dataclass(frozen=True)
class HardEdge:
    high: float
    order: int
    low: float = 0.0

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        sine, cosine = np.sin(theta / 2), np.cos(theta / 2)
        lower = self.high * sine ** (self.order - 1)
        return lower * sine, 0.5 * self.order * lower * cosine


@dataclass(frozen=True)
class ToZero:
    high: float
    unit: float
    low: float = 0.0

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        step, slope = _squared_tangent(np.pi - theta)
        # What lies below 1e-290 is left out: floats end there.
        kept = self.unit * step < 667.0 + np.log(self.high)
        x = self.high * np.exp(-np.where(kept, self.unit * step, 0.0))
        return np.where(kept, x, 0.0), np.where(kept, x * self.unit * slope, 0.0)


def _squared_tangent(theta: Reals) -> tuple[Reals, Reals]:
    """`tan^2(theta/2)` and its derivative, finite up to theta = pi."""
    tangent = np.tan(np.minimum(theta, np.pi - 1e-12) / 2)
    return tangent**2, tangent * (1 + tangent**2)
