"""The plain route to mu_a of a Marchenko-Pastur base: np.roots for the density, scipy.quad for integrals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.integrate import quad


def transform(k0: float, a: float, x: float) -> complex:
    """g(x + i0): the root of the cubic with the most negative imaginary part (0 outside the support)."""
    c = 1 / np.sqrt(k0)
    roots = np.roots([c * a * a, -(a * a + c * x), x + c - np.sqrt(k0), -1.0])
    return complex(roots[np.argmin(roots.imag)])


def edges(k0: float, a: float) -> list[float]:
    c = 1 / np.sqrt(k0)
    roots = np.roots([a * a * c * c, -2 * a * a * c, a * a - c * c + 1, 2 * c, -1.0])
    real = [root.real for root in roots if abs(root.imag) < 1e-9 * abs(root)]
    return sorted(1 / g + a * a * g + np.sqrt(k0) / (1 - c * g) for g in real)


def integral(
    k0: float, a: float, function: Callable[[float, complex], float], above: float = -np.inf
) -> float:
    """`int_{x > above} function(x, g(x)) dmu_a`."""
    ends = edges(k0, a)
    total = 0.0
    for low, high in zip(ends[::2], ends[1::2], strict=True):
        if high <= above:
            continue

        def integrand(x: float) -> float:
            g = transform(k0, a, x)
            return -g.imag / np.pi * function(x, g)

        total += quad(integrand, max(low, above), high, epsabs=1e-11, epsrel=1e-11, limit=200)[0]
    return total
