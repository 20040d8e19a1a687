"""Free convolution with a semicircle: the spectrum of a matrix seen through Gaussian noise.

`mu_a` is the limiting law of the eigenvalues of `S + a Z`. S has the base law, and Z is symmetric Gaussian
with spectrum on [-2, 2]. A symmetric base law represents singular values with both signs. Then mu_a is the
law of the singular values of `S + a Z`, Z square with independent entries (Benaych-Georges 2009). `Truncated`
gives integrals of mu_a above any threshold for many values of a, and `FreeConvolution` is one mu_a as a
`Law`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Indices, Reals
from attnlaw.core.errors import InputError
from attnlaw.numerics.quadrature import angle_of, cosine_coefficients, integral_above
from attnlaw.theory.laws.convolution_nodes import (
    Nodes,
    biane_curve,
    biane_nodes,
    cubic_edges,
    cubic_nodes,
    cubic_stieltjes,
    product_nodes,
    product_stieltjes,
)
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.law import LARGEST_RATIO, Law, require_scale
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.symmetric_product import SymmetricProduct

Base = MarchenkoPastur | Discrete | SymmetricProduct
QUANTILES = 400  # values that stand for another base law


class Truncated:
    """Integrals of 1, x, x^2, Re g and x Re g over the part x > b of mu_a, for several pairs (a, b).

    Their quadrature nodes depend only on a, so many thresholds b cost little. The attribute `second_moment`
    is the second moment of the base law.

    Args:
        a: standard deviations of the semicircle, of shape (batch,).
        sides: 1, or 2 for a symmetric base law and b >= 0. With 2 sides, the integrals are over `abs(x) > b`,
            of 1, abs(x), x^2, abs(Re g) and x Re g. Re g has the sign of x, so these integrals are twice
            those over `x > b`.
    """

    def __init__(self, base: Base, a: Reals, sides: int = 1) -> None:
        a = np.asarray(a, dtype=float)
        self.a, self.sides = a, sides
        self._is_plain = not isinstance(base, Discrete)
        self._members: list[tuple[Indices, tuple[Nodes, ...]]]
        if isinstance(base, Discrete):
            s, p = base.arrays
            self.second_moment = float(p @ s**2)
            self._members = [(np.array([i]), biane_nodes(s, p, float(width))) for i, width in enumerate(a)]
        else:
            scale, ratio = base.scale, base.rank_ratio
            is_cubic = isinstance(base, MarchenkoPastur)
            self.second_moment = scale**2 * (1 + ratio) if is_cubic else scale**2
            groups = (cubic_nodes if is_cubic else product_nodes)(ratio, a / scale)
            self._members = [(rows, (_rescaled(nodes, scale),)) for rows, nodes in groups]
        if sides == 2:
            self._members = [
                (rows, tuple(_not_negative(nodes) for nodes in groups if nodes.high.max() > 0))
                for rows, groups in self._members
            ]
        self._owner, self._row = np.empty((2, a.size), dtype=int)
        for owner, (rows, _) in enumerate(self._members):
            self._owner[rows], self._row[rows] = owner, np.arange(rows.size)

    @cached_property
    def _series(self) -> list[list[_Series]]:
        return [[_Series(nodes, self._position(nodes)) for nodes in groups] for _, groups in self._members]

    def _position(self, nodes: Nodes) -> Reals:
        """Return the cosine coefficients of x as a function of the angle."""
        if not self._is_plain:
            return cosine_coefficients(nodes.x)
        return np.stack([0.5 * (nodes.low + nodes.high), 0.5 * (nodes.low - nodes.high)], axis=-1)

    @property
    def top(self) -> Reals:
        """The upper edge of mu_a, for each a."""
        tops = np.empty(self.a.size)
        for rows, groups in self._members:
            tops[rows] = np.max([nodes.high.max(axis=1) for nodes in groups], axis=0)
        return tops

    def above(self, b: Reals, which: Indices | None = None) -> Reals:
        """Return the five integrals over `x > b`, as an array of shape (5, batch)."""
        return self.split(b, which)[0]

    def split(self, b: Reals, which: Indices | None = None) -> tuple[Reals, Reals]:
        """Return the five integrals over `x > b`, and the same over `x < b`, each of shape (5, batch)."""
        chosen = np.arange(self.a.size) if which is None else which
        above, below = np.zeros((2, 5, chosen.size))
        for owner, series in enumerate(self._series):
            place = np.flatnonzero(self._owner[chosen] == owner)
            for part in series if place.size else ():
                rows = self._row[chosen[place]]
                upper = part.above(b[place], rows)
                # Differences on each interval are accurate even if all that is below b is tiny.
                lower = part.total[:, rows] - upper
                if self.sides == 2:
                    # An interval around zero has both sides; the others also stand for their mirror images.
                    lower = np.where(part.nodes.low[rows] < 0, lower - upper, 2 * lower)
                    # The integrals of x and Re g over abs(x) < b vanish by symmetry.
                    lower[[1, 3]] = 0.0
                above[:, place] += self.sides * upper.sum(axis=-1)
                below[:, place] += lower.sum(axis=-1)
        return above, below

    def node_groups(self) -> tuple[tuple[Indices, tuple[Nodes, ...]], ...]:
        return tuple(self._members)


def _rescaled(nodes: Nodes, scale: float) -> Nodes:
    return Nodes(nodes.low * scale, nodes.high * scale, nodes.x * scale, nodes.mass, nodes.re_g / scale)


def _not_negative(nodes: Nodes) -> Nodes:
    """Return the nodes of those intervals that reach above zero for some member of the batch."""
    kept = nodes.high.max(axis=0) > 0
    return Nodes(*(value[:, kept] for value in vars(nodes).values()))


class _Series:
    """Cosine series for the five integrals on the intervals of one group of nodes."""

    def __init__(self, nodes: Nodes, position: Reals) -> None:
        self.nodes = nodes
        functions = np.stack([np.ones_like(nodes.x), nodes.x, nodes.x**2, nodes.re_g, nodes.x * nodes.re_g])
        self.coefficients = cosine_coefficients(functions * nodes.mass)
        self.position = position
        self.total = np.pi * self.coefficients[..., 0]

    def above(self, b: Reals, which: Indices) -> Reals:
        """Return the five integrals over `x > b` on each interval, of shape (5, members, intervals)."""
        low, high = self.nodes.low[which], self.nodes.high[which]
        total = np.where(b[:, None] < high, self.total[:, which], 0.0)
        cut = (low < b[:, None]) & (b[:, None] < high)
        rows, columns = np.nonzero(cut)
        if rows.size:
            theta = angle_of(self.position[which[rows], columns], b[rows])
            total[:, rows, columns] = integral_above(self.coefficients[:, which[rows], columns], theta)
        return np.asarray(total)


@dataclass(frozen=True)
class FreeConvolution(Law):
    """The law of the eigenvalues of `S + sigma Z`: a base law convolved with a semicircle (Voiculescu).

    If the base law is Marchenko-Pastur, discrete or a symmetric product, the result is exact up to rounding.
    attnlaw replaces any other base law by 400 of its quantiles, and `approximation` says so. The error of the
    distribution function is then at most 1/800, because a free convolution never increases the
    Kolmogorov-Smirnov distance between two laws (Bercovici and Voiculescu 1993).

    >>> law = FreeConvolution(MarchenkoPastur(0.5), 1.0)
    >>> abs(law.moment(2) - 2.5) < 1e-11, law.approximation
    (True, None)
    >>> from attnlaw.theory.laws.semicircle import Semicircle
    >>> FreeConvolution(Semicircle(1.0), 1.0).approximation
    '400 quantiles are used to approximate the base law Semicircle'
    """

    base: Law
    sigma: float

    def __post_init__(self) -> None:
        require_scale("free convolution: sigma", self.sigma)
        most = LARGEST_RATIO * max(abs(end) for end in self.solved_base.support)
        if self.sigma > most:
            raise InputError(
                f"free convolution: found sigma {self.sigma:g}, expected at most {most:g}: above this, "
                "rounding errors hide the base law; use a semicircle instead"
            )

    @property
    def approximation(self) -> str | None:
        """A sentence that describes how the base law was approximated, or None if it was not."""
        if isinstance(self.base, Base):
            return None
        return f"{QUANTILES} quantiles are used to approximate the base law {type(self.base).__name__}"

    @cached_property
    def solved_base(self) -> Base:
        """The base law that is used: the given one, or a discrete law of its quantiles."""
        if isinstance(self.base, Base):
            return self.base
        levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
        return Discrete(tuple(self.base.quantile(levels).tolist()), (1 / QUANTILES,) * QUANTILES)

    @cached_property
    def table(self) -> Truncated:
        """The table from which integrals of this law above any threshold are computed."""
        return Truncated(self.solved_base, np.array([self.sigma]))

    @property
    def _groups(self) -> tuple[Nodes, ...]:
        return self.table.node_groups()[0][1]

    @cached_property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        if isinstance(self.solved_base, MarchenkoPastur):  # its edges need no nodes
            scale = self.solved_base.scale
            ends = cubic_edges(self.solved_base.rank_ratio, np.array([self.sigma / scale]))
            edges = [(scale * ends[0], scale * ends[1])]
        else:
            edges = [(nodes.low, nodes.high) for nodes in self._groups]
        pairs = (pair for low, high in edges for pair in zip(low[0].tolist(), high[0].tolist(), strict=True))
        return tuple(sorted((low, high) for low, high in pairs if high > low))

    def density(self, x: ArrayLike) -> Reals:
        return np.asarray(-self.stieltjes(x).imag / np.pi)

    def nodes(self) -> tuple[Reals, Reals]:
        x = [nodes.x.ravel() for nodes in self._groups]
        weights = [nodes.mass.ravel() * (np.pi / nodes.x.shape[-1]) for nodes in self._groups]
        return np.concatenate(x), np.concatenate(weights)

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the Stieltjes transform `g(z)`.

        At real points the value is the limit from above. Inside the support it comes from a closed form or
        from Biane's curve, and elsewhere from subordination.
        """
        z = np.asarray(z)
        if np.iscomplexobj(z):
            return self._subordinate(z.astype(complex))
        x = np.asarray(z, dtype=float)
        inside = self.inside(x)
        g = np.empty(x.shape, dtype=complex)
        g[inside] = self._boundary(x[inside])
        # Off the support g is real: take the limit from just above the line.
        g[~inside] = self._subordinate(x[~inside] + 1e-14j * self.sigma).real
        return g

    def _boundary(self, x: Reals) -> Complexes:
        if not isinstance(self.solved_base, Discrete):
            scale = self.solved_base.scale
            solve = cubic_stieltjes if isinstance(self.solved_base, MarchenkoPastur) else product_stieltjes
            re_g, density = solve(self.solved_base.rank_ratio, np.array(self.sigma / scale), x / scale)
            return np.asarray((re_g - 1j * np.pi * density) / scale)
        s, p = self.solved_base.arrays
        # |g| <= 1/sigma on the boundary, so |x - u| <= sigma.
        below, above = x - self.sigma, x + self.sigma
        for _ in range(56):
            middle = 0.5 * (below + above)
            short = biane_curve(s, p, self.sigma, middle)[0] < x
            below, above = np.where(short, middle, below), np.where(short, above, middle)
        u = 0.5 * (below + above)
        v = biane_curve(s, p, self.sigma, u)[1]
        return np.asarray((x - u - 1j * v) / self.sigma**2)

    def _subordinate(self, z: Complexes) -> Complexes:
        """Return `g(z) = g_base(w)`, where w solves `w = z - a^2 g_base(w)` in the half plane of z."""
        side = np.where(z.imag < 0, -1.0, 1.0)

        def step(w: Complexes) -> Complexes:
            return np.asarray(z - self.sigma**2 * self.solved_base.stieltjes(w))

        w = z + 1j * self.sigma * side
        for _ in range(200):
            first = step(w)
            second = step(first)
            # Use Steffensen's extrapolation if it stays in the half plane, else the averaged iteration.
            bend = second - 2 * first + w
            with np.errstate(divide="ignore", invalid="ignore"):
                new = w - (first - w) ** 2 / bend
            usable = np.isfinite(new) & (new.imag * side > 0)
            new = np.where(usable, new, 0.5 * (first + second))
            settled = np.abs(first - w) <= 1e-15 * (1 + np.abs(w))
            w = np.where(settled, first, new)
            if settled.all():
                break
        return self.solved_base.stieltjes(w)
