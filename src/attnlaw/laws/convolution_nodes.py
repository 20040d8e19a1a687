"""Where the free convolution of a law with a semicircle lives, and its values there, by two routes.

`mu_a` is the law of the eigenvalues of `S + a Z`, Z a symmetric Gaussian matrix with spectrum on [-2, 2].

| letter | meaning |
|---|---|
| a | standard deviation of the semicircle |
| g | Stieltjes transform of mu_a on the real line, `g = Re g - i pi density` |
| c, k0 | `1/sqrt(kappa0)`, kappa0: the Marchenko-Pastur base |
| s, p | eigenvalues and weights of a discrete base |
| u + i v | Biane's boundary curve: `x = w + a^2 g_base(w)` is real on it |

A batch of a's is solved at once for Marchenko-Pastur (a cubic, no iteration); a discrete base is solved by
the boundary curve (Biane 1997), one scalar root per node and no complex iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlaw.numerics.angle_series import midpoint_angles

Reals = NDArray[np.float64]
CUBIC_NODES = (64, 256, 1024, 4096, 16384)
CLUSTER_NODES = 256
# A lone atom of small weight blurs into a nearly perfect semicircle, for which few nodes are enough.
LIGHT, SINGLE_NODES = 1e-3, 12


@dataclass(frozen=True)
class Nodes:
    """Values of mu_a at midpoints of the angle, in arrays of shape (batch, intervals, nodes).

    `mass` is `density dx/dtheta`; `low` and `high` of shape (batch, intervals) are the edges. An interval
    that a member of the batch does not have is empty (`low == high`, mass 0).
    """

    low: Reals
    high: Reals
    x: Reals
    mass: Reals
    re_g: Reals


def cubic_edges(k0: float, a: Reals) -> tuple[Reals, Reals]:
    """Edges of Marchenko-Pastur (scale 1) convolved with a semicircle: shape (batch, 2) each.

    They are the critical values of `x(g) = 1/g + a^2 g + sqrt(k0)/(1 - c g)`, at the real roots g of
    `a^2 g^2 (1-cg)^2 + g^2 - (1-cg)^2 = 0`; in `y = a g` the companion matrices of the batch are solved
    together.
    """
    c = 1 / np.sqrt(k0)
    companion = np.zeros((a.size, 4, 4))
    lead = (c / a) ** 2
    companion[:, 0, 0] = (2 * c / a) / lead
    companion[:, 0, 1] = -(1.0 + (1 - c * c) / a**2) / lead
    companion[:, 0, 2] = -(2 * c / a) / lead
    companion[:, 0, 3] = 1.0 / lead
    companion[:, [1, 2, 3], [0, 1, 2]] = 1.0
    roots = np.linalg.eigvals(companion)
    real = np.abs(roots.imag) <= 1e-9 * np.abs(roots)
    # Two edges or four; a nearly closed gap (a double root) counts as closed.
    paired = real & ((real.sum(1) == 4) | (real.sum(1) == 2))[:, None]
    y = np.where(paired, roots.real, 1.0)
    width = a[:, None]
    for _ in range(2):
        rest = 1 - c * y / width
        value = (y * rest) ** 2 + (y / width) ** 2 - rest**2
        slope = 2 * y * rest**2 + 2 * (c / width) * (1 - y**2) * rest + 2 * y / width**2
        step = value / np.where(slope == 0, np.inf, slope)
        y = np.where(np.abs(step) < 1e-4 * np.abs(y), y - step, y)
    rest = np.where(paired, 1 - c * y / width, 1.0)
    x = np.where(paired, width / y + width * y + np.sqrt(k0) / rest, np.inf)
    x = np.sort(x, axis=1)
    low = np.stack([x[:, 0], np.where(np.isfinite(x[:, 2]), x[:, 2], x[:, 1])], axis=1)
    high = np.stack([x[:, 1], np.where(np.isfinite(x[:, 3]), x[:, 3], x[:, 1])], axis=1)
    return low, high


def cubic_stieltjes(k0: float, a: Reals, x: Reals) -> tuple[Reals, Reals]:
    """`Re g` and the density at x inside the support, from the cubic in `y = a g` (arrays that broadcast).

    `y^3 + A y^2 + B y + C = 0`, `A = -(a/c + x/a)`, `B = (x + c - sqrt(k0))/c`, `C = -a/c`. Its real root r
    is positive; the complex pair has product `-C/r` and sum `-(A + r) = (B + C/r)/r`, whichever cancels less.
    """
    c = 1 / np.sqrt(k0)
    A, B, C = -(a / c + x / a), (x + c - np.sqrt(k0)) / c, -a / c + 0 * x
    p, q = B - A * A / 3, A * (2 * A * A / 27 - B / 3) + C
    root = np.sqrt(np.maximum((q / 2) ** 2 + (p / 3) ** 3, 0.0))
    S = np.cbrt(np.where(q > 0, -q / 2 - root, -q / 2 + root))
    r = S - p / (3 * np.where(S == 0, 1.0, S)) - A / 3
    r = np.where(r > 0, r, -C / np.maximum(np.abs(B), 1e-300))
    for _ in range(4):
        slope = (3 * r + 2 * A) * r + B
        step = (((r + A) * r + B) * r + C) / np.where(slope == 0, 1.0, slope)
        r = np.where(r - step > 0, r - step, r / 2)
    half_sum = 0.5 * np.where(r > 0.5 * np.abs(A), (B + C / r) / r, -(A + r))
    imaginary = np.sqrt(np.maximum(-C / r - half_sum**2, 0.0))
    return half_sum / a, imaginary / (np.pi * a)


def cubic_nodes(k0: float, a: Reals) -> list[tuple[NDArray[np.intp], Nodes]]:
    """Nodes of Marchenko-Pastur (scale 1) convolved with semicircles of standard deviations `a` (batch).

    The exact second moment `1 + k0 + a^2` tells which members need more nodes (a gap about to open or close,
    a hard edge barely blurred); they are returned as groups (members of the batch, nodes).
    """
    groups = []
    rest = np.arange(a.size)
    for count in CUBIC_NODES:
        nodes = _cubic_nodes(k0, a[rest], count)
        second = (nodes.mass * nodes.x**2).sum(axis=(1, 2)) * (np.pi / count)
        mass = nodes.mass.sum(axis=(1, 2)) * (np.pi / count)
        error = np.abs(second / (1 + k0 + a[rest] ** 2) - 1) + np.abs(mass - 1)
        done = (error < 1e-12) | (count == CUBIC_NODES[-1])
        if done.any():
            groups.append((rest[done], Nodes(*(value[done] for value in vars(nodes).values()))))
        rest = rest[~done]
        if not rest.size:
            break
    return groups


def _cubic_nodes(k0: float, a: Reals, count: int) -> Nodes:
    low, high = cubic_edges(k0, a)
    theta = midpoint_angles(count)
    half = 0.5 * (high - low)
    x = 0.5 * (low + high)[..., None] - half[..., None] * np.cos(theta)
    re_g, density = cubic_stieltjes(k0, a[:, None, None], x)
    return Nodes(low, high, x, density * half[..., None] * np.sin(theta), re_g)


def biane_components(s: Reals, p: Reals, a: float) -> tuple[Reals, Reals]:
    """Intervals of u on which v > 0: where `sum p/(u-s)^2 > 1/a^2`, for s sorted in ascending order.

    Between neighbouring atoms the sum is convex, so a gap opens exactly when its least value is below 1/a^2;
    its two ends are then found by Newton's method from the atoms' side.
    """
    level = 1.0 / a**2
    width = np.diff(s)
    # A gap can only open if the two neighbours alone leave room for it.
    candidates = np.flatnonzero(8.0 * np.minimum(p[:-1], p[1:]) < level * width**2)
    left, right = s[candidates], s[candidates + 1]

    def sums(u: Reals) -> tuple[Reals, Reals]:
        inverse = 1.0 / (u[:, None] - s)
        square = p * inverse * inverse
        return square.sum(1), (square * inverse).sum(1)

    below, above = left.copy(), right.copy()
    for _ in range(32):
        middle = 0.5 * (below + above)
        falling = sums(middle)[1] > 0
        below, above = np.where(falling, middle, below), np.where(falling, above, middle)
    bottom = 0.5 * (below + above)
    opened = sums(bottom)[0] < level
    left, right, bottom, first = left[opened], right[opened], bottom[opened], candidates[opened]

    def edge(u: Reals, stop: Reals) -> Reals:
        # Newton for f^(-1/2), concave and nearly linear: a few monotone steps towards `stop`.
        for _ in range(60):
            f, third = sums(u)
            step = (a - f**-0.5) * f**1.5 / third
            u = np.where(u < stop, np.minimum(u + step, stop), np.maximum(u + step, stop))
            if np.all(np.abs(step) <= 1e-15 * np.abs(u) + 1e-300):
                break
        return u

    gap_low = edge(left + a * np.sqrt(p[first]), bottom)
    gap_high = edge(right - a * np.sqrt(p[first + 1]), bottom)
    outer_low = edge(s[:1] - a * np.sqrt(p[:1]), s[:1] - a)
    outer_high = edge(s[-1:] + a * np.sqrt(p[-1:]), s[-1:] + a)
    return np.concatenate([outer_low, gap_high]), np.concatenate([gap_low, outer_high])


def biane_curve(s: Reals, p: Reals, a: float, u: Reals) -> tuple[Reals, Reals, Reals]:
    """`x(u)`, `v(u)` and `dx/du` on the boundary curve at points u (one axis); `dx/du` needs v > 0.

    `v^2` is the root of `sum p/((u-s)^2 + v^2) = 1/a^2`, by Newton's method from below.
    """
    square = (u[:, None] - s) ** 2
    level = 1.0 / a**2
    # v^2 is at least what the nearest atom alone gives, and at most a^2.
    nearest = square.argmin(1)
    t = np.maximum(a**2 * p[nearest] - square[np.arange(u.size), nearest], 0.0)
    for _ in range(100):
        inverse = p / (square + t[:, None])
        value = inverse.sum(1)
        slope = (inverse / (square + t[:, None])).sum(1)
        # Newton for 1/value, which is nearly linear in t: few steps, still monotone.
        step = (value / level - 1.0) * value / slope
        t = t + np.maximum(step, 0.0)
        if np.all(step <= 1e-15 * t):
            break
    distance = square + t[:, None]
    inverse = p / distance
    x = u + a**2 * (inverse * (u[:, None] - s)).sum(1)
    second = inverse / distance
    v_dv = -(second * (u[:, None] - s)).sum(1) / second.sum(1)
    slope = 2 + 2 * a**2 * (second * s * (u[:, None] - s + v_dv[:, None])).sum(1)
    return x, np.sqrt(t), slope


def biane_atoms(s: Reals, p: Reals, a: float) -> list[slice]:
    """The atoms of s that blur into each component, components in ascending order."""
    return _held(s, *biane_components(s, p, a))


def biane_nodes(s: Reals, p: Reals, a: float) -> tuple[Nodes, ...]:
    """Nodes of a discrete law convolved with a semicircle: heavy components, then those of one light atom."""
    low, high = biane_components(s, p, a)
    light = np.array([p[part].size == 1 and p[part][0] < LIGHT for part in _held(s, low, high)])
    groups = []
    for chosen, count in ((~light, CLUSTER_NODES), (light, SINGLE_NODES)):
        if chosen.any():
            groups.append(_component_nodes(s, p, a, low[chosen], high[chosen], count))
    return tuple(groups)


def _held(s: Reals, low: Reals, high: Reals) -> list[slice]:
    return [slice(first, last) for first, last in zip(*np.searchsorted(s, (low, high)), strict=True)]


def _component_nodes(s: Reals, p: Reals, a: float, low: Reals, high: Reals, count: int) -> Nodes:
    theta = midpoint_angles(count)
    half = 0.5 * (high - low)
    u = 0.5 * (low + high)[:, None] - half[:, None] * np.cos(theta)
    x, v, slope = (values.reshape(u.shape) for values in biane_curve(s, p, a, u.ravel()))
    mass = v / (np.pi * a**2) * slope * half[:, None] * np.sin(theta)
    ends = [end + a**2 * (p / (end[:, None] - s)).sum(1) for end in (low, high)]
    return Nodes(ends[0][None], ends[1][None], x[None], mass[None], ((x - u) / a**2)[None])
