"""Laws derived from another law: shrunk, rectified, thresholded, folded and mirrored.

X is an eigenvalue of `S + a Z` with the law mu_a (see `free_convolution`), g_a its transform, and Q the
second moment of S. E is the squared distance of the transformed matrix from S, per dimension.

**Shrunk**, the Bayes-optimal estimate. The posterior mean of S given `S + a Z` keeps the eigenvectors and
maps an eigenvalue x to `y(x) = x - 2 a^2 Re g_a(x)` (Bun, Allez, Bouchaud and Potters 2016, additive Gaussian
noise).

**Rectified**, soft thresholding. `f(x) = (x - b)_+` gives the spectrum of a trained, weight-decayed positive
semidefinite matrix (arXiv 2509.24914). State evolution needs the integrals `J = int f^2 dmu_a`,
`M1 = int f dmu_a` and `chi = 2 int f Re g_a dmu_a = (dJ/da) / (2a)`. The distance is
`E = Q - J - 2 b M1 + 2 a^2 chi`. For singular values with both signs, S square and Z of independent entries,
`f(x) = sign(x) (abs(x) - b)_+`; the integrals are over both sides, and the same formulas hold. A student of
limited width keeps only the values beyond a cut t > b: `f(x) = (x - b) 1(x > t)`. The same formulas hold with
the integrals taken above t.

If a and b are small, E is a difference of large terms. But the integrals over all of mu_a are known (mass 1,
second moment `Q + a^2`, `2 int x Re g = 1`), and the part below t (b without a cut) is of the size of a. So

    E = b^2 mass + int_(x<t) x^2 - a^2 + 2 a^2 chi,    chi = 1 - 2 int_(x<t) x Re g - 2 b int_(x>t) Re g.

**Thresholded**, hard thresholding. `f(x) = x` if `|x| > tau`, else 0, gives the spectrum of factors trained
from a vanishing start and stopped early (arXiv 2007.08322; it is our result that the flow acts as a
threshold). The distance is

    E = Q + int_(|x|>tau) (4 a^2 x Re g_a - x^2) dmu_a

**Folded**, the positive half of a symmetric law: singular values without their signs. **Mirrored**, the law
of -X, which an even output may learn instead of its target.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Indices, Reals
from attnlaw.core.settings import check_value
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.law import Bounded, Law, Piece

NEAR_END = 1e-4  # smallest angle on an interval; g is less accurate at the ends themselves


@dataclass(frozen=True)
class Shrunk(Law):
    """The law of the Bayes-optimal estimate `X - 2 sigma^2 Re g(X)`, where X has the law `base`."""

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
        """Return the density of the estimate y(X): that of X divided by dy/dx, from a fine table."""
        x = np.asarray(x, dtype=float)
        total = np.zeros(x.shape)
        for _, y, height in self._maps:
            total = total + np.where((x > y[0]) & (x < y[-1]), np.interp(x, y, height), 0.0)
        return total

    @cached_property
    def _maps(self) -> list[tuple[Reals, Reals, Reals]]:
        """Tables of x, y(x) and the density of y, one for each interval of the base law."""
        maps = []
        for low, high in self.base.intervals:
            theta = np.linspace(NEAR_END, np.pi - NEAR_END, 1201)
            x = 0.5 * (low + high) - 0.5 * (high - low) * np.cos(theta)
            g = self.base.stieltjes(x)
            y = x - 2 * self.base.sigma**2 * g.real
            slope = np.gradient(y, theta) / np.gradient(x, theta)
            maps.append((x, y, -g.imag / np.pi / np.maximum(slope, 1e-12)))
        return maps


# a^2 and b^2 are small if they are below this part of Q.
SMALL = 1e-4


@dataclass(frozen=True)
class Rectification:
    """The integrals of a soft threshold (defined in the module), one value for each pair (a, b).

    The module's docstring defines J, M1, chi and E. `mass` is the probability above the threshold b, and
    `slope` is the derivative of chi in b.
    """

    J: Reals
    M1: Reals
    chi: Reals
    mass: Reals
    E: Reals
    slope: Reals


def rectify(
    table: Truncated, b: Reals, which: Indices | None = None, cut: Reals | None = None
) -> Rectification:
    """Compute the integrals of `f(x) = (x - b)_+`, or of `(x - b) 1(x > cut)`, for the members `which`."""
    above, below = table.split(b if cut is None else np.maximum(b, cut), which)
    mass, first, second, plain, weighted = above
    J, M1, chi = second - 2 * b * first + b * b * mass, first - b * mass, 2 * (weighted - b * plain)
    Q, square = table.second_moment, (table.a if which is None else table.a[which]) ** 2
    small = np.maximum(square, b * b) < SMALL * Q
    mass = np.where(small, 1 - below[0], mass)
    chi = np.where(small, 1 - 2 * below[4] - 2 * b * plain, chi)
    chi = np.maximum(chi, 0.0)  # it is a mean of slopes, so only rounding makes it negative
    E = np.where(small, b * b * mass + below[2] - square, Q - J - 2 * b * M1) + 2 * square * chi
    return Rectification(J, M1, chi, mass, E, -2 * plain)


@dataclass(frozen=True)
class Rectified(Law):
    """The law of `scale (X - threshold)_+`, where X has the law `base`.

    It has an atom at zero and a shifted bulk.

    Args:
        sides: 2 for the law of `scale (abs(X) - threshold)_+` with a symmetric base.
        cut: the value of X below which the result is zero. The bulk then starts at `scale (cut - threshold)`.

    >>> from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
    >>> law = Rectified(FreeConvolution(MarchenkoPastur(0.5), 1.0), threshold=0.5)
    >>> round(float(law.atoms[0][1] + law.nodes()[1].sum()), 9)
    1.0
    """

    base: FreeConvolution
    threshold: float
    scale: float = 1.0
    sides: int = 1
    cut: float | None = None
    kept: float | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_value("scale of a rectified law", self.scale, float, greater_than=0)

    @property
    def _lower_cut(self) -> float:
        """The value of X below which the result is zero."""
        return self.threshold if self.cut is None else max(self.threshold, self.cut)

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        kept = [
            (max(low, self._lower_cut), high) for low, high in self.base.intervals if high > self._lower_cut
        ]
        return tuple(
            (self.scale * (low - self.threshold), self.scale * (high - self.threshold)) for low, high in kept
        )

    @cached_property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        weight = 1.0 - (self._kept() if self.kept is None else self.kept)
        return ((0.0, weight),) if weight > 1e-12 else ()

    def _kept(self) -> float:
        base = self.base
        table = (
            base.table if self.sides == 1 else Truncated(base.solved_base, np.array([base.sigma]), self.sides)
        )
        return float(table.above(np.array([self._lower_cut]))[0, 0])

    def density(self, x: ArrayLike) -> Reals:
        x = np.asarray(x, dtype=float) / self.scale
        value = self.base.density(np.maximum(x, 0.0) + self.threshold) * (self.sides / self.scale)
        return np.where((x > 0) & (x > self._lower_cut - self.threshold), value, 0.0)


@dataclass(frozen=True)
class Thresholded(Law):
    """The law of X after a hard threshold: 0 if |X| <= tau, otherwise X. X has the law `base`."""

    base: FreeConvolution
    tau: float

    def __post_init__(self) -> None:
        check_value("tau of a thresholded law", self.tau, float, minimum=0)

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        below = [(low, min(high, -self.tau)) for low, high in self.base.intervals]
        above = [(max(low, self.tau), high) for low, high in self.base.intervals]
        return tuple((low, high) for low, high in (*below, *above) if high > low)

    @cached_property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        weight = 1.0 - float(self._beyond[0])
        return ((0.0, weight),) if weight > 1e-12 else ()

    @property
    def distance(self) -> float:
        """The squared distance E between the thresholded and the noise-free matrix, per dimension."""
        _, _, second, _, weighted = self._beyond
        return float(self.base.table.second_moment + 4 * self.base.sigma**2 * weighted - second)

    def density(self, x: ArrayLike) -> Reals:
        x = np.asarray(x, dtype=float)
        return np.where(np.abs(x) > self.tau, self.base.density(x), 0.0)

    @cached_property
    def _beyond(self) -> Reals:
        """The integrals of 1, x, x^2, Re g and x Re g over |x| > tau."""
        above, _ = self.base.table.split(np.array([self.tau]))
        _, below = self.base.table.split(np.array([-self.tau]))
        return np.asarray((above + below)[:, 0])


@dataclass(frozen=True)
class Folded(Law):
    """The law of `abs(X)`, where X has the symmetric law `base`."""

    base: Law

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return tuple((max(low, 0.0), high) for low, high in self.base.intervals if high > 0)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(
            piece if piece.low >= 0 else Bounded(0.0, piece.high)
            for piece in self.base.pieces
            if piece.high > 0
        )

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        weights = ((place, (1 if place == 0 else 2) * weight) for place, weight in self.base.atoms)
        return tuple((place, weight) for place, weight in weights if place >= 0)

    def density(self, x: ArrayLike) -> Reals:
        x = np.asarray(x, dtype=float)
        return np.where(x >= 0, 2 * self.base.density(x), 0.0)


@dataclass(frozen=True)
class Mirrored(Law):
    """The law of `-X`, where X has the law `base`."""

    base: Law

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return tuple((-high, -low) for low, high in reversed(self.base.intervals))

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        return tuple((-place, weight) for place, weight in reversed(self.base.atoms))

    def density(self, x: ArrayLike) -> Reals:
        return self.base.density(-np.asarray(x, dtype=float))

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the transform of -X, which is `-g_base(-z)` (its conjugate at real z)."""
        z = np.asarray(z)
        g = -self.base.stieltjes(-z)
        return np.asarray(g if np.iscomplexobj(z) else g.conj())
