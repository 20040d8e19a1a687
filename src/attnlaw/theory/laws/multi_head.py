"""The spectrum of multi-head attention at initialisation: of attention matrices, their values, their output.

Normalisation, stated once: n tokens, h heads, per-head widths d_K and d_V, output width d_O; queries and keys
with standard Gaussian entries, `S_r = Q_r K_r^T / sqrt(d_K)`, `A_r = softmax(beta S_r)` by rows,
`A_r^perp = A_r - 1 1^T / n`, V_r standard Gaussian, W^O Gaussian of variance 1/(h d_V). The law is that of
the n squared singular values, zeros included (arXiv 2610.10033, which extends 2510.06685), of

| given | matrix | mean | factors a |
|---|---|---|---|
| heads, keys | `sqrt(n/h) [A_1^perp ... A_h^perp]` (C.9) | theta | 1, h |
| and values | `Z_V = [A_1^perp V_1 ... A_h^perp V_h]` (Prop. C.5) | gV theta | 1, h, gV |
| and output | `Z_V W^O` (C.15) | gO theta | 1, h, gV, gO |

Keys and values may be shared across heads: the limits stay. The head mean `sqrt(n h) (mean_r A_r - 1 1^T/n)`
has the law of one head with the same gK (Prop. C.6); with one key for all heads, with `gK / h`.

| letter | meaning |
|---|---|
| gK, gV, gO | `h d_K/n`, `h d_V/n`, `d_O/n`: totals over all heads |
| theta | `e^(beta^2) - 1` |
| c_j, g_j | `beta^(2j) / (j! theta)`, `h C(d_K + j - 1, j)/n`: share and ratio of the j-th Hermite term |
| z | `x / mean` |
| y | the transform of the heads' own law at the subordinated point; `y ~ 1/z` far away |
| u | `z g(z) - 1` |

One rational map replaces the paper's system (C.29): `u(y) = y [1 - sum c_j + sum c_j / (1 - c_j y/g_j)]` and
`z(y) = prod_a (1 + u/a) / y`. The paper has the first Hermite term alone (j = 1); the second, for narrow
heads, is an extension.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import factorial

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value
from attnlaw.theory.laws.attention_matrix import require_beta
from attnlaw.theory.laws.law import Bounded, Decades, HardEdge, Law, Piece, at_zero, require_scale
from attnlaw.theory.laws.rational_map import RationalMap

LARGEST_GAMMA = 1e4
TINY = 1e-12  # of the upper edge: a lower edge below it is taken for zero


@dataclass(frozen=True)
class MultiHeadLaw(Law):
    """Squared singular values of centred multi-head attention, its values or its output, n -> infinity.

    `key_ratio`, `value_ratio` and `output_ratio` are gK, gV and gO, totals over n tokens. With `head_size`,
    the d_K of a finite layer, the second Hermite term is kept (an extension), which narrow heads need: the
    noise of the limit is white only where `h d_K^2` is far above 2n. The rank is `min(n, h d_V, d_O)`: the
    atom at zero is `1 - min(1, gV, gO)`. Not for causal masks, correlated tokens, or beta near
    `few_rows_beta(n)`. Smallest factors within a percent of each other and not equal cost the quadrature
    digits of what lies next to zero.

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
        require_heads("multi-head law", self.heads)
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
        """The ratios a, ascending: n, the heads, and what follows them, each over n."""
        given = (self.value_ratio, self.output_ratio)
        return tuple(sorted((1.0, float(self.heads), *(a for a in given if a is not None))))

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        return at_zero(1 - self.factors[0])

    @cached_property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """Where the density is on between neighbouring critical values of z."""
        top = float(self.map.z_at(self.map.top))
        ends = np.sort(self.map.z_at(self.map.real_critical))
        ends = ends[(ends > 0) & (ends <= top)]
        # Two ends within rounding of each other are a gap about to open: closed.
        ends = ends[np.append(True, np.diff(ends) > 1e-7 * ends[1:])]
        kept = np.append(0.0, ends[ends > TINY * top])
        on = self.map.density_is_positive(0.5 * (kept[1:] + kept[:-1]))
        # Where the two smallest factors are equal there is no lower edge.
        on[0] = self.factors[0] == self.factors[1] or kept.size <= ends.size
        steps = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(int)))
        pairs = zip(kept[steps[::2]], kept[steps[1::2]], strict=True)
        return tuple((float(low * self.mean), float(high * self.mean)) for low, high in pairs)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The intervals, each divided where a gap would open, since the density is sharp there."""
        places = self.map.z_at(self.map.critical)
        sharp = [float(x.real) * self.mean for x in places if 0 < x.imag < 0.1 * x.real]
        order = max(2, self.factors.count(self.factors[0]))
        pieces: list[Piece] = []
        for low, high in self.intervals:
            inner = sorted(x for x in sharp if 1.01 * low < x < 0.99 * high)
            pieces += [make_piece(*ends, order) for ends in pairwise([low, *inner, high])]
        return tuple(pieces)

    def density(self, x: ArrayLike) -> Reals:
        return self.density_by_stieltjes(x)

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """`(1 + u)/x`; the map is solved below the line."""
        place = np.asarray(z).astype(complex)
        x = place / self.mean
        inside = self.inside(place.real)
        off = (np.abs(x.imag) <= 1e-11 * np.abs(x.real)) & ~inside
        flip = (x.imag > 0) | ((x.imag == 0) & inside)
        # Off the support first a hair below the line, then along it.
        line = np.where(off, x.real - (x == 0) * 1e-280, np.where(flip, x.conj(), x))
        y = self.map.transform(line - 1j * np.where(off, 1e-8 * np.abs(line), 0.0))
        y = self.map.refine(np.where(off, y.real, y), line)
        g = self.map.one_plus_u(y, line) / line / self.mean
        return np.asarray(np.where(flip, g.conj(), g))

    def moment(self, order: int) -> float:
        return self.map.moment(order) * self.mean**order

    def spike(self, squared_size: float) -> float | None:
        """Where a rank-one term of this squared size leaves the spectrum; None where it stays inside.

        The term is added to the attention matrices, `sqrt(n/h) [A_r^perp] + l u w^T` with u and w in general
        position and l^2 its squared size; values and outputs act on it, too. It is where `l^2 y = theta`, by
        subordination (an extension); for attention alone that is `l^2 g (x g/h + 1 - 1/h) = 1`.

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
        # What is left of the exponential series, without cancellation.
        rest = (
            b ** (orders + 1)
            / factorial(orders + 1)
            * float(scipy.special.hyp1f1(1.0, orders + 2.0, b))
            / self.theta
        )
        # g_2 = gK (d_K + 1)/2
        wide = np.array([1.0] if self.head_size is None else [1.0, 0.5 * (self.head_size + 1)])
        return RationalMap(rest, c, c / (self.key_ratio * wide), self.factors)


def make_piece(low: float, high: float, order: int) -> Piece:
    """The piece for square-root edges, or for a density like `x^(1/order - 1)` at an edge that is zero."""
    if low == 0:
        return HardEdge(high, order)
    return Bounded(low, high) if low > 0.1 * high else Decades(low, high)


def require_heads(what: str, heads: int) -> None:
    check_value(f"{what}: heads", heads, int, minimum=1, maximum=LARGEST_GAMMA)
