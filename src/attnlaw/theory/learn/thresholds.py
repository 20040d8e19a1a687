"""Thresholds: sample sizes at which learning changes, such as the one beyond which the target is recovered.

They are counted in observations per d^2 (alpha at one token). A sample gives `T(T+1)/2` of them with the
linear output and `(T^2+T-2)/2` with softmax, and `thresholds` divides by this number. k0 is the fraction of
eigenvalues of the target that are not zero. If many eigenvalues are equal, p_i is the fraction that has the
i-th such value.

| name | formula |
|---|---|
| recovery | `1/2 min_t {1 - (1-k0)^2 + k0 (1-k0) t^2 + (1-k0)^2 int_t^2 (x-t)^2 rho_sc}` |
| feasibility | `1/2 [1 - (1-k0)^2 / 2]`: beyond it only S* fits clean labels among positive semidefinite S |
| bayes | `1/2 [1 - sum_i p_i^2]`; `k0 - k0^2/2` if zero is the only such value |
| direct | 1/2 |
| interpolation | `chi(delta, 0)/2` at the delta with `Q* + Delta/2 + delta^2 chi(delta, 0) = J(delta, 0)` |
| ... direct | 1/2 |

Here rho_sc is the density of the semicircle on [-2, 2], and J and chi are the integrals of
`attnlaw.theory.laws.transformed`. Thresholds of untied attention are counted in pairs per d^2 (P per sample):

| name | formula |
|---|---|
| recovery | `min_t {1 - (1-k0)^2 + k0 (1-k0) t^2 + 2 (1-k0)^2 int_t^2 (x-t)^2 rho_sc}` (arXiv 1302.2331) |
| bayes | `1 - p0^2 - sum_i p_i^2 / 2`, p0 the share of zeros; `2 k0 - k0^2` if zero is the only such value |
| direct, interpolation | 1; without positivity the error there has no bound, and there is no feasibility |

All but the interpolation threshold are for clean labels. Hardmax labels have no thresholds, because they
never reveal the target exactly.

Sources: arXiv 2509.24914, 2506.01582, 2505.17958; Amelunxen et al. 2014 for the statistical dimensions.
Letters are explained in `attnlaw.theory.learn.problem`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from attnlaw.core.errors import BadSetting
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import Truncated
from attnlaw.theory.laws.transformed import rectify
from attnlaw.theory.learn.attention import ATTENTIONS
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.student import STUDENTS
from attnlaw.theory.learn.target import Target

# The least noise over Q* that a difference of integrals resolves (fewer digits for narrow components).
LEAST_NOISE, LEAST_NOISE_DISCRETE = 1e-11, 1e-5
# An expansion in 1/delta is used if delta is this many times the target's largest eigenvalue.
FAR = 300.0


@dataclass(frozen=True)
class Thresholds:
    """The values of alpha = n/d^2 at which learning changes."""

    recovery: float  # the factorized student finds the target from clean labels
    feasibility: float | None  # only the target fits clean labels (tied attention)
    bayes: float  # the Bayes-optimal student finds the target from clean labels
    direct: float  # the direct student finds the target from clean labels
    own_recovery: float | None  # the given student finds the target from clean labels
    interpolation: float | None  # the given student fits all noisy labels up to here
    peak_error: float | None  # test error there as weight decay -> 0; None if it has no bound


@lru_cache(maxsize=256)
def thresholds(
    target: Target,
    observations_per_sample: float = 1.0,
    noise: float = 0.0,
    student: str = "factorized",
    attention: str = "tied",
) -> Thresholds:
    """Return all thresholds for a target, as numbers of samples divided by d^2.

    >>> round(thresholds(Target.marchenko_pastur(0.5)).recovery, 6)
    0.422175
    """
    k0 = min(target.rank_fraction, 1.0)
    who, per = STUDENTS[student].for_attention(attention), observations_per_sample
    if who is None:
        raise BadSetting(
            "student", f"there is no theory for this student with {{attention}} {attention}", student
        )
    tied = attention == "tied"
    peak = who.interpolation(target, noise) if noise > 0 and who.interpolation is not None else None
    return Thresholds(
        recovery=recovery(k0, ATTENTIONS[attention].sides) / per,
        feasibility=feasibility(k0) / per if tied else None,
        bayes=(bayes_recovery(target) if tied else untied_bayes_recovery(target)) / per,
        direct=(0.5 if tied else 1.0) / per,
        own_recovery=None if who.recovery is None else who.recovery(target) / per,
        interpolation=None if peak is None else peak[0] / per,
        peak_error=None if peak is None else peak[1],
    )


def problem_thresholds(problem: Problem) -> Thresholds | None:
    """Return the thresholds of a problem, or None if its labels never determine the target exactly."""
    if not problem.observed_output.identifies_target:
        return None
    return thresholds(
        problem.target, problem.observations_per_sample, problem.noise, problem.student, problem.attention
    )


def recovery(k0: float, sides: int = 1) -> float:
    """Return the alpha from which nuclear-norm minimisation finds the target S* from clean labels.

    It is `sides/2 min_t {1 - (1-k0)^2 + k0 (1-k0) t^2 + sides (1-k0)^2 int_t^2 (x-t)^2 rho_sc}`. For untied
    attention (2 sides) it is alpha_P.
    """
    if k0 >= 1:
        return 0.5 * sides

    def slope(t: float) -> float:
        return k0 * t - sides * (1 - k0) * _semicircle_tail(t)[0]

    t = float(scipy.optimize.brentq(slope, 0.0, 2.0, xtol=1e-14))
    rest = 1 - k0
    dimension = 1 - rest**2 + k0 * rest * t**2 + sides * rest**2 * _semicircle_tail(t)[1]
    return 0.5 * sides * dimension


def bayes_recovery(target: Target) -> float:
    """Return the smallest alpha at which the Bayes-optimal student finds S* from noise-free labels.

    As the noise level a goes to 0, each atom becomes a semicircle of variance `p_i a^2`, and `E(a)/a^2` grows
    to `1 - sum_i p_i^2`. At larger alpha, `2 alpha a^2 = E(a)` has no solution.
    """
    if target.dimension is not None:
        return 0.5 * (1 - 1 / target.dimension)
    return 0.5 * (1 - sum(share**2 for share in _shares(target).values()))


def untied_bayes_recovery(target: Target) -> float:
    """Return the smallest alpha_P at which the Bayes-optimal student finds S* from noise-free labels."""
    if target.dimension is not None:
        return 1 - 0.5 / target.dimension
    return 1 - sum(share**2 / (1 if value == 0 else 2) for value, share in _shares(target).items())


def _shares(target: Target) -> dict[float, float]:
    """Return the fraction of the target's eigenvalues at each value that many of them share."""
    shares: dict[float, float] = {}
    for value, weight in target.values.atoms:
        shares[value] = shares.get(value, 0.0) + weight
    return shares


def feasibility(k0: float) -> float:
    """Return the smallest alpha at which S* is the only S >= 0 that fits noise-free labels."""
    return 0.5 * (1 - (1 - min(k0, 1.0)) ** 2 / 2)


def interpolation_peak(target: Target, noise: float) -> tuple[float, float | None]:
    """Return the interpolation threshold alpha_int, and the test error there without weight decay.

    The error is `2 alpha_int delta^2 - Delta/2`, or None if the noise is too small for float64.
    """
    Q = target.second_moment
    # Raising tiny noise to this value changes alpha_int by less than 1e-4.
    seen = max(noise, LEAST_NOISE * Q)
    is_resolved = noise >= (LEAST_NOISE_DISCRETE if isinstance(target.law, Discrete) else LEAST_NOISE) * Q

    def miss(log_delta: float) -> float:
        return seen / 2 - _excess(target, float(np.exp(log_delta)))[0]

    # The excess is 0 at delta -> 0 and grows without bound, so both scans end.
    low = high = float(np.log(np.sqrt(Q + seen)))
    while miss(low) < 0:
        low -= 1.0
    while miss(high) > 0:
        high += 1.0
    delta = float(np.exp(scipy.optimize.brentq(miss, low, high, xtol=1e-13)))
    chi = _excess(target, delta)[1]
    return chi / 2, chi * delta**2 - noise / 2 if is_resolved else None


def _excess(target: Target, delta: float) -> tuple[float, float]:
    """Return `J(delta, 0) - delta^2 chi(delta, 0) - Q*`, and `chi(delta, 0) = dJ/d(delta^2)`.

    If delta is far above the spectrum, `J = delta^2/2 + 8 m delta/(3 pi) + Q*/2 + (4 m v + m^3 + 8 k/5)/(3 pi
    delta)`, with mean m, variance v and third cumulant k of the target, avoids a cancellation.
    """
    Q = target.second_moment
    if delta > FAR * target.law.support[1]:
        m, third = target.mean, target.law.moment(3)
        v, k = Q - m * m, third - 3 * m * Q + 2 * m**3
        first, last = 8 * m / (3 * np.pi), (4 * m * v + m**3 + 8 * k / 5) / (3 * np.pi)
        chi = 0.5 + first / (2 * delta) - last / (2 * delta**3)
        return first * delta / 2 - Q / 2 + 1.5 * last / delta, chi
    parts = rectify(Truncated(target.law, np.array([delta])), np.zeros(1))
    J, chi = float(parts.J[0]), float(parts.chi[0])
    return J - delta**2 * chi - Q, chi


def _semicircle_tail(t: float) -> tuple[float, float]:
    """Return the integrals `int_t^2 (x-t)^k rho_sc` for k = 1, 2, with `x = 2 cos(phi)`."""
    # With x = 2 cos(phi), rho_sc dx is (2/pi) sin^2(phi) dphi.
    phi = np.arccos(min(t / 2, 1.0))
    mass = (phi - np.sin(2 * phi) / 2) / np.pi
    first = 4 * np.sin(phi) ** 3 / (3 * np.pi)
    second = (phi - np.sin(4 * phi) / 4) / np.pi
    return float(first - t * mass), float(second - 2 * t * first + t * t * mass)
