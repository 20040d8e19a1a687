"""The direct student trains a symmetric matrix S itself, not a factor of it.

In the limit of large dimension d its state is three numbers (arXiv 2609.03858, equations 402 to 404). The
flow `dS/dtau = -2 (G S + H S*) - gamma S` starts from a Gaussian S0. Then S keeps the form
`S = c0 S0 + c1 S* + sqrt(v) Z`. Z is a symmetric Gaussian matrix with its spectrum on [-2, 2]. The term with
the learning rate eta is not in the paper; it was derived for attnlaw.

    c0' = -k c0,   c1' = -k c1 - 2 H,   v' = -2 k v + eta sigma2/4,   k = 2 G + gamma
    q = c0^2 q0 + c1^2 Q* + v,   m = c1 Q*,   t = c1 t*

| letter | meaning |
|---|---|
| S* | the target, with Q* = Tr S*^2/d and t* = Tr S*/d |
| q, m, t | Tr S^2/d, Tr S S*/d and Tr S/d of the student |
| q0 | Tr S0^2/d, the square of the `scale` |
| tau, gamma | time and weight decay |
| G, H, sigma2 | gains and noise of the potential (`potential`) |
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
    """The state `S = c0 S0 + c1 S* + sqrt(v) Z` of a student at one time."""

    c1: float  # the share of the target in S
    width: float  # standard deviation of the Gaussian part, `sqrt(c0^2 q0 + v)`
    q: float  # the norm, Tr S^2/d
    m: float  # the overlap with the target, Tr S S*/d
    t: float  # the trace, Tr S/d
    E: float  # estimation error Tr (S - S*)^2/d


def flow(
    target: Target, potential: Potential, eta: float, decay: float, scale: float, times: Reals
) -> list[DirectState]:
    """Integrate the equations of the module for c0, c1 and v, and return the state at each time."""
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
    """Return the trajectory of a direct student as arrays. The keys are the field names of `Trajectory`."""
    return average_over_potentials(problem, lambda potential: _states(problem, potential, schedule))


def spectrum(problem: Problem, schedule: Schedule) -> Law:
    """Return the eigenvalue distribution of the student at the last time: scaled target plus noise."""
    state = _states(problem, potential_of(problem), schedule)[-1]
    if state.c1 == 0:
        return Semicircle(state.width)
    base = problem.target.law.scaled(abs(state.c1))
    law = FreeConvolution(base, state.width) if state.width > SHARP * abs(state.c1) else base
    # A student with an even output may learn -S*. Then c1 is negative.
    return law if state.c1 > 0 else Mirrored(law)


def outliers(problem: Problem, schedule: Schedule) -> tuple[Outlier, ...]:
    """Return the target eigenvalues that are outliers of the student at the last time, largest first."""
    state = _states(problem, potential_of(problem), schedule)[-1]
    return () if state.c1 == 0 else find_outliers(problem.target, state.width / state.c1, None, state.c1)


def _states(problem: Problem, potential: Potential, schedule: Schedule) -> list[DirectState]:
    times = np.array(schedule.times)
    return flow(problem.target, potential, schedule.learning_rate, schedule.decay, schedule.scale, times)
