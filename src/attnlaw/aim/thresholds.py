"""Sample sizes at which learning changes its nature.

All are counted in observations per d^2 (alpha at one token); a sample gives `T(T+1)/2` of them with the
linear output and `(T^2+T-2)/2` with softmax, by which `thresholds` divides. k0 is the fraction of non-zero
eigenvalues of the target; only that matters for the noiseless thresholds.

| name | formula |
|---|---|
| recovery | `1/2 min_t {1 - (1-k0)^2 + k0 (1-k0) t^2 + (1-k0)^2 int_t^2 (x-t)^2 rho_sc}` |
| feasibility | `1/2 [1 - (1-k0)^2 / 2]`: beyond it only S* fits clean labels among positive semidefinite S |
| bayes | `k0 - k0^2/2` |
| direct | 1/2 |
| interpolation | `chi(delta, 0)/2` at the delta with `Q* + Delta/2 + delta^2 chi(delta, 0) = J(delta, 0)` |

Sources: arXiv 2509.24914, 2506.01582, 2505.17958; Amelunxen et al. 2014 for the statistical dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from attnlaw.aim.target import Target
from attnlaw.laws.free_convolution import Truncated
from attnlaw.laws.rectified import rectify


@dataclass(frozen=True)
class Thresholds:
    """Values of alpha = n/d^2; `peak_error` is the test error's height at interpolation as weight decay -> 0.

    `interpolation` and `peak_error` are None for clean labels, which `feasibility` describes.
    """

    recovery: float
    feasibility: float
    bayes: float
    direct: float
    interpolation: float | None
    peak_error: float | None

    def describe(self) -> dict[str, Any]:
        return dict(vars(self))


def thresholds(target: Target, observations_per_sample: float = 1.0, noise: float = 0.0) -> Thresholds:
    """All thresholds of a target, in samples per d^2.

    >>> thresholds(Target.marchenko_pastur(0.5)).recovery.__round__(6)
    0.422175
    """
    k0 = min(target.rank_fraction, 1.0)
    peak = interpolation_peak(target, noise) if noise > 0 else None
    per = observations_per_sample
    return Thresholds(
        recovery=recovery(k0) / per,
        feasibility=feasibility(k0) / per,
        bayes=(k0 - k0**2 / 2) / per,
        direct=0.5 / per,
        interpolation=None if peak is None else peak[0] / per,
        peak_error=None if peak is None else peak[1],
    )


def recovery(k0: float) -> float:
    """Least alpha at which the nuclear norm picks S* among all positive semidefinite fits of clean labels.

    The minimum over t solves `k0 t = (1-k0) int_t^2 (x-t) rho_sc`.
    """
    if k0 >= 1:
        return 0.5

    def slope(t: float) -> float:
        return k0 * t - (1 - k0) * _semicircle_tail(t)[0]

    t = float(brentq(slope, 0.0, 2.0, xtol=1e-14))
    rest = 1 - k0
    return 0.5 * (1 - rest**2 + k0 * rest * t**2 + rest**2 * _semicircle_tail(t)[1])


def feasibility(k0: float) -> float:
    """Least alpha at which S* is the only positive semidefinite fit of clean labels."""
    return 0.5 * (1 - (1 - min(k0, 1.0)) ** 2 / 2)


def interpolation(target: Target, noise: float) -> float:
    """Observations per d^2 up to which a positive semidefinite S fits all labels."""
    return interpolation_peak(target, noise)[0] if noise > 0 else feasibility(target.rank_fraction)


def interpolation_peak(target: Target, noise: float) -> tuple[float, float]:
    """`alpha_int`, and the test error `2 alpha_int delta^2 - Delta/2` there as weight decay vanishes."""
    Q = target.second_moment

    def parts(log_delta: float) -> tuple[float, float, float]:
        delta = np.exp(log_delta)
        integrals = rectify(Truncated(target.law, np.array([delta])), np.zeros(1))
        return delta, float(integrals.chi[0]), float(integrals.J[0])

    def miss(log_delta: float) -> float:
        delta, chi, J = parts(log_delta)
        return Q + noise / 2 + delta**2 * chi - J

    # J - delta^2 chi is Q* at delta -> 0 and grows without bound: the scan upward always ends.
    low = np.log(np.sqrt(Q + noise)) - 8.0
    high = low + 1.0
    while miss(high) > 0 and high < 60.0:
        low, high = high, high + 1.0
    delta, chi, _ = parts(float(brentq(miss, low, high, xtol=1e-13)))
    return chi / 2, float(chi * delta**2 - noise / 2)


def _semicircle_tail(t: float) -> tuple[float, float]:
    """`int_t^2 (x-t)^k rho_sc` for k = 1, 2, by `x = 2 cos(phi)`, `rho_sc dx = (2/pi) sin^2(phi) dphi`."""
    phi = np.arccos(min(t / 2, 1.0))
    mass = (phi - np.sin(2 * phi) / 2) / np.pi
    first = 4 * np.sin(phi) ** 3 / (3 * np.pi)
    second = (phi - np.sin(4 * phi) / 4) / np.pi
    return float(first - t * mass), float(second - 2 * t * first + t * t * mass)
