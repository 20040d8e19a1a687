"""The spectrum of a tied student (W_Q = W_K) during training, which follows a matrix Riccati equation.

The student is `S^-1 = e^(1/2) S0^-1 e^(1/2) + F`, where e and F are functions of one matrix with the law
`sum p_i delta(x - x_i)`. The start is `S0 = s G G^T/m'` with G Gaussian of size d x m', kappa = m'/d. The
deterministic equivalent has one unknown function theta(z). It was derived for this project and agrees with
eigenvalues of flows at d = 200:

    theta = 1/s + <1/(e/(F - w) + 1/theta)>/kappa,   w = 1/z
    g(z) = 1/z + <1/(theta e + F - w)>/z^2,          an atom 1 - kappa at zero if kappa < 1

On the real line off the support, theta is a real root of
`psi(theta) = theta (1 - <(F - w)/(theta e + F - w)>/kappa) - 1/s`, which is convex beyond the bulk and
concave below it. An edge is where the root ends. A node without weight, a spike with e_s and F_s, leaves the
bulk at `1/lambda = theta e_s + F_s`, with squared overlap `1/(1 - e_s dtheta/dw)`.

The density is evaluated a little off the real line, at `Im z = 0.006 x`, so that single nodes of the target
do not show. The mass is accurate to 2e-3, and the edges come from the real branch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.theory.laws.law import Decades, HardEdge, Law, Piece, at_zero

OFF = 0.006  # Im z over x where the density is evaluated
DOWN = 14  # steps from far above a point down to it
NEAR = 1e-5  # Newton's steps may move an edge by this part of it
POINTS = 240  # in the table of the density


@dataclass(frozen=True, eq=False)
class Riccati(Law):
    """The law of a tied student's eigenvalues. At the start (e = 1, F = 0) it is Marchenko-Pastur."""

    p: Reals = field(repr=False)  # the weights of the nodes, (n,)
    e: Reals = field(repr=False)  # the values of e on the nodes, (n,)
    F: Reals = field(repr=False)  # the values of F on the nodes, (n,)
    scale: float  # the scale s of the start
    width: float  # kappa = m'/d, the width of the student divided by the dimension

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        return at_zero(1 - self.width)

    @cached_property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """One interval, from the lower to the upper edge. It may contain gaps."""
        return ((self._bottom(), self.top),)

    @property
    def top(self) -> float:
        """The upper edge of the law, where the real solution theta above the bulk ends."""
        return 1 / self._upper[1]

    @cached_property
    def _upper(self) -> tuple[float, float]:
        low, high = 0.0, 1.0
        while self.branch(high) is not None:
            low, high = high, 2 * high
        return self._edge(self._split(low, high)[0], below=False)

    def _bottom(self) -> float:
        """Return the lower edge, which is zero if the width is 1."""
        if self.width == 1:
            return 0.0
        low, high = 1 / self.top, 2 / self.top
        while self.branch(high, below=True) is None:
            low, high = high, 2 * high
        return 1 / self._edge(self._split(low, high, below=True)[1], below=True)[1]

    def _split(self, low: float, high: float, below: bool = False) -> tuple[float, float]:
        """Bisect in w for the end of the real branch of theta beyond the bulk, or below it."""
        for _ in range(50):
            middle = 0.5 * (low + high)
            if (self.branch(middle, below) is not None) == below:
                high = middle
            else:
                low = middle
        return low, high

    def _edge(self, w: float, below: bool) -> tuple[float, float]:
        """Return theta and w where psi and its slope vanish, or the start if nodes make the edge sharp."""
        theta = (self.branch(w, below) or (0.0, 0.0))[0]
        kappa, near = self.width, (theta, w)
        for _ in range(20):
            u = theta * self.e + self.F - w
            part, moved = (self.F - w) / u, self.e / u**2
            values = [
                theta * (1 - float(self.p @ part) / kappa) - 1 / self.scale,
                1 - float(self.p @ part**2) / kappa,
            ]
            bend = 2 / kappa * np.array([self.p @ (part**2 * self.e / u), theta * (self.p @ (part * moved))])
            slopes = np.array([[values[1], theta**2 * float(self.p @ moved) / kappa], bend])
            step = np.linalg.solve(slopes, values)
            theta, w = theta - float(step[0]), w - float(step[1])
            # Single nodes may make the edge too sharp for Newton's method. The bisection is accurate to 1e-7.
            if not abs(w - near[1]) < NEAR * near[1]:
                return near
            if abs(step[1]) <= 1e-14 * w:
                break
        return theta, w

    def branch(self, w: float, below: bool = False) -> tuple[float, float] | None:
        """Return theta and dtheta/dw at a real w = 1/z outside of the support, or None inside of it."""
        rest = self.F - w
        kappa, least = self.width, 1 / self.scale
        # On the outer side psi is convex (below the bulk concave), so Newton's method does not overshoot.
        theta = 0.0 if below else max(least + float(self.p @ np.maximum(rest / self.e, 0.0)) / kappa, 0.0)
        if not below:
            theta = max(theta, float(np.max(-rest / self.e)) * (1 + 1e-9), least)
        first = 0.0
        for _ in range(200):
            u = theta * self.e + rest
            if (u >= 0).any() if below else (u <= 0).any():
                return None
            part = rest / u
            slope = 1 - float(self.p @ part**2) / kappa
            if first == 0.0:
                first = slope
            if slope == 0 or slope * first < 0:
                return None
            step = (theta * (1 - float(self.p @ part) / kappa) - least) / slope
            theta -= step
            if abs(step) <= 1e-13 * abs(theta):
                moved = float(self.p @ (theta**2 * self.e / u**2)) / kappa
                return theta, -moved / slope
        return None

    def outlier(self, e: float, F: float) -> tuple[float, float] | None:
        """Return the position and squared overlap of an outlier, or None if it is inside the bulk."""
        theta, high = self._upper
        if theta * e + F > high:
            return None
        low = 0.0
        for _ in range(60):
            w = 0.5 * (low + high)
            branch = self.branch(w)
            if branch is None or branch[0] * e + F < w:
                high = w
            else:
                low = w
        branch = self.branch(low)
        return None if branch is None else (1 / low, 1 / (1 - e * branch[1]))

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the Stieltjes transform `g(z)`. A real x is moved up to `x + 0.006 i abs(x)`."""
        given = np.asarray(z)
        point = given.astype(complex)
        if not np.iscomplexobj(given):
            point = point + 1j * OFF * np.maximum(np.abs(given), 1e-12)
        side = point.imag < 0
        flat = np.where(side, point.conj(), point).ravel()
        theta = self._theta(flat)
        inner = (self.p / (theta[:, None] * self.e + self.F - (1 / flat)[:, None])).sum(axis=1)
        g = (1 / flat + inner / flat**2).reshape(point.shape)
        return np.asarray(np.where(side, g.conj(), g))

    def _theta(self, z: Complexes) -> Complexes:
        """Return the root theta in the upper half plane, followed from far above each z down to z."""
        high = np.maximum(np.maximum(np.abs(z.real), 1.0), z.imag)
        theta = np.full(z.shape, 1 / self.scale + 0.1j)
        for part in np.linspace(0.0, 1.0, DOWN):
            theta = self._newton(theta, z.real + 1j * high ** (1 - part) * z.imag**part)
        return theta

    def _newton(self, theta: Complexes, z: Complexes) -> Complexes:
        """Solve for theta at z, from the given start."""
        rest = self.F - (1 / z)[:, None]
        least = 1 / self.scale
        active = np.arange(z.size)
        for _ in range(100):
            now = theta[active]
            part = rest[active] / (now[:, None] * self.e + rest[active])
            image = least + now * (part @ self.p) / self.width
            new = now - (now - image) / (1 - (part**2) @ self.p / self.width)
            # If a step leaves the upper half plane, the average of theta and its image replaces it.
            theta[active] = np.where(new.imag > 0, new, 0.5 * (now + image))
            active = active[np.abs(theta[active] - now) > 1e-10 * np.abs(now)]
            if not active.size:
                break
        return theta

    def density(self, x: ArrayLike) -> Reals:
        """Return the density, interpolated from a table of `x density(x)`."""
        x = np.asarray(x, dtype=float)
        inside = self.inside(x)
        return np.where(inside, np.interp(x, *self._density_table) / np.where(inside, x, 1.0), 0.0)

    @cached_property
    def _density_table(self) -> tuple[Reals, Reals]:
        theta = np.pi * (np.arange(POINTS) + 0.5) / POINTS
        points, _ = self.pieces[0].at(theta)
        low, high = self.intervals[0]
        values = -points * self.stieltjes(points).imag / math.pi
        return np.concatenate([[low], points, [high]]), np.concatenate([[0.0], values, [0.0]])

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The support as a single piece, on a logarithmic axis unless it starts at zero."""
        low, high = self.intervals[0]
        # Training shrinks eigenvalues in the null space of the target, so many are near zero.
        return (Decades(low, high),) if low > 0 else (HardEdge(high, 4),)
