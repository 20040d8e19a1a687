"""The blurred law of a product of two Gaussian factors: its edges and its values there, without iteration.

`S* = W_Q W_K^T / sqrt(m d)` with independent standard factors d x m, k = m/d. Its singular values with both
signs, each of half the weight, have a symmetric law nu of variance 1; the singular values of `S* + a Z`, Z of
independent entries of variance 1/d, with both signs have the law mu_a, the free convolution of nu with a
semicircle of standard deviation a (for square matrices; Benaych-Georges 2009). Its transform solves

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

from functools import partial

import numpy as np

from attnlaw.theory.laws.convolution_nodes import Indices, Nodes, Reals, enough_nodes, interval_nodes


def product_edges(k: float, a: Reals) -> tuple[Reals, Reals]:
    """Intervals of mu_a that are not wholly negative, shape (batch, 2): `[-e0, e0]` and `[e1, e2]` or none.

    Edges are abs(x) at real g with dx/dg = 0. A nearly closed gap counts as closed.
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
    # One edge or three; two are one edge and the touching ends of a gap.
    split = np.isfinite(x[:, 2])
    outer = np.where(split, x[:, 0], np.where(np.isfinite(x[:, 1]), x[:, 1], x[:, 0]))
    low = np.stack([-outer, np.where(split, x[:, 1], outer)], axis=1)
    high = np.stack([outer, np.where(split, x[:, 2], outer)], axis=1)
    return low, high


def product_stieltjes(k: float, a: Reals, x: Reals) -> tuple[Reals, Reals]:
    """`Re g` and the density of mu_a at x inside the support (arrays that broadcast).

    >>> re_g, density = product_stieltjes(0.5, np.array(1.0), np.array([0.0, 1.0]))
    >>> g = re_g - 1j * np.pi * density
    >>> x = np.array([0.0, 1.0])
    >>> bool(np.abs(-2 * g**4 + 2 * x * g**3 + 0 * g**2 - x * g + 1).max() < 1e-14)
    True
    """
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
        u = u - np.where(np.abs(step) < 0.1 * np.abs(u), step, 0.0)
    far = np.sqrt(u * u + 4 * K)
    Y = np.where(u > 0, (u + far) / 2, 2 * K / np.where(u > 0, 1.0, far - u))
    half_sum = X * Y * (Y + K) / (2 * (Y * Y + K))
    imaginary = np.sqrt(np.maximum(Y - half_sum**2, 0.0))
    return half_sum / a, imaginary / (np.pi * a)


def product_nodes(k: float, a: Reals) -> list[tuple[Indices, Nodes]]:
    """Nodes of all of mu_a for a batch of noise levels, in groups (members of the batch, nodes)."""
    low, high = product_edges(k, a)

    def lay(rows: Indices, count: int) -> Nodes:
        return _nodes(k, a[rows], low[rows], high[rows], count)

    return enough_nodes(lay, 1 + a * a, np.arange(a.size))


def _nodes(k: float, a: Reals, low: Reals, high: Reals, count: int) -> Nodes:
    half = interval_nodes(low, high, count, a, partial(product_stieltjes, k))

    def with_mirror(values: Reals, sign: float) -> Reals:
        # The last interval is the image of the second under x -> -x.
        image = sign * (values[:, 1:, ::-1] if values.ndim == 3 else values[:, 1:])
        return np.concatenate([values, image], axis=1)

    ends = np.concatenate([low, -high[:, 1:]], axis=1), np.concatenate([high, -low[:, 1:]], axis=1)
    return Nodes(*ends, with_mirror(half.x, -1.0), with_mirror(half.mass, 1.0), with_mirror(half.re_g, -1.0))
