"""The direct student, a symmetric S trained itself: three numbers move (arXiv 2609.03858, eqs. 402 to 404).

`dS/dtau = -2 (G S + H S*) - gamma S` from a Gaussian start stays `S = c0 S0 + c1 S* + sqrt(v) Z`, Z symmetric
Gaussian with spectrum on [-2, 2]; the term of the finite learning rate eta is derived for this project:

    c0' = -k c0,   c1' = -k c1 - 2 H,   v' = -2 k v + eta sigma2/4,   k = 2 G + gamma
    q = c0^2 q0 + c1^2 Q* + v,   m = c1 Q*,   t = c1 t*

| letter | meaning |
|---|---|
| q0 | Tr S0^2/d, the square of the `scale` |
| G, H, sigma2 | gains and noise of the potential |

All modes of the target are learned at one rate. Linear output without decay:
`E = Ep + (Q* + q0 - Ep) exp(-4 T(T+1)(1 - eta) tau)`, `Ep = eta (Delta/2)/(1 - eta)`; eta >= 1 diverges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.theory.dynamics.potential import Potential, potential_of
from attnlaw.theory.dynamics.quantities import average_over_potentials
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.laws.free_convolution import FreeConvolution
from attnlaw.theory.laws.law import Law
from attnlaw.theory.laws.semicircle import Semicircle
from attnlaw.theory.laws.transformed import Mirrored
from attnlaw.theory.learn.outliers import Outlier, find_outliers
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.target import Target

RELATIVE, ABSOLUTE = 1e-10, 1e-12
SHARP = 1e-6  # a Gaussian part below this share of the target's part is left out of the spectrum


@dataclass(frozen=True)
class DirectState:
    """`S = c0 S0 + c1 S* + sqrt(v) Z` at one time, `width` that of its Gaussian part."""

    c1: float
    width: float
    q: float
    m: float
    t: float
    E: float


def flow(
    target: Target, potential: Potential, eta: float, decay: float, scale: float, times: Reals
) -> list[DirectState]:
    """The states at some ascending times, of which the first is 0.

    >>> from attnlaw.theory.dynamics.potential import LinearPotential
    >>> target, potential = Target.marchenko_pastur(0.5), LinearPotential(1, 0.5, 1.5)
    >>> end = flow(target, potential, 0.3, 0.0, 1.0, np.array([0.0, 9.0]))[1]
    >>> round(end.E, 9), round(0.3 * 0.25 / 0.7, 9)
    (0.107142857, 0.107142857)
    """
    Q, q0 = target.second_moment, scale**2

    def numbers(y: Reals) -> tuple[float, float]:
        return float(y[0] ** 2 * q0 + y[1] ** 2 * Q + y[2]), float(y[1] * Q)

    def slope(y: Reals, tau: float) -> list[float]:
        q, m = numbers(y)
        G, H = potential.gains(q, m)
        k = 2 * G + decay
        added = eta * potential.noise_power(q, m) / 4 if eta > 0 else 0.0
        return [-k * y[0], -k * y[1] - 2 * H, -2 * k * y[2] + added]

    path = scipy.integrate.odeint(slope, [1.0, 0.0, 0.0], times, rtol=RELATIVE, atol=ABSOLUTE, mxstep=100_000)
    states = []
    for y in path:
        q, m = numbers(y)
        blur = float(y[0] ** 2 * q0 + max(y[2], 0.0))
        E = blur + (y[1] - 1) ** 2 * Q
        states.append(DirectState(float(y[1]), blur**0.5, q, m, float(y[1]) * target.mean, float(E)))
    return states


def solve(problem: Problem, schedule: Schedule) -> dict[str, Any]:
    """The arrays of a `Trajectory`."""
    return average_over_potentials(problem, lambda potential: _states(problem, potential, schedule))


def spectrum(problem: Problem, schedule: Schedule) -> Law:
    """The law of the eigenvalues at the last time: the scaled target seen through Gaussian noise.

    A negative c1, where an even output learns -S*, gives the mirror image of the law of -S.
    """
    state = _states(problem, potential_of(problem), schedule)[-1]
    if state.c1 == 0:
        return Semicircle(state.width)
    base = problem.target.law.scaled(abs(state.c1))
    law = FreeConvolution(base, state.width) if state.width > SHARP * abs(state.c1) else base
    return law if state.c1 > 0 else Mirrored(law)


def outliers(problem: Problem, schedule: Schedule) -> tuple[Outlier, ...]:
    """The target's spikes that stand out at the last time, largest first."""
    state = _states(problem, potential_of(problem), schedule)[-1]
    return () if state.c1 == 0 else find_outliers(problem.target, state.width / state.c1, None, state.c1)


def _states(problem: Problem, potential: Potential, schedule: Schedule) -> list[DirectState]:
    times = np.array(schedule.times)
    return flow(problem.target, potential, schedule.learning_rate, schedule.decay, schedule.scale, times)
