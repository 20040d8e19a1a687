"""The base class of spectral laws, and the substitutions that quadrature uses on a law's support.

A law has total mass one, `sum(weight of atoms) + integral of density = 1`. The Stieltjes transform is
`g(z) = int dmu(t) / (z - t)`, so `g(z) ~ 1/z` far away and `density = -Im g(x + i0) / pi`.

Each piece of the support is a smooth image of the angle 0 < theta < pi:

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

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.core.errors import InputError
from attnlaw.numerics.quadrature import gauss_legendre


class Piece(Protocol):
    """A part of the support, from `low` to `high`, with a smooth map to it from angles between 0 and pi."""

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        """Return the points x at the angles theta, and the derivatives `dx/dtheta` there."""
        ...


@dataclass(frozen=True)
class Bounded:
    low: float
    high: float

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        half = 0.5 * (self.high - self.low)
        # Measure from the nearer edge, so that points next to an edge at zero keep all their digits.
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
        # Beyond 1e290 the remaining mass rounds to zero.
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
        # Mass below 1e-290 is left out, because floats end there.
        kept = self.unit * step < 667.0 + np.log(self.high)
        x = self.high * np.exp(-np.where(kept, self.unit * step, 0.0))
        return np.where(kept, x, 0.0), np.where(kept, x * self.unit * slope, 0.0)


def _squared_tangent(theta: Reals) -> tuple[Reals, Reals]:
    """Return `tan^2(theta/2)` and its derivative. Both stay finite up to theta = pi."""
    tangent = np.tan(np.minimum(theta, np.pi - 1e-12) / 2)
    return tangent**2, tangent * (1 + tangent**2)


NODES = 400
# Squares of parameters up to this size stay in float64.
LARGEST_SCALE = 1e100
LARGEST_RATIO = 1e12


class Law(ABC):
    """A probability law on the real line with finitely many intervals and atoms.

    A subclass defines `intervals`, at least one of `density` and `stieltjes`, and `atoms` if it has any. All
    other methods integrate over its `pieces`, by default `x = middle - half cos(theta)` on each interval. A
    law whose last interval is infinite must define its pieces.

    >>> from attnlaw.theory.laws.semicircle import Semicircle
    >>> law = Semicircle(1.0)
    >>> round(law.moment(4), 10), float(law.cdf(0.0))
    (2.0, 0.5)
    """

    @property
    @abstractmethod
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """The intervals on which the law has a density, in ascending order."""

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        """Pairs (location, weight) in ascending order of location. By default there are no atoms."""
        return ()

    def density(self, x: ArrayLike) -> Reals:
        """Return the density at `x` (any shape). It does not include the atoms.

        By default the density comes from the transform, `rho(x) = -Im g(x + i0)/pi`.
        """
        x = np.asarray(x, dtype=float)
        inside = self.inside(x)
        value = np.zeros(x.shape)
        value[inside] = -self.stieltjes(x[inside]).imag / np.pi
        return value

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the Stieltjes transform `g(z)`. By default the transform is computed from the density.

        For a real argument inside the support, the value is the limit from above, `z = x + i0`.
        """
        return self.stieltjes_by_quadrature(z)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The parts of the support on which quadrature runs, in ascending order."""
        return tuple(Bounded(low, high) for low, high in self.intervals)

    def log_density(self, x: ArrayLike) -> Reals:
        """Return the natural logarithm of the density, which is minus infinity where the density is zero."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.density(x)))

    @property
    def support(self) -> tuple[float, float]:
        """The smallest and the largest point of the support, including atoms."""
        points = [x for x, _ in self.atoms] + [end for pair in self.intervals for end in pair]
        return min(points), max(points)

    def inside(self, x: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each x is inside one of the open intervals that have a density."""
        x = np.asarray(x, dtype=float)
        return np.asarray(np.any([(x > low) & (x < high) for low, high in self.intervals], axis=0))

    @property
    def mass_of_atoms(self) -> float:
        return float(sum(weight for _, weight in self.atoms))

    def nodes(self) -> tuple[Reals, Reals]:
        """Return points and weights that integrate the density: `int f dmu = sum(weights * f(points))`."""
        u, w = gauss_legendre(NODES)
        points, weights = np.empty(0), np.empty(0)
        for piece in self.pieces:
            x, slope = piece.at(np.pi * u)
            points, weights = np.append(points, x), np.append(weights, np.pi * w * slope * self.density(x))
        # Far out on a half line the mass underflows, and powers of x would overflow.
        return points[weights > 0], weights[weights > 0]

    def moment(self, order: int) -> float:
        """Return the moment `int x^order dmu`."""
        x, w = self.nodes()
        return float(w @ x**order + sum(weight * place**order for place, weight in self.atoms))

    @property
    def mean(self) -> float:
        return self.moment(1)

    def cdf(self, x: ArrayLike) -> Reals:
        """Return the distribution function `mu((-inf, x])`, interpolated linearly in a fine table."""
        x = np.asarray(x, dtype=float)
        points, mass = self._table
        total = np.interp(x, points, mass) if points.size else np.zeros_like(x)
        for place, weight in self.atoms:
            total = total + weight * (x >= place)
        return np.asarray(total)

    def quantile(self, p: ArrayLike) -> Reals:
        """Return the smallest `x` with `cdf(x) >= p`, for `0 <= p <= 1`."""
        p = require_levels(p)
        points, mass = self._table
        places = np.array([place for place, _ in self.atoms])
        weights = np.array([weight for _, weight in self.atoms])
        # Each atom is a vertical step of F, so the table of (x, F) gets its lower and upper end.
        below = np.interp(places, points, mass, left=0.0) if points.size else np.zeros_like(places)
        foot = below + np.concatenate([[0.0], np.cumsum(weights)[:-1]]) if places.size else below
        shift = np.append(0.0, np.cumsum(weights))[np.searchsorted(places, points, side="right")]
        xs = np.concatenate([points, places, places])
        levels = np.concatenate([mass + shift, foot, foot + weights])
        order = np.lexsort((xs, levels))
        return np.asarray(np.interp(p, levels[order], xs[order]))

    def sample(self, size: int, seed: int | np.random.Generator) -> Reals:
        """Draw `size` independent values, by inverting the distribution function."""
        return self.quantile(np.random.default_rng(seed).random(size))

    def stieltjes_by_quadrature(self, z: ArrayLike) -> Complexes:
        """Return `g(z)`, computed from the density and the atoms alone.

        At a real x inside the support, the integral is `int (rho(t) - rho(x))/(x - t) dt`, where rho is the
        density. Subtracting rho(x) avoids the singularity at t = x.
        """
        z = np.asarray(z)
        place = z.astype(complex)
        g = np.zeros(z.shape, dtype=complex)
        with np.errstate(divide="ignore", invalid="ignore"):
            for at, weight in self.atoms:
                g += weight / (place - at)
        inside = np.zeros(z.shape, dtype=bool)
        if not np.iscomplexobj(z):
            inside |= self.inside(z)
        points, weights = self.nodes()
        g[~inside] += (weights / (place[~inside][..., None] - points)).sum(-1)
        g[inside] += self._boundary_by_quadrature(place.real[inside])
        return g

    def _boundary_by_quadrature(self, x: Reals) -> Complexes:
        """Return `g(x + i0)` at points x inside the support, without the part of the atoms."""
        here = self.density(x)
        g = -1j * np.pi * here
        u, w = gauss_legendre(NODES)
        for low, high in self.intervals:
            laid = [piece.at(np.pi * u) for piece in self.pieces if low <= piece.low and piece.high <= high]
            points, slope = (np.concatenate(parts) for parts in zip(*laid, strict=True))
            widths = np.pi * np.tile(w, len(laid)) * slope
            inside = (x > low) & (x < high)
            density = np.where(inside, here, 0.0)
            distance = x[..., None] - points
            if np.isinf(high):
                # Subtract an integrable function: rho(x) (x - low + L)/(t - low + L), L a middle length.
                length = points[points.size // 2] - low
                taken = density[..., None] * ((x - low + length)[..., None] / (points - low + length))
                ratio = np.where(inside, (x - low) / length, 1.0)
            else:
                taken = density[..., None]
                ratio = np.where(inside, (x - low) / np.where(inside, high - x, 1.0), 1.0)
            smooth = (self.density(points) - taken) / np.where(distance == 0, np.inf, distance)
            g = g + (widths * smooth).sum(-1) + density * np.log(ratio)
        return np.asarray(g)

    @cached_property
    def _table(self) -> tuple[Reals, Reals]:
        """Points, and the mass of the continuous part to the left of each."""
        xs: list[Reals] = []
        masses: list[Reals] = []
        reached = 0.0
        for piece in self.pieces:
            theta = np.linspace(0.0, np.pi, 4001)
            x, _ = piece.at(theta)
            at, slope = piece.at(0.5 * (theta[1:] + theta[:-1]))
            steps = self.density(at) * slope * (theta[1] - theta[0])
            mass = reached + np.concatenate([[0.0], np.cumsum(steps)])
            reached = float(mass[-1])
            xs.append(x)
            masses.append(mass)
        if not xs:
            return np.empty(0), np.empty(0)
        mass = np.concatenate(masses)
        return np.concatenate(xs), mass * ((1.0 - self.mass_of_atoms) / mass[-1])


def at_zero(weight: float) -> tuple[tuple[float, float], ...]:
    """Return an atom at zero with this weight, or no atom if the weight is not positive."""
    return ((0.0, weight),) if weight > 0 else ()


def require_scale(name: str, value: float, largest: float = LARGEST_SCALE, remedy: str = "rescale") -> None:
    """Raise an `InputError` if the powers of a parameter would not fit into float64."""
    if not 1 / largest <= value <= largest:
        raise InputError(f"{name} {value:g}: expected a number from {1 / largest:g} to {largest:g}; {remedy}")


def require_levels(p: ArrayLike) -> Reals:
    """Return the levels p of a quantile as an array. Raises an `InputError` if a level is outside [0, 1]."""
    p = np.asarray(p, dtype=float)
    if p.size and not (p.min() >= 0 and p.max() <= 1):
        raise InputError(
            f"quantile: expected levels between 0 and 1 (the smallest is {p.min()}, the largest {p.max()})"
        )
    return p
