"""The law of multi-head attention whose heads use their keys as values, K = V (arXiv 2610.10033).

All matrices are normalised as in `attnlaw.theory.laws.multi_head`, with V_r = K_r. The law describes the n
squared singular values, including zeros, of `[A_1^perp K_1 ... A_h^perp K_h]` (C.19). With an output ratio,
the matrix is also multiplied by W^O (C.21).

| letter | meaning |
|---|---|
| h, gK, gO | heads, `h d_K/n`, `d_O/n` |
| theta1, theta2 | `e^(beta^2) - 1`, `beta^2` |
| phi(t) | `al t + b t^2`, `al = theta1 - theta2`, `b = h theta2/gK` |
| pi, G | free Poisson law of rate `gK/h`, and its transform |
| psi | mean of `phi(t) / (v - phi(t))` over t ~ pi |
| v | the variable of psi; `v = 1/g(x)` without an output |
| u | `x g(x) - 1 = h psi` |

The law is compound free Poisson with rate h and jumps phi(t): `x = v (1 + u)`, or with an output
`x = v (1 + u)(gO + u)/gK`. Partial fractions replace the paper's quadrature: with the roots `t+` and `t-` of
`phi(t) = v` and `R = phi'(t+)`, `1 + psi = v (G(t+) - G(t-))/R`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.core.settings import check_value
from attnlaw.theory.laws.attention_matrix import require_beta
from attnlaw.theory.laws.law import Law, Piece, at_zero, require_scale
from attnlaw.theory.laws.multi_head import LARGEST_GAMMA, inverted_moment, make_piece

START = 1e3  # the continuation from infinity begins at this multiple of the upper edge


@dataclass(frozen=True)
class TiedValuesLaw(Law):
    """The limit of the squared singular values of centred multi-head attention with K = V.

    With an output ratio, this is the law of the layer's output. The atom at zero has weight `1 - min(1, gK,
    gO)`. The law does not apply to causal masks, to correlated tokens, or if beta is near `few_rows_beta(n)`.

    Args:
        beta: standard deviation of the attention logits in a row.
        key_ratio: the total size of all keys divided by the number of tokens (gK).
        output_ratio: the output size divided by the number of tokens (gO). None means the law before the
            output matrix.

    >>> law = TiedValuesLaw(1.0, heads=16, key_ratio=16.0, output_ratio=16.0)
    >>> [round(end, 4) for end in law.intervals[0]], round(law.moment(2), 2)
    ([13.3028, 103.6888], 2365.26)
    """

    beta: float
    heads: int
    key_ratio: float
    output_ratio: float | None = None

    def __post_init__(self) -> None:
        require_beta("tied values", self.beta)
        check_value("tied values: heads", self.heads, int, minimum=1, maximum=LARGEST_GAMMA)
        require_scale("tied values: key ratio", self.key_ratio, LARGEST_GAMMA)
        if self.output_ratio is not None:
            require_scale("tied values: output ratio", self.output_ratio, LARGEST_GAMMA)

    @property
    def theta(self) -> float:
        return float(np.expm1(self.beta**2))

    @property
    def mean(self) -> float:
        raw = self.key_ratio * self.theta + self.heads * self.beta**2
        return raw if self.output_ratio is None else raw * self.output_ratio / self.key_ratio

    @property
    def factors(self) -> tuple[float, ...]:
        """The values a for which `u = -a` gives `x = 0`, in ascending order.

        The values are 1, the output ratio if there is one, and the smaller of gK and the number of heads.
        """
        given = () if self.output_ratio is None else (self.output_ratio,)
        return tuple(sorted((1.0, *given, min(self.key_ratio, float(self.heads)))))

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        return at_zero(1 - self.factors[0])

    @cached_property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """One interval. Its ends are extrema of x(v) at real v outside of the range of phi."""
        return ((self._lower_edge, self._upper_edge),)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        order = max(2, self.factors.count(self.factors[0]))
        return (make_piece(*self.intervals[0], order),)

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the Stieltjes transform `(1 + u)/x`."""
        place = np.asarray(z).astype(complex)
        below = place.imag < 0
        x = np.where(below, place.conj(), place)
        x = np.where(x == 0, -1e-280, x)
        u = self._u(self._inverse(x))[0]
        g = (1 + u) / x
        real = (place.imag == 0) & ~self.inside(place.real)
        g = np.where(real, g.real, g)
        return np.asarray(np.where(below, g.conj(), g))

    def moment(self, order: int) -> float:
        """Return the moment of an order, by Lagrange's inversion of `x/v = F(u)`.

        Here `u = sum_q h m_q v^(-q)`, where m_q are the moments of phi.
        """
        al, b, rate = self._letters
        poisson = [1.0, *(_free_poisson_moment(rate, k) for k in range(1, 2 * order + 1))]
        jumps = [
            sum(comb(q, j) * al ** (q - j) * b**j * poisson[q + j] for j in range(q + 1))
            for q in range(1, order + 1)
        ]
        u = self.heads * np.array([0.0, *jumps])
        F = np.append(1.0, u[1:])
        if self.output_ratio is not None:
            F = np.convolve(F, np.append(self.output_ratio, u[1:]) / self.key_ratio)
        return inverted_moment(u, F, order)

    @property
    def _letters(self) -> tuple[float, float, float]:
        """The numbers al and b of the notation table, and the rate gK/h."""
        square = self.beta**2
        al = 0.5 * square**2 * float(scipy.special.hyp1f1(1.0, 3.0, square))
        return al, self.heads * square / self.key_ratio, self.key_ratio / self.heads

    def _u(self, v: Complexes) -> tuple[Complexes, Complexes]:
        """Return u at v, and the derivative `v du/dv`."""
        al, b, rate = self._letters
        R: Complexes = np.sqrt(al**2 + 4 * b * v)
        G, slope = _free_poisson(2 * v / (al + R), rate)
        H, fall = _free_poisson((al + R) / (-2 * b), rate)
        with np.errstate(all="ignore"):
            one_plus_psi = v * (G - H) / R
            growth = one_plus_psi * (1 - 2 * b * v / R**2) + (v / R) ** 2 * (slope + fall)
        return self.heads * (one_plus_psi - 1), self.heads * growth

    def _place(self, v: Complexes) -> tuple[Complexes, Complexes]:
        """Return the eigenvalue x at v, and the derivative `d log x / d log v`."""
        u, growth = self._u(v)
        with np.errstate(all="ignore"):
            x, steep = v * (1 + u), 1 + growth / (1 + u)
            if self.output_ratio is not None:
                x = x * (self.output_ratio + u) / self.key_ratio
                steep = steep + growth / (self.output_ratio + u)
        return x, steep

    def _inverse(self, x: Complexes) -> Complexes:
        """Return the v above the real line with `x(v) = x`."""
        size = np.abs(x)
        start = START * self._upper_edge + size
        steps = int(np.log2(1e4 * (start / size).max(initial=1.0))) + 1
        far = 1.0 if self.output_ratio is None else self.key_ratio / self.output_ratio
        v = np.asarray((x + 1j * start) * far, dtype=complex)
        for step in range(steps + 1):
            height = start * (1e-4 * size / start) ** (step / steps)
            v = self._newton(v, x + 1j * height, 2)
        return self._newton(v, x, 12)

    def _newton(self, v: Complexes, x: Complexes, steps: int) -> Complexes:
        for _ in range(steps):
            image, steep = self._place(v)
            with np.errstate(all="ignore"):
                move = -np.log(image / x) / steep
            move = np.where(np.isfinite(move), move, 0.0)
            # Never cross the line: use at most half the remaining angle, and at most a factor e.
            angle = np.angle(v)
            limit = np.where(move.imag < 0, 0.5 * angle, 0.5 * (np.pi - angle))
            shrink = np.minimum(1.0, limit / np.maximum(np.abs(move.imag), 1e-300))
            shrink = np.minimum(shrink, 1 / np.maximum(np.abs(move.real), 1.0))
            v = v * np.exp(shrink * move)
        return v

    @cached_property
    def _upper_edge(self) -> float:
        al, b, rate = self._letters
        high = (1 + np.sqrt(rate)) ** 2
        top = high * (al + b * high)
        minimum = scipy.optimize.minimize_scalar(
            lambda s: float(np.log(self._place(np.array(top * (1 + np.exp(s)), dtype=complex))[0].real)),
            bounds=(-30.0, 30.0),
            method="bounded",
            options={"xatol": 1e-9},
        )
        return float(np.exp(minimum.fun))

    @cached_property
    def _lower_edge(self) -> float:
        """The lower edge: the largest x with -u between the smallest and the second smallest factor."""
        first, second, *_ = self.factors
        if first == second:
            return 0.0
        al, b, rate = self._letters
        low = (1 - np.sqrt(rate)) ** 2
        bottom = low * (al + b * low)
        through = first == min(self.key_ratio, self.heads)

        def log_x(s: Reals) -> Reals:
            v = bottom / (1 + np.exp(-s)) if through else -self.mean * np.exp(s)
            u, x = self._u(v.astype(complex))[0].real, self._place(v.astype(complex))[0].real
            return np.asarray(np.log(np.where((x > 0) & (u > -second), x, 1e-300)))

        grid = np.linspace(-60.0, 40.0, 2001)
        best = grid[log_x(grid).argmax()]
        minimum = scipy.optimize.minimize_scalar(
            lambda s: -float(log_x(np.array(s))),
            bounds=(best - 0.05, best + 0.05),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return float(np.exp(-minimum.fun))


def _free_poisson(x: Complexes, rate: float) -> tuple[Complexes, Complexes]:
    """Return the free Poisson transform G, a root of `x G^2 - (x + 1 - rate) G + 1 = 0`, and its slope."""
    root = np.sqrt(x - (1 - np.sqrt(rate)) ** 2) * np.sqrt(x - (1 + np.sqrt(rate)) ** 2)
    middle = x + 1 - rate
    with np.errstate(all="ignore"):
        G = np.where((middle * root.conj()).real >= 0, 2 / (middle + root), (middle - root) / (2 * x))
        # x = 1/G + rate/(1 - G)
        slope = 1 / (rate / (1 - G) ** 2 - 1 / G**2)
    return np.asarray(G), np.asarray(slope)


def _free_poisson_moment(rate: float, order: int) -> float:
    """Return the moment `sum_j N(order, j) rate^j` of the free Poisson law (N: Narayana numbers)."""
    return sum(comb(order, j) * comb(order, j - 1) * rate**j for j in range(1, order + 1)) / order
