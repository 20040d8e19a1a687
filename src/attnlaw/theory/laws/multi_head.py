"""The law of the attention matrices, values or output of multi-head attention at initialisation.

There are n tokens, h heads, head sizes d_K and d_V, and an output of size d_O. Queries and keys have standard
Gaussian entries, `S_r = Q_r K_r^T / sqrt(d_K)`, `A_r = softmax(beta S_r)` by rows, and
`A_r^perp = A_r - 1 1^T / n`. V_r is standard Gaussian, and W^O is Gaussian of variance 1/(h d_V). The law is
that of the n squared singular values, including zeros (arXiv 2610.10033, which extends 2510.06685), of

| given | matrix | mean | factors a |
|---|---|---|---|
| heads, keys | `sqrt(n/h) [A_1^perp ... A_h^perp]` (C.9) | theta | 1, h |
| and values | `Z_V = [A_1^perp V_1 ... A_h^perp V_h]` (Prop. C.5) | gV theta | 1, h, gV |
| and output | `Z_V W^O` (C.15) | gO theta | 1, h, gV, gO |

Heads may share keys and values: the limits stay the same. The head mean `sqrt(n h) (mean_r A_r - 1 1^T/n)`
has the law of one head with the same gK (Prop. C.6), or with `gK / h` if all heads share one key.

| letter | meaning |
|---|---|
| gK, gV, gO | `h d_K/n`, `h d_V/n`, `d_O/n`: totals over all heads |
| theta | `e^(beta^2) - 1` |
| c_j, g_j | `beta^(2j) / (j! theta)`, `h C(d_K + j - 1, j)/n`: share and ratio of the j-th Hermite term |
| rho_j, rest | `c_j / g_j`, `1 - sum c_j` |
| z | `x / mean` |
| y | the transform of the law of the heads at the subordinated point; `y ~ 1/z` far away |
| u | `z g(z) - 1` |

One rational function replaces the paper's system (C.29):

    u(y) = y [rest + sum_j c_j / (1 - rho_j y)] = N(y)/D(y),    z(y) = prod_a (1 + u/a) / y.

The paper has only the first Hermite term (j = 1). The second, for narrow heads, is an extension.

For Im z < 0 the physical root y is the one with `Im y > 0`, `Im u > 0` and
`arg(1/z) + sum_(a != 1) arg(1 + u/a) < pi`. To see this, remove one factor at a time: each is a
Marchenko-Pastur one, and Silverstein's uniqueness applies. All arguments of factors are then between 0 and pi
and add up to `arg y + arg z`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from math import factorial
from typing import Any

import numpy as np
import scipy
from numpy.polynomial import polynomial as poly
from numpy.typing import ArrayLike, NDArray

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value
from attnlaw.numerics.polynomial_roots import monic_roots
from attnlaw.theory.laws.attention_matrix import require_beta
from attnlaw.theory.laws.law import Bounded, Decades, HardEdge, Law, Piece, at_zero, require_scale

LARGEST_GAMMA = 1e4
TINY = 1e-12  # a lower edge below this part of the upper edge counts as zero


@dataclass(frozen=True)
class MultiHeadLaw(Law):
    """The limit of the squared singular values of centred multi-head attention as n -> infinity.

    The given ratios decide whether this is the law of the attention matrices, values or output.

    The rank is `min(n, h d_V, d_O)`, so the atom at zero has weight `1 - min(1, gV, gO)`. The law does not
    apply to causal masks, to correlated tokens, or if beta is near `few_rows_beta(n)`. If the smallest
    factors differ by less than a percent but are not equal, the density near zero loses digits.

    Args:
        beta: standard deviation of the attention logits in a row.
        key_ratio: the total size of all keys divided by the number of tokens n (gK).
        value_ratio: the total size of all values divided by n (gV). None means the law of the attention
            matrices.
        output_ratio: the output size divided by n (gO). None means the law before the output matrix.
        head_size: the head size d_K of a finite layer, to keep the second Hermite term (an extension). Narrow
            heads need this term unless `h d_K (d_K + 1)` is far above 2n.

    >>> law = MultiHeadLaw(1.0, heads=12, key_ratio=1.5, value_ratio=1.5, output_ratio=1.5)
    >>> [round(end, 4) for end in law.intervals[0]], round(law.moment(2) / law.mean**2 - 1, 4)
    ([0.0131, 16.0604], 1.6425)
    """

    beta: float
    heads: int
    key_ratio: float
    value_ratio: float | None = None
    output_ratio: float | None = None
    head_size: int | None = None

    def __post_init__(self) -> None:
        if self.output_ratio is not None and self.value_ratio is None:
            raise InputError("multi-head law: found an output ratio without a value ratio; give both")
        require_beta("multi-head law", self.beta)
        check_value("multi-head law: heads", self.heads, int, minimum=1, maximum=LARGEST_GAMMA)
        for name in ("key_ratio", "value_ratio", "output_ratio", "head_size"):
            value = getattr(self, name)
            if value is not None:
                require_scale(f"multi-head law: {name.replace('_', ' ')}", value, LARGEST_GAMMA)

    @property
    def theta(self) -> float:
        return float(np.expm1(self.beta**2))

    @property
    def mean(self) -> float:
        return self.theta * (self.output_ratio or self.value_ratio or 1.0)

    @property
    def factors(self) -> tuple[float, ...]:
        """The factors a of the module's table, in ascending order."""
        given = (self.value_ratio, self.output_ratio)
        return tuple(sorted((1.0, float(self.heads), *(a for a in given if a is not None))))

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        return at_zero(1 - self.factors[0])

    @cached_property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """The intervals on which the density is positive."""
        top = float(self.map.z_at(self.map.top))
        ends = np.sort(self.map.z_at(self.map.real_critical))
        ends = ends[(ends > 0) & (ends <= top)]
        # Two ends within rounding of each other are a gap that is about to open; it counts as closed.
        ends = ends[np.append(True, np.diff(ends) > 1e-7 * ends[1:])]
        kept = np.append(0.0, ends[ends > TINY * top])
        on = self.map.density_is_positive(0.5 * (kept[1:] + kept[:-1]))
        # If the two smallest factors are equal, there is no lower edge.
        on[0] = self.factors[0] == self.factors[1] or kept.size <= ends.size
        steps = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(int)))
        pairs = zip(kept[steps[::2]], kept[steps[1::2]], strict=True)
        return tuple((float(low * self.mean), float(high * self.mean)) for low, high in pairs)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The intervals on which integrals are computed, split where a gap is about to open."""
        places = self.map.z_at(self.map.critical)
        sharp = [float(x.real) * self.mean for x in places if 0 < x.imag < 0.1 * x.real]
        order = max(2, self.factors.count(self.factors[0]))
        pieces: list[Piece] = []
        for low, high in self.intervals:
            inner = sorted(x for x in sharp if 1.01 * low < x < 0.99 * high)
            pieces += [make_piece(*ends, order) for ends in pairwise([low, *inner, high])]
        return tuple(pieces)

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the Stieltjes transform `g = (1 + u)/x`."""
        place = np.asarray(z).astype(complex)
        x = place / self.mean
        inside = self.inside(place.real)
        off = (np.abs(x.imag) <= 1e-11 * np.abs(x.real)) & ~inside
        flip = (x.imag > 0) | ((x.imag == 0) & inside)
        # Off the support, solve just below the line first, then on it.
        line = np.where(off, x.real - (x == 0) * 1e-280, np.where(flip, x.conj(), x))
        y = self.map.transform(line - 1j * np.where(off, 1e-8 * np.abs(line), 0.0))
        y = self.map.refine(np.where(off, y.real, y), line)
        g = self.map.one_plus_u(y, line) / line / self.mean
        return np.asarray(np.where(flip, g.conj(), g))

    def moment(self, order: int) -> float:
        return self.map.moment(order) * self.mean**order

    def spike(self, squared_size: float) -> float | None:
        """Return the position of the outlier that a rank-one term causes, or None if there is no outlier.

        The term is `l p q^T`, added to the attention matrices `sqrt(n/h) [A_r^perp]`, with random unit
        vectors p and q. By subordination, the outlier is at the point with `l^2 y = theta` (not in the
        paper).

        >>> law = MultiHeadLaw(0.7, heads=16, key_ratio=16 * 0.064)
        >>> round(law.spike(0.7**4 / (2 * 0.064)), 3), law.spike(0.1)
        (2.747, None)
        """
        y = self.theta / squared_size if squared_size > 0 else np.inf
        return float(self.mean * self.map.z_at(y)) if y < self.map.top else None

    @cached_property
    def map(self) -> RationalMap:
        b, orders = self.beta**2, 1 if self.head_size is None else 2
        c = np.array([b**j / factorial(j) for j in range(1, orders + 1)]) / self.theta
        # The rest of the exponential series, without cancellation.
        first = b ** (orders + 1) / factorial(orders + 1)
        rest = first * float(scipy.special.hyp1f1(1.0, orders + 2.0, b)) / self.theta
        # g_2 = gK (d_K + 1)/2
        wide = np.array([1.0] if self.head_size is None else [1.0, 0.5 * (self.head_size + 1)])
        return RationalMap(rest, c, c / (self.key_ratio * wide), self.factors)


def make_piece(low: float, high: float, order: int) -> Piece:
    """Return a quadrature piece. If the density starts at zero, it may behave like `x^(1/order - 1)`."""
    if low == 0:
        return HardEdge(high, order)
    return Bounded(low, high) if low > 0.1 * high else Decades(low, high)


@dataclass(frozen=True, eq=False)
class RationalMap:
    """The functions `u(y)` and `z(y)` of a multi-head law, which determine its edges and moments."""

    rest: float  # `1 - sum c_j`
    shares: Reals  # the shares c_j of the Hermite terms
    rho: Reals  # the ratios `c_j / g_j`
    factors: tuple[float, ...]  # the factors a, in ascending order. One of them is 1.

    def u(self, y: Any) -> Any:
        return y * (self.rest + (self.shares / (1 - self.rho * np.asarray(y)[..., None])).sum(-1))

    def slope(self, y: Any) -> Any:
        """Return the derivative of u(y)."""
        return self.rest + (self.shares / (1 - self.rho * np.asarray(y)[..., None]) ** 2).sum(-1)

    def z_at(self, y: Any) -> Any:
        u = self.u(y)
        return np.prod([1 + u / a for a in self.factors], axis=0) / y

    def moment(self, order: int) -> float:
        """Return the moment of an order after the law is rescaled to mean 1."""
        powers = [float((self.shares * self.rho**i).sum()) for i in range(order)]
        u = np.array([0.0, *powers])
        u[1:2] += self.rest
        return inverted_moment(u, _product(np.append(1.0, u[1:] / a) for a in self.factors), order)

    @cached_property
    def critical(self) -> Complexes:
        """The points at which the derivative of z(y) vanishes and z does not."""
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
        """The real critical points of z(y), including pairs that rounding errors made complex."""
        y = self.critical
        return np.asarray(y.real[np.abs(y.imag) <= 1e-7 * np.abs(y)])

    @cached_property
    def top(self) -> float:
        """The value of y at the upper edge of the law: its smallest positive critical point."""
        y = self.real_critical
        return float(y[y > 0].min())

    def density_is_positive(self, z: Reals) -> NDArray[np.bool_]:
        """Return whether the density is positive at each real z."""
        _, passes, residual = self._candidates(z.astype(complex))
        return np.asarray((passes & (residual < 1e-8)).any(-1))

    def transform(self, z: Complexes) -> Complexes:
        """Return the root y that belongs to the law, at z on or below the real line."""
        y, passes, residual = self._candidates(z)
        # If rounding let no root pass, take the one with the least residual.
        # Rounding may let a false root pass the test, but its residual is larger.
        best = np.where(passes | ~passes.any(-1, keepdims=True), residual, np.inf).argmin(-1)
        root = np.take_along_axis(y, best[..., None], axis=-1)[..., 0]
        if self._smallest_count < 2:
            return np.asarray(root)
        # Next to a hard edge the roots cluster, so the edge itself is the better start.
        return np.asarray(np.where(np.abs(z) < self._edge_radius, self._from_zero(z), root))

    def refine(self, y: Complexes, z: Complexes) -> Complexes:
        """Improve the root y by two steps of Newton's method on `log z(y)`."""
        for _ in range(2):
            u = self.u(y)
            steep = sum(self.slope(y) / (a + u) for a in self.factors) - 1 / y
            with np.errstate(all="ignore"):
                new = y - np.log(self.z_at(y) / z) / steep
            better = np.abs(self.z_at(new) / z - 1) < np.abs(self.z_at(y) / z - 1)
            y = np.where(better, new, y)
        return np.asarray(y)

    def one_plus_u(self, y: Complexes, z: Complexes) -> Complexes:
        """Return `1 + u` for z on or below the real line. Values near zero are accurate, too."""
        least = self.factors[0]
        w = self._least_factor(y, z)
        return np.asarray(w if least == 1 else 1 - least + least * w)

    @cached_property
    def _polynomials(self) -> tuple[Reals, tuple[Reals, ...]]:
        """The polynomial D, and `D + N/a` for each factor a, by ascending coefficients."""
        lines = [np.array([1.0, -rho]) for rho in self.rho]
        D = _product(lines)
        N = self.rest * D
        for j, share in enumerate(self.shares):
            N = poly.polyadd(N, share * _product(lines[:j] + lines[j + 1 :]))
        N = np.append(0.0, N)
        return D, tuple(np.asarray(poly.polyadd(D, N / a)) for a in self.factors)

    @cached_property
    def _equation(self) -> tuple[Reals, Reals]:
        """Both sides of the equation for y, `prod_a (D + N/a) = z y D^M` with M factors."""
        D, B = self._polynomials
        P, lead = _product(B), np.append(0.0, _product([D] * len(B)))
        return P, np.append(lead, np.zeros(P.size - lead.size))

    def _candidates(self, z: Complexes) -> tuple[Complexes, NDArray[np.bool_], Reals]:
        """Return all roots y, whether each passes the test for the law's root, and the residual of each."""
        P, lead = self._equation
        s = monic_roots(P[1:] - z[..., None] * lead[1:])
        others = list(self.factors)
        others.remove(1.0)
        with np.errstate(all="ignore"):
            y = 1 / s
            u = self.u(y)
            turn = np.abs(np.angle(z))[..., None] + sum(np.angle(1 + u / a) for a in others)
            residual = np.abs(self.z_at(y) / z[..., None] - 1)
        # Rounding gives real roots small imaginary parts.
        passes = (y.imag > 1e-12 * np.abs(y)) & (u.imag > 0) & (turn < np.pi)
        return y, passes, np.where(np.isfinite(residual), residual, np.inf)

    @property
    def _smallest_count(self) -> int:
        """The number of factors that are equal to the smallest factor."""
        return self.factors.count(self.factors[0])

    def _least_factor(self, y: Complexes, z: Complexes) -> Complexes:
        """Return `1 + u/a` for the smallest factor a, from `prod_a (1 + u/a) = z y`."""
        rest = [1 + self.u(y) / a for a in self.factors if a != self.factors[0]]
        size = np.abs(z * y) / np.prod([np.abs(factor) for factor in rest], axis=0)
        # If several factors are the smallest, the arguments of all other terms select the branch of the root.
        turn = np.abs(np.angle(y)) - np.abs(np.angle(z)) - sum(np.abs(np.angle(factor)) for factor in rest)
        return np.asarray(size ** (1 / self._smallest_count) * np.exp(1j * turn / self._smallest_count))

    @cached_property
    def _y_at_zero(self) -> float:
        """The y at which z is zero. There u equals minus the smallest factor."""
        _, B = self._polynomials
        roots = poly.polyroots(B[0]).astype(complex)
        return float(roots.real[(np.abs(roots.imag) <= 1e-9 * np.abs(roots)) & (roots.real < 0)].max())

    @cached_property
    def _edge_radius(self) -> float:
        """The largest abs(z) at which `1 + u/a` is below 0.03 for the smallest factor a."""
        y, count = np.array(self._y_at_zero, dtype=complex), self._smallest_count
        return float(0.03**count / np.abs(self._least_factor(y, np.array(1.0 + 0j))) ** count)

    def _from_zero(self, z: Complexes) -> Complexes:
        """Return the root y for z near a hard edge at zero."""
        y = np.full(z.shape, self._y_at_zero, dtype=complex)
        with np.errstate(all="ignore"):
            for _ in range(16):
                u = self.factors[0] * (self._least_factor(y, z) - 1)
                y = y - (self.u(y) - u) / self.slope(y)
        return y


def inverted_moment(u: Reals, F: Reals, order: int) -> float:
    """Return the coefficient of `z^(-order)` in `1 + u`, where y solves `z y = F(y)`.

    By Lagrange's inversion, the coefficient for order k is `[y^(k-1)] u'(y) F(y)^k / k`. The series u and F
    are given by their coefficients in ascending powers of y.
    """
    if order == 0:
        return 1.0
    slope = u[1 : order + 1] * np.arange(1, order + 1)
    power = reduce(lambda p, q: np.convolve(p, q)[:order], [F] * order)
    return float(np.convolve(slope, power)[order - 1] / order)


def _product(polynomials: Iterable[Any]) -> Reals:
    return np.asarray(reduce(np.convolve, polynomials, np.ones(1)))
