"""Edges and quadrature nodes of mu_a, the free convolution of a base law with a semicircle.

`mu_a` is the law of the eigenvalues of `S + a Z`, where S has the base law and Z is a symmetric Gaussian
matrix with spectrum on [-2, 2]. There are three kinds of base law.

| letter | meaning |
|---|---|
| a | standard deviation of the semicircle |
| g | Stieltjes transform of mu_a on the real line, `g = Re g - i pi density` |
| c, k0 | `1/sqrt(kappa0)`, kappa0: the Marchenko-Pastur base |
| s, p | eigenvalues and weights of a discrete base |
| u + i v | Biane's boundary curve: `x = w + a^2 g_base(w)` is real on it |

The third base is a product of two independent standard Gaussian factors d x m, `S* = W_Q W_K^T / sqrt(m d)`
with k = m/d. Its singular values with both signs, each of half the weight, have a symmetric law nu of
variance 1. Add noise Z of independent entries of variance 1/d. The singular values of `S* + a Z` with both
signs then have the law mu_a, the free convolution of nu with a semicircle (for square matrices;
Benaych-Georges 2009). Its transform solves

    -(a^2/k) g^4 + (x/k) g^3 + (1 - 1/k + a^2) g^2 - x g + 1 = 0.

| letter | meaning |
|---|---|
| y, X | `a g`, `x/a`: `y^4 - X y^3 - B y^2 + K X y - K = 0` |
| B, K | `k - 1 + k a^2`, `k a^2` |
| Y, h | `abs(y)^2` and `Re y` of the complex pair; `h = X Y (Y + K) / (2 (Y^2 + K))` |
| u | `Y - K/Y`, the real root of the resolvent `u^3 + B u^2 + K (4 - X^2) u + K (4 B + X^2 - K X^2) = 0` |
| W | `y^2` at an edge: `W^3 + (B - 3K) W^2 + K (B + 3) W - K^2 = 0` |

Inside the support the quartic has one complex pair and two real roots of opposite signs, so the resolvent has
one real root.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from attnlaw.core.arrays import Indices, Reals
from attnlaw.numerics.quadrature import cosine_coefficients, midpoint_angles

CUBIC_NODES = (64, 256, 1024, 4096, 16384)
BIANE_NODES = (12, 64, 256, 1024, 4096, 16384)
BLOCK = 500_000  # most points times atoms in one array
IN_CACHE = 2**13  # nodes solved together: twice as fast as a large batch
SETTLED = 1e-11  # relative step of Newton's method after which the error is far below rounding


@dataclass(frozen=True)
class Nodes:
    """Quadrature nodes on each interval of mu_a, for several values of a.

    Each interval is the image of an angle theta from 0 to pi. The nodes are at midpoints of equal steps of
    theta. Arrays have the shape (batch, intervals, nodes) unless the text says otherwise.
    """

    low: Reals
    high: Reals  # the upper edges of the intervals, (batch, intervals)
    x: Reals  # the nodes
    mass: Reals  # the density times `dx/dtheta` at the nodes
    re_g: Reals  # the real part of the transform g at the nodes


def cubic_edges(k0: float, a: Reals) -> tuple[Reals, Reals]:
    """Return the edges of a Marchenko-Pastur law (scale 1) convolved with semicircles.

    The edges are the values of `x(g) = 1/g + a^2 g + sqrt(k0)/(1 - c g)` where its derivative vanishes, at
    real g. The function finds all of these g at once, as eigenvalues of companion matrices in `y = a g`.

    The edges have the shape (batch, 2). If there is no gap, the second interval is empty.
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
    """Return the real part of the transform g, and the density, at points x inside the support.

    The value y = a g solves `y^3 + A y^2 + B y + C = 0` with `A = -(a/c + x/a)`, `B = (x + c - sqrt(k0))/c`
    and `C = -a/c`. If r is the positive root, the two complex roots have the product `-C/r` and the sum `-(A
    + r) = (B + C/r)/r`. The arrays a and x are broadcast against each other.
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
        new = r - step
        r = np.where(new > 0, new, r / 2)
        if (np.abs(step) <= SETTLED * r).all():
            break
    # Both forms of the sum are equal; this chooses the one that cancels less.
    half_sum = 0.5 * np.where(r > 0.5 * np.abs(A), (B + C / r) / r, -(A + r))
    imaginary = np.sqrt(np.maximum(-C / r - half_sum**2, 0.0))
    return half_sum / a, imaginary / (np.pi * a)


def cubic_nodes(k0: float, a: Reals) -> list[tuple[Indices, Nodes]]:
    """Return nodes of a Marchenko-Pastur law (scale 1) convolved with semicircles of deviations `a`."""
    low, high = cubic_edges(k0, a)
    has_gap = high[:, 1] > low[:, 1]

    def lay(rows: Indices, count: int) -> Nodes:
        index = np.s_[rows, : 2 if has_gap[rows[0]] else 1]
        return interval_nodes(low[index], high[index], count, a[rows], partial(cubic_stieltjes, k0))

    # The second moment is known. Its error shows which members need more nodes (a small gap).
    sizes = 1 + k0 + a * a
    return [group for mask in (~has_gap, has_gap) for group in enough_nodes(lay, sizes, np.flatnonzero(mask))]


def enough_nodes(
    make_nodes: Callable[[Indices, int], Nodes], second_moments: Reals, rows: Indices
) -> list[tuple[Indices, Nodes]]:
    """Increase the number of nodes until the mass and second moment are accurate to 1e-12."""
    groups = []
    for count in CUBIC_NODES:
        if not rows.size:
            break
        nodes = make_nodes(rows, count)
        second = (nodes.mass * nodes.x**2).sum(axis=(1, 2)) * (np.pi / count)
        mass = nodes.mass.sum(axis=(1, 2)) * (np.pi / count)
        error = np.abs(second / second_moments[rows] - 1) + np.abs(mass - 1)
        done = (error < 1e-12) | (count == CUBIC_NODES[-1])
        if done.any():
            groups.append((rows[done], Nodes(*(value[done] for value in vars(nodes).values()))))
        rows = rows[~done]
    return groups


def interval_nodes(
    low: Reals, high: Reals, count: int, a: Reals, stieltjes: Callable[[Reals, Reals], tuple[Reals, Reals]]
) -> Nodes:
    """Return `count` quadrature nodes `x = middle - half cos(theta)` on each interval."""
    theta = midpoint_angles(count)
    half = 0.5 * (high - low)
    x = 0.5 * (low + high)[..., None] - half[..., None] * np.cos(theta)
    re_g, density = _solve_blocks(stieltjes, a, x)
    return Nodes(low, high, x, density * half[..., None] * np.sin(theta), re_g)


def _solve_blocks(
    stieltjes: Callable[[Reals, Reals], tuple[Reals, Reals]], a: Reals, x: Reals
) -> tuple[Reals, Reals]:
    """Return Re g and the density at points x, (batch, intervals, nodes), in blocks that fit in the cache."""
    rows = max(IN_CACHE // x[0].size, 1)
    blocks = [stieltjes(a[i : i + rows, None, None], x[i : i + rows]) for i in range(0, a.size, rows)]
    re_g, density = (np.concatenate(values) for values in zip(*blocks, strict=True))
    return re_g, density


def biane_components(s: Reals, p: Reals, a: float) -> tuple[Indices, Indices, Reals, Reals]:
    """Return the intervals of u on which Biane's curve u + i v has v > 0.

    On these intervals `sum p/(u-s)^2 > 1/a^2`. This sum is convex between neighbouring atoms, so a gap opens
    exactly if its minimum is below 1/a^2. Newton's method finds both ends of the gap, from the atoms inwards.

    Returns:
        The arrays first, last, low and high. An interval reaches from `s[first] + low` to `s[last] + high`.
        Ends are measured from an atom, because rounding errors of s can exceed the length of an interval.
    """
    width = np.diff(s) / a
    # A gap can only open if the two neighbours alone leave room for it.
    left = np.flatnonzero(8.0 * np.minimum(p[:-1], p[1:]) < width**2)

    def sums(atom: Indices, t: Reals) -> tuple[Reals, Reals, Reals]:
        # t is the distance from the atom; all in units of a.
        inverse = 1.0 / ((s[atom][:, None] - s) / a + t[:, None])
        square = p * inverse * inverse
        third = square * inverse
        return square.sum(1), third.sum(1), (third * inverse).sum(1)

    # At the least value the third powers sum to zero; the two neighbours alone give the start.
    below, above = np.zeros(left.size), width[left]
    bottom = above / (1 + np.cbrt(p[left + 1] / p[left]))
    for _ in range(60):
        _, third, fourth = sums(left, bottom)
        below, above = np.where(third > 0, bottom, below), np.where(third > 0, above, bottom)
        newton = bottom + third / (3 * fourth)
        inside = (newton > below) & (newton < above)
        new = np.where(inside, newton, 0.5 * (below + above))
        settled = np.abs(new - bottom) <= 1e-10 * width[left]
        bottom = new
        if settled.all():
            break
    opened = sums(left, bottom)[0] < 1.0
    left, bottom = left[opened], bottom[opened]

    def edge(atom: Indices, t: Reals, stop: Reals) -> Reals:
        # Newton for f^(-1/2), concave and nearly linear: a few monotone steps towards `stop`.
        for _ in range(60):
            f, third, _ = sums(atom, t)
            step = (1 - f**-0.5) * f**1.5 / third
            t = np.where(t < stop, np.minimum(t + step, stop), np.maximum(t + step, stop))
            if np.all(np.abs(step) <= 1e-12 * np.abs(t)):
                break
        return t

    first, last = np.append(0, left + 1), np.append(left, s.size - 1)
    high = edge(last, np.sqrt(p[last]), np.append(bottom, 1.0))
    low = edge(first, -np.sqrt(p[first]), np.append(-1.0, bottom - width[left]))
    return first, last, a * low, a * high


def biane_curve(
    s: Reals, p: Reals, a: float, u: Reals, origin: Reals | None = None
) -> tuple[Reals, Reals, Reals, Reals]:
    """Return `x(u)`, `v(u)`, `dx/du` and the real part of g on Biane's curve at points u (one axis).

    The function finds `v^2` as the root of `sum p/((u-s)^2 + v^2) = 1/a^2`. Newton's method approaches this
    root from below. `dx/du` is valid only for v > 0.
    """
    origin = np.zeros(u.size) if origin is None else origin
    rows = max(BLOCK // s.size, 1)
    blocks = [
        _curve(((origin[i : i + rows, None] - s) + u[i : i + rows, None]) / a, p)
        for i in range(0, u.size, rows)
    ]
    v, slope, re_g = np.concatenate(blocks, axis=1) if blocks else np.empty((3, 0))
    return u + a * re_g, a * v, slope, re_g / a


def _curve(apart: Reals, p: Reals) -> Reals:
    """Return v, dx/du and Re g of Biane's curve, given distances u - s in units of a (points, atoms)."""
    square = apart**2
    # The nearest atom alone gives a lower bound of v^2, so Newton starts from there.
    nearest = square.argmin(1)
    t = np.maximum(p[nearest] - square[np.arange(nearest.size), nearest], 0.0)
    for _ in range(100):
        inverse = p / (square + t[:, None])
        value = inverse.sum(1)
        slope = (inverse / (square + t[:, None])).sum(1)
        # Newton for 1/value, which is nearly linear in t: few steps, still monotone.
        step = (value - 1.0) * value / slope
        t = t + np.maximum(step, 0.0)
        if np.all(step <= 1e-14 * t):
            break
    distance = square + t[:, None]
    inverse = p / distance
    re_g = (inverse * apart).sum(1)
    second = inverse / distance
    v_dv = -(second * apart).sum(1) / second.sum(1)
    slope = 2 - 2 * (second * apart * (apart + v_dv[:, None])).sum(1)
    return np.stack([np.sqrt(t), slope, re_g])


def biane_atoms(s: Reals, p: Reals, a: float) -> list[slice]:
    """Return which atoms s merge into each interval of the convolved law. Each entry is a slice."""
    first, last, _, _ = biane_components(s, p, a)
    return [slice(start, stop) for start, stop in zip(first.tolist(), (last + 1).tolist(), strict=True)]


def biane_nodes(s: Reals, p: Reals, a: float) -> tuple[Nodes, ...]:
    """Return quadrature nodes of a discrete law convolved with a semicircle.

    There are enough nodes if the last cosine coefficients of the mass are below 1e-9 of the first.
    """
    components = biane_components(s, p, a)
    groups = []
    for count in BIANE_NODES:
        nodes = _component_nodes(s, p, a, *components, count)
        coefficients = np.abs(cosine_coefficients(nodes.mass[0]))
        # An atom far from all others becomes nearly a semicircle, which needs few nodes.
        done = coefficients[:, -3:].max(1) <= 1e-9 * coefficients[:, 0]
        done |= count == BIANE_NODES[-1]
        if done.any():
            groups.append(Nodes(*(value[:, done] for value in vars(nodes).values())))
        if done.all():
            break
        first, last, low, high = (values[~done] for values in components)
        components = first, last, low, high
    return tuple(groups)


def _component_nodes(
    s: Reals, p: Reals, a: float, first: Indices, last: Indices, low: Reals, high: Reals, count: int
) -> Nodes:
    """Return nodes on some components, measured from their first atoms to keep digits until the end."""
    theta = midpoint_angles(count)
    # Positions are measured from the first atom and shifted only at the end, to keep their digits.
    start, end = low, s[last] - s[first] + high
    half = 0.5 * (end - start)
    u = 0.5 * (start + end)[:, None] - half[:, None] * np.cos(theta)
    origin = s[first]
    curve = biane_curve(s, p, a, u.ravel(), np.repeat(origin, count))
    x, v, slope, re_g = (values.reshape(u.shape) for values in curve)
    mass = v / (np.pi * a**2) * slope * half[:, None] * np.sin(theta)
    ends = [
        s[atom] + (t + a * (p / ((s[atom][:, None] - s + t[:, None]) / a)).sum(1))
        for atom, t in ((first, low), (last, high))
    ]
    # An interval narrower than the rounding error of its position keeps one step of it.
    top = np.maximum(ends[1], np.nextafter(ends[0], np.inf))
    return Nodes(ends[0][None], top[None], (origin[:, None] + x)[None], mass[None], re_g[None])


def product_edges(k: float, a: Reals) -> tuple[Reals, Reals]:
    """Return the intervals of mu_a that contain positive numbers.

    They are `[-e0, e0]` and, if there is a gap, `[e1, e2]`. The edges are the values abs(x) at the real
    points g where dx/dg = 0. A nearly closed gap counts as closed.
    """
    K = k * a * a
    B = k - 1 + K
    second, first, last = B - 3 * K, K * (B + 3), -K * K
    companion = np.zeros((a.size, 3, 3))
    companion[:, 0] = -np.stack([second, first, last], axis=1)
    companion[:, [1, 2], [0, 1]] = 1.0
    roots = np.linalg.eigvals(companion)
    real = (np.abs(roots.imag) <= 1e-9 * np.abs(roots)) & (roots.real > 0)
    W = np.where(real, roots.real, 1.0)
    B, K, second, first, last = (coefficient[:, None] for coefficient in (B, K, second, first, last))
    for _ in range(2):
        value, slope = ((W + second) * W + first) * W + last, (3 * W + 2 * second) * W + first
        step = value / np.where(slope == 0, np.inf, slope)
        W = np.where(np.abs(step) < 1e-4 * W, W - step, W)
    with np.errstate(divide="ignore"):
        x = a[:, None] * np.abs((W * W - B * W - K) / (np.sqrt(W) * (W - K)))
    x = np.sort(np.where(real, x, np.inf), axis=1)
    # There is one edge or three; two are one edge and the touching ends of a gap.
    split = np.isfinite(x[:, 2])
    outer = np.where(split, x[:, 0], np.where(np.isfinite(x[:, 1]), x[:, 1], x[:, 0]))
    low = np.stack([-outer, np.where(split, x[:, 1], outer)], axis=1)
    high = np.stack([outer, np.where(split, x[:, 2], outer)], axis=1)
    return low, high


def product_stieltjes(k: float, a: Reals, x: Reals) -> tuple[Reals, Reals]:
    """Return the real part of g and the density of mu_a at points x inside the support."""
    K, X = k * a * a, x / a
    B, square = k - 1 + K, X * X
    linear, constant = K * (4 - square), K * (4 * B + square - K * square)
    p, q = linear - B * B / 3, B * (2 * B * B / 27 - linear / 3) + constant
    root = np.sqrt(np.maximum((q / 2) ** 2 + (p / 3) ** 3, 0.0))
    S = np.cbrt(np.where(q > 0, -q / 2 - root, -q / 2 + root))
    u = S - p / (3 * np.where(S == 0, 1.0, S)) - B / 3
    for _ in range(4):
        slope = (3 * u + 2 * B) * u + linear
        step = (((u + B) * u + linear) * u + constant) / np.where(slope == 0, np.inf, slope)
        size, scale = np.abs(step), np.abs(u)
        u = u - np.where(size < 0.1 * scale, step, 0.0)
        if (size <= SETTLED * scale).all():
            break
    far = np.sqrt(u * u + 4 * K)
    Y = np.where(u > 0, (u + far) / 2, 2 * K / np.where(u > 0, 1.0, far - u))
    half_sum = X * Y * (Y + K) / (2 * (Y * Y + K))
    imaginary = np.sqrt(np.maximum(Y - half_sum**2, 0.0))
    return half_sum / a, imaginary / (np.pi * a)


def product_nodes(k: float, a: Reals) -> list[tuple[Indices, Nodes]]:
    """Return nodes of mu_a for many values of a, in groups of (indices, nodes)."""
    low, high = product_edges(k, a)
    has_gap = high[:, 1] > low[:, 1]
    solve = partial(product_stieltjes, k)

    def lay_middle(rows: Indices, count: int) -> Nodes:
        theta, half = midpoint_angles(count), high[rows, :1, None]
        x = -half * np.cos(theta[count // 2 :])
        re_g, density = _solve_blocks(solve, a[rows], x)
        mass = density * half * np.sin(theta[count // 2 :])
        x, mass, re_g = (_unfold(values, sign) for values, sign in ((x, -1.0), (mass, 1.0), (re_g, -1.0)))
        return Nodes(low[rows, :1], high[rows, :1], x, mass, re_g)

    def lay_all(rows: Indices, count: int) -> Nodes:
        # The last interval is the image of the second under x -> -x.
        middle = lay_middle(rows, count)
        upper = interval_nodes(low[rows, 1:], high[rows, 1:], count, a[rows], solve)
        lower = -upper.high, -upper.low, -upper.x[..., ::-1], upper.mass[..., ::-1], -upper.re_g[..., ::-1]
        parts = zip(vars(middle).values(), vars(upper).values(), lower, strict=True)
        return Nodes(*(np.concatenate(values, axis=1) for values in parts))

    return [
        group
        for lay, mask in ((lay_middle, ~has_gap), (lay_all, has_gap))
        for group in enough_nodes(lay, 1 + a * a, np.flatnonzero(mask))
    ]


def _unfold(upper: Reals, sign: float) -> Reals:
    """Return the values of an even (sign 1) or odd (sign -1) function from those at the nodes above zero."""
    return np.concatenate([sign * upper[..., ::-1], upper], axis=-1)
