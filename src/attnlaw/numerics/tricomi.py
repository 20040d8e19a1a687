"""Tricomi's function on its cut, to rounding, by Taylor steps along the cut.

`f(y) = U(b, -a, -y + i0)` up to a constant factor solves `y f'' + (y - a) f' + b f = 0`, whose only singular
point is y = 0. So the Taylor series around a centre m converges for |y - m| < m. The steps that cover the cut
are so short that no digits cancel. On each step f is a combination of two real polynomials. The values and
slopes at the ends join the steps.

The start is off the cut, where `-f'/(b f)` is the Stieltjes transform of the associated Laguerre polynomials
(Ismail, Letessier and Valent 1988, model II). Its continued fraction

    g(y) = 1/(y - l_0/(1 - m_1/(y - l_1/(1 - m_2/...)))),    l_n = n + a + b + 1,  m_n = n + b

converges there, and Taylor steps lead from there down to the cut. Along the cut f stays as large as the other
solution, so nothing is lost on the way to either end. The tests compare with 30-digit values of U.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.arrays import Complexes, Reals

SHORT = 0.35  # ratio of half a step to its centre, the radius of convergence
TERMS = 44  # SHORT^44 < 1e-20; off the cut, at sqrt(2) times the distance, 6e-14
REACH = 2.5  # growth exponent of a solution over half a step: about one digit is lost


@dataclass(frozen=True)
class Cut:
    """Tricomi's function f along its cut, as a polynomial on each step [edges[k], edges[k+1]].

    On step k, `f = exp(scale_k) sum_j coefficients_kj t^j`, where t runs from -1 to 1.
    """

    a: float
    b: float
    edges: Reals
    scale: Reals
    coefficients: Complexes
    start: float  # the point with f = 1
    transform: complex  # `-f'/(b f)` at the start, with a negative imaginary part
    phase: Reals  # continuous argument of f at the middle of each step
    phase_at_zero: float  # limit of the argument at y = 0

    def at(self, y: Any) -> tuple[Any, Any]:
        """Return `log f` and `f'/f` at points y that are at most half a step away from the cut.

        On the cut, the imaginary part of `log f` is continuous.
        """
        step = self.step(y)
        half, t = self._place(y, step)
        value, slope = _horner(np.moveaxis(self.coefficients[step], -1, 0), t)
        turned = np.angle(value * np.exp(-1j * self.phase[step]))
        log_f = np.log(np.abs(value)) + self.scale[step] + 1j * (self.phase[step] + turned)
        return log_f, slope / (value * half)

    def log_size(self, y: Reals) -> Reals:
        """Return `log |f|` at points y on the cut. This is several times as fast as `at`.

        On the cut t is real, so two real polynomials replace a complex one and its derivative.
        """
        step = self.step(y)
        t = self._place(y, step)[1]
        pair, *rest = np.take(self._real_pairs, step, axis=-1)
        for coefficient in rest:
            pair *= t
            pair += coefficient
        pair *= pair
        return np.asarray(0.5 * np.log(pair[0] + pair[1]) + self.scale[step])

    @cached_property
    def _real_pairs(self) -> Reals:
        """The coefficients as real pairs, highest power first, (terms, 2, steps)."""
        parts = np.stack([self.coefficients.real, self.coefficients.imag])
        return np.ascontiguousarray(parts.transpose(2, 0, 1)[::-1])

    def _place(self, y: Any, step: NDArray[np.intp]) -> tuple[Reals, Any]:
        """Return half the length of the steps, and the places t of the points y in them."""
        low, high = self.edges[step], self.edges[step + 1]
        half = 0.5 * (high - low)
        return half, (y - 0.5 * (low + high)) / half

    def step(self, y: Any) -> NDArray[np.intp]:
        place = np.searchsorted(self.edges, np.real(y), side="right") - 1
        return np.asarray(np.clip(place, 0, self.edges.size - 2))


def solve_cut(a: float, b: float, low: float, high: float) -> Cut:
    """Compute f from `low` to `high` (both positive), for `b > 0` and `a > -1`."""
    edges, first = _edges(a, b, low, high)
    start = float(edges[first])
    g = _transform_at(a, b, start)
    centre, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    basis = _taylor(a, b, centre, half)
    left, right = (np.array(_horner(basis.transpose(1, 0, 2), end)) for end in (-1.0, 1.0))
    coefficients = np.empty((half.size, 2), dtype=complex)
    scale, phase = np.zeros(half.size), np.zeros(half.size)
    up, down = range(first, half.size), range(first - 1, -1, -1)
    for steps, entry, leave in ((up, left, right), (down, right, left)):
        value, slope, level, turned = 1.0 + 0.0j, -b * g, 0.0, 0.0
        # The chain is sequential, so it uses plain numbers. Ends have shape (value and slope, basis, step).
        ends = np.concatenate([entry, leave]).reshape(8, -1).T.tolist()
        for k in steps:
            e0, e1, d0, d1, l0, l1, s0, s1 = ends[k]
            h = float(half[k])
            determinant = e0 * d1 - e1 * d0
            c0 = (value * d1 - slope * h * e1) / determinant
            c1 = (slope * h * e0 - value * d0) / determinant
            # Half a step turns f by less than REACH < pi.
            turned += cmath.phase(c0 / value)
            coefficients[k], scale[k], phase[k] = (c0, c1), level, turned
            value, slope = c0 * l0 + c1 * l1, (c0 * s0 + c1 * s1) / h
            turned += cmath.phase(value / c0)
            size = abs(value)
            value, slope, level = value / size, slope / size, level + math.log(size)
    polynomials = np.einsum("ks,sjk->kj", coefficients, basis)
    # Near zero f = A + B y^(1+a) up to terms of order y; `value` and `slope` belong to the first edge.
    limit = value - slope * float(edges[0]) / (1 + a)
    at_zero = turned + cmath.phase(limit / value)
    return Cut(a, b, edges, scale, polynomials, start, g, phase, at_zero)


def _edges(a: float, b: float, low: float, high: float) -> tuple[Reals, int]:
    start = max(a + 2 * b, 1.0)
    ends = [start]
    while ends[-1] < high:
        ends.append(ends[-1] + 2 * _half_step(a, b, ends[-1], 1))
    down = [start]
    while down[-1] > low:
        down.append(down[-1] - 2 * _half_step(a, b, down[-1], -1))
    return np.array(down[:0:-1] + ends), len(down) - 1


def _half_step(a: float, b: float, y: float, direction: int) -> float:
    """Return half the length of the step from y, limited by convergence and the growth at both ends."""
    half = min(y * SHORT / (1 - direction * SHORT), REACH / _rate(a, b, y))
    return min(half, REACH / _rate(a, b, y + 2 * direction * half))


def log_growth(a: float, b: float, y: Any) -> Any:
    """Return the integral over y of s, the slower root of `y s^2 + (y - a) s + b = 0`.

    The integral is log f to leading order, up to a constant. Where `(y - a)^2 < 4 b y`, the function f
    oscillates. Below this range s is about `b/(a - y)`, and far above it `-b/y`.
    """
    middle = a + 2 * b
    root = np.sqrt(np.maximum((y - a) ** 2 - 4 * b * y, 0.0))
    whole = root - middle * np.log(np.abs(root + y - middle))
    whole = whole - a * np.log(np.abs(a * a - middle * y + a * root) / y)
    return 0.5 * (a * np.log(y) - y + np.where(y > middle, whole, -whole))


def _rate(a: float, b: float, y: complex) -> float:
    """Return the largest growth rate of a solution near y, a bound on the roots s of `log_growth`."""
    bend = (y - a) ** 2 - 4 * b * y
    if bend.imag == 0 and bend.real < 0:
        return math.sqrt(b / abs(y))
    return (abs(y - a) + math.sqrt(abs(bend))) / (2 * abs(y))


def _transform_at(a: float, b: float, y: float) -> complex:
    """Return `-f'/(b f)` at y + i0 by Taylor steps down from where the continued fraction converges."""
    height = max(math.sqrt(b * b + max(a, 0.0) * b), 2 * math.sqrt(y))
    place = complex(y, height)
    g = continued_fraction(a, b, np.array(place)).item()
    rate = max(_rate(a, b, y), _rate(a, b, place))
    parts = math.ceil(height * max(1 / (SHORT * y), rate / REACH))
    points = y + 1j * height * np.linspace(1.0, 0.0, parts + 1)
    down = np.diff(points)
    basis = _taylor(a, b, points[:-1], down)
    (v0, v1), (s0, s1) = (part.tolist() for part in _horner(basis.transpose(1, 0, 2), 1.0))
    for k, step in enumerate(down.tolist()):
        c1 = -b * g * step
        g = -(s0[k] + c1 * s1[k]) / (step * b * (v0[k] + c1 * v1[k]))
    return complex(g)


def continued_fraction(a: float, b: float, y: Complexes) -> Complexes:
    """Return `-f'/(b f)` away from the cut, with more and more levels until two results agree.

    n levels leave an error of about `exp(-4 sqrt(n) Im sqrt(y))`. Closer to zero than 1e-3, even 65536 levels
    are too few.
    """
    y = np.asarray(y, dtype=complex)
    g = np.zeros(y.shape, dtype=complex)
    left = np.ones(y.shape, dtype=bool)
    for levels in (64, 256, 1024, 4096, 16384, 65536):
        # Plain numbers are ten times faster for a single point.
        place: Any = y[left].item() if left.sum() == 1 else y[left]
        value: Any = 0.0 * place
        for n in range(levels, -1, -1):
            value = 1 / (place - (n + a + b + 1) / (1 - (n + 1 + b) * value))
        moved = np.abs(value - g[left]) > 1e-15 * np.abs(value)
        g[left] = value
        left[left] = moved
        if not left.any():
            break
    return g


def _taylor(a: float, b: float, centre: Any, half: Any) -> Any:
    """Return two solutions' Taylor coefficients in `t = (y - centre)/half`, as (2, terms, centres).

    At t = 0 the first solution has (f, df/dt) = (1, 0) and the second (0, 1). With m the centre and h half
    the step, the recursion is `m (j+2)(j+1) f_(j+2) = -(j+1)(j - a + m) h f_(j+1) - (j + b) h^2 f_j`.
    """
    F = np.zeros((2, TERMS, centre.size), dtype=np.result_type(centre, half))
    F[0, 0], F[1, 1] = 1.0, 1.0
    first, second = half / centre, half * half / centre
    whole = (centre - a) * first
    for j in range(TERMS - 2):
        F[:, j + 2] = (whole + j * first) * F[:, j + 1] * (-1 / (j + 2))
        F[:, j + 2] -= (b + j) / ((j + 2) * (j + 1)) * second * F[:, j]
    return F


def _horner(coefficients: Any, t: Any) -> tuple[Any, Any]:
    value, slope = coefficients[-1], np.zeros_like(coefficients[-1])
    for row in coefficients[-2::-1]:
        slope = slope * t + value
        value = value * t + row
    return value, slope
