"""The rational map behind `MultiHeadLaw`: a Stieltjes transform as a root, its certificate, edges, moments.

| letter | meaning |
|---|---|
| c_j, rho_j | shares, and `c_j / g_j`; `rest = 1 - sum c_j` |
| a | factors, ascending; M of them, 1 among them |
| u(y) | `y [rest + sum_j c_j / (1 - rho_j y)] = N(y)/D(y)` |
| z(y) | `prod_a (1 + u/a) / y` |

For Im z < 0 the physical root y is the one with `Im y > 0`, `Im u > 0` and
`arg(1/z) + sum_(a != 1) arg(1 + u/a) < pi`: each factor is a Marchenko-Pastur one, peeled by Silverstein's
uniqueness. All arguments of factors then lie between 0 and pi and add up to `arg y + arg z`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.polynomial import polynomial as poly
from numpy.typing import NDArray

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.numerics.polynomial_roots import monic_roots

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RationalMap:
    """`u(y)` and `z(y)` of the shares and factors of a law, and what follows from them.

    >>> plain = RationalMap(1.0, np.array([0.0]), np.array([0.0]), (1.0, 1.0))  # u = y, z = (1 + y)^2 / y
    >>> float(plain.z_at(plain.top)), [round(plain.moment(k), 12) for k in (1, 2, 3)]
    (4.0, [1.0, 2.0, 5.0])
    """

    rest: float
    shares: Reals
    rho: Reals
    factors: tuple[float, ...]

    def u(self, y: Any) -> Any:
        return y * (self.rest + (self.shares / (1 - self.rho * np.asarray(y)[..., None])).sum(-1))

    def slope(self, y: Any) -> Any:
        """`du/dy`."""
        return self.rest + (self.shares / (1 - self.rho * np.asarray(y)[..., None]) ** 2).sum(-1)

    def z_at(self, y: Any) -> Any:
        """`z(y)`."""
        u = self.u(y)
        return np.prod([1 + u / a for a in self.factors], axis=0) / y

    def moment(self, order: int) -> float:
        """The coefficient of `z^(-order)` in `z g(z)`: the moment in units of the mean."""
        powers = [float((self.shares * self.rho**i).sum()) for i in range(order)]
        u = np.array([0.0, *powers])
        u[1:2] += self.rest
        return inverted_moment(u, _product(np.append(1.0, u[1:] / a) for a in self.factors), order)

    @cached_property
    def critical(self) -> Complexes:
        """The y where `z'(y) = 0` and z is not: zeros of `z'/z` times its poles, equal factors taken once."""
        D, B = self._polynomials
        once = dict(zip(self.factors, B, strict=True))
        C = -np.convolve(poly.polyadd(D, np.append(0.0, len(B) * poly.polyder(D))), _product(once.values()))
        for a, polynomial in once.items():
            others = _product(other for b, other in once.items() if b != a)
            slope = self.factors.count(a) * np.append(0.0, poly.polyder(polynomial))
            C = poly.polyadd(C, _product([slope, others, D]))
        s = monic_roots((C[1:] / C[0]).astype(complex))
        return np.asarray(1 / s[np.abs(s) > 1e-200])

    @property
    def real_critical(self) -> Reals:
        """The real ones; also the two of a nearly double one, which rounding moves off the line."""
        y = self.critical
        return np.asarray(y.real[np.abs(y.imag) <= 1e-7 * np.abs(y)])

    @cached_property
    def top(self) -> float:
        """y at the upper edge: the least positive critical point."""
        y = self.real_critical
        return float(y[y > 0].min())

    def density_is_positive(self, z: Reals) -> Mask:
        """Whether the density is positive at real z: whether a root off the line passes."""
        _, passes, residual = self._candidates(z.astype(complex))
        return np.asarray((passes & (residual < 1e-8)).any(-1))

    def transform(self, z: Complexes) -> Complexes:
        """The physical root y at Im z <= 0; rounding may let a false one pass, whose residual is larger."""
        y, passes, residual = self._candidates(z)
        # None passes where rounding turned it: then the least residual alone.
        best = np.where(passes | ~passes.any(-1, keepdims=True), residual, np.inf).argmin(-1)
        root = np.take_along_axis(y, best[..., None], axis=-1)[..., 0]
        if self._smallest_count < 2:
            return np.asarray(root)
        # Next to a hard edge the roots cluster, and the edge itself is the better start.
        return np.asarray(np.where(np.abs(z) < self._edge_radius, self._from_zero(z), root))

    def refine(self, y: Complexes, z: Complexes) -> Complexes:
        """Two steps of Newton's method on `log z(y)`."""
        for _ in range(2):
            u = self.u(y)
            steep = sum(self.slope(y) / (a + u) for a in self.factors) - 1 / y
            with np.errstate(all="ignore"):
                new = y - np.log(self.z_at(y) / z) / steep
            better = np.abs(self.z_at(new) / z - 1) < np.abs(self.z_at(y) / z - 1)
            y = np.where(better, new, y)
        return np.asarray(y)

    def one_plus_u(self, y: Complexes, z: Complexes) -> Complexes:
        """`1 + u` for Im z <= 0 from the smallest factor: no digits are lost where it vanishes."""
        least = self.factors[0]
        w = self._least_factor(y, z)
        return np.asarray(w if least == 1 else 1 - least + least * w)

    @cached_property
    def _polynomials(self) -> tuple[Reals, tuple[Reals, ...]]:
        """D and `D + N/a` for each factor; ascending coefficients."""
        lines = [np.array([1.0, -rho]) for rho in self.rho]
        D = _product(lines)
        N = self.rest * D
        for j, share in enumerate(self.shares):
            N = poly.polyadd(N, share * _product(lines[:j] + lines[j + 1 :]))
        N = np.append(0.0, N)
        return D, tuple(np.asarray(poly.polyadd(D, N / a)) for a in self.factors)

    @cached_property
    def _equation(self) -> tuple[Reals, Reals]:
        """`P = prod_a (D + N/a)` and `y D^M`, of one length: `P - z y D^M = 0`, monic in 1/y."""
        D, B = self._polynomials
        P, lead = _product(B), np.append(0.0, _product([D] * len(B)))
        return P, np.append(lead, np.zeros(P.size - lead.size))

    def _candidates(self, z: Complexes) -> tuple[Complexes, Mask, Reals]:
        """All roots y, those that pass for the physical one, and their residuals, for Im z <= 0."""
        P, lead = self._equation
        s = monic_roots(P[1:] - z[..., None] * lead[1:])
        others = list(self.factors)
        others.remove(1.0)
        with np.errstate(all="ignore"):
            y = 1 / s
            u = self.u(y)
            turn = np.abs(np.angle(z))[..., None] + sum(np.angle(1 + u / a) for a in others)
            residual = np.abs(self.z_at(y) / z[..., None] - 1)
        # Real roots have imaginary parts by rounding.
        passes = (y.imag > 1e-12 * np.abs(y)) & (u.imag > 0) & (turn < np.pi)
        return y, passes, np.where(np.isfinite(residual), residual, np.inf)

    @property
    def _smallest_count(self) -> int:
        """How many factors equal the smallest."""
        return self.factors.count(self.factors[0])

    def _least_factor(self, y: Complexes, z: Complexes) -> Complexes:
        """`1 + u/a` of the smallest a from `prod_a (1 + u/a) = z y`, its argument without a turn."""
        rest = [1 + self.u(y) / a for a in self.factors if a != self.factors[0]]
        size = np.abs(z * y) / np.prod([np.abs(factor) for factor in rest], axis=0)
        turn = np.abs(np.angle(y)) - np.abs(np.angle(z)) - sum(np.abs(np.angle(factor)) for factor in rest)
        return np.asarray(size ** (1 / self._smallest_count) * np.exp(1j * turn / self._smallest_count))

    @cached_property
    def _y_at_zero(self) -> float:
        """y where u reaches minus the smallest factor."""
        _, B = self._polynomials
        roots = poly.polyroots(B[0]).astype(complex)
        return float(roots.real[(np.abs(roots.imag) <= 1e-9 * np.abs(roots)) & (roots.real < 0)].max())

    @cached_property
    def _edge_radius(self) -> float:
        """Up to this z the smallest factor is below 0.03."""
        y = np.array(self._y_at_zero, dtype=complex)
        return float(
            0.03**self._smallest_count
            / np.abs(self._least_factor(y, np.array(1.0 + 0j))) ** self._smallest_count
        )

    def _from_zero(self, z: Complexes) -> Complexes:
        """y near a hard edge: the smallest factor gives u, a step of Newton's method y; each gains digits."""
        y = np.full(z.shape, self._y_at_zero, dtype=complex)
        with np.errstate(all="ignore"):
            for _ in range(16):
                u = self.factors[0] * (self._least_factor(y, z) - 1)
                y = y - (self.u(y) - u) / self.slope(y)
        return y


def inverted_moment(u: Reals, F: Reals, order: int) -> float:
    """The coefficient of `z^(-k)` in `1 + u`, where `z y = F(y)`: `[y^(k-1)] u'(y) F(y)^k / k` (Lagrange).

    k is the order; `u` and `F` are series in y, ascending, at least up to that power.
    """
    if order == 0:
        return 1.0
    slope = u[1 : order + 1] * np.arange(1, order + 1)
    power = reduce(lambda p, q: np.convolve(p, q)[:order], [F] * order)
    return float(np.convolve(slope, power)[order - 1] / order)


def _product(polynomials: Iterable[Any]) -> Reals:
    return np.asarray(reduce(np.convolve, polynomials, np.ones(1)))
