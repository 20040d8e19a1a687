"""The tied student S = W W^T in the limit of large dimension, without any d x d matrix.

The flow of the population loss, `dW/dtau = -4 (G S + H S*) W - gamma W` (arXiv 2609.03858), is a Riccati
equation with scalar coefficients, so `S^-1 = e^(2 gamma tau) e^(a S*) S0^-1 e^(a S*) + F(S*)`. From the start
`S0 = s G G^T/m'` (G Gaussian, d x m', kappa = m'/d) all that is needed of S follows from its deterministic
equivalent, a sample covariance matrix with `theta` its one unknown (derived for this project):

    da/dtau = 4 H,   dF_i/dtau = 8 G + (8 H x_i + 2 gamma) F_i,   e_i = exp(2 a x_i + 2 gamma tau)
    theta (1 - <F/(theta e + F)>/kappa) = 1/s       (kappa infinite, S0 = s I: theta = 1/s)
    u = theta e + F,  g = theta e/u:   m = <x/u>,  t = <1/u>,  q = <1/u^2> + c <g/u>
    c = (<g/u>/kappa) / (1 - 1/kappa + <2g - g^2>/kappa)

| letter | meaning |
|---|---|
| x_i, p_i | nodes and weights of the target's law; < > = sum p_i |
| s, kappa | `scale`, `width` of the start |
| G, H | gains of the potential |
| tau, gamma | time, decay |

A width below the target's rank cuts inside a node: more nodes. Where G is negative (hermite outputs, small
q) F is, too, for a while; the equation of theta is then convex in theta, and its largest root is the one that
continues from the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import odeint
from scipy.special import expit

from attnlaw.numerics.quadrature import gauss_legendre
from attnlaw.theory.dynamics.ensemble import add_noise_shifts
from attnlaw.theory.dynamics.potential import potential_of
from attnlaw.theory.dynamics.quantities import average_over_potentials
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.law import Law
from attnlaw.theory.laws.riccati import Riccati
from attnlaw.theory.learn.outliers import Outlier
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.target import Target

Reals = NDArray[np.float64]
Parts = tuple[float, Reals, Reals, Reals]
Gains = Callable[[float, float], tuple[float, float]]
ANGLES, MANY_ANGLES = 96, 500
RELATIVE, ABSOLUTE = 1e-9, 1e-11  # tolerances of the integration
ROUND_OFF = 4e-16
SMALLEST = 1e-12  # of F: below it the tolerance of the integration
LARGEST = 1e250  # of F: beyond it a mode is gone, 1/u = 0


def target_nodes(target: Target, angles: int = ANGLES) -> tuple[Reals, Reals]:
    """Nodes and weights of a target's law: Gauss-Legendre angles on its bulk, and its atoms.

    >>> x, p = target_nodes(Target.marchenko_pastur(0.5))
    >>> round(float(p.sum()), 12), round(float(p @ x**2), 12)
    (1.0, 1.5)
    """
    return law_nodes(target.law, angles)


def law_nodes(law: Law, angles: int) -> tuple[Reals, Reals]:
    """The same for any law."""
    u, w = gauss_legendre(angles)
    points, weights = [place for place, _ in law.atoms], [weight for _, weight in law.atoms]
    for piece in law.pieces:
        x, slope = piece.at(np.pi * u)
        points.extend(x)
        weights.extend(np.pi * w * slope * law.density(x))
    return np.array(points), np.array(weights)


@dataclass(frozen=True)
class TiedStart:
    """Nodes of the target with the start's scale and width: what stays the same along a trajectory."""

    x: Reals
    p: Reals
    scale: float
    width: float


@dataclass(frozen=True)
class TiedState:
    """The student at one time: `log_e` and `F` on the nodes, `log_theta`, and what they say of S."""

    log_e: Reals
    F: Reals
    log_theta: float
    q: float
    m: float
    t: float
    E: float


def state_at(start: TiedStart, log_e: Reals, F: Reals, guess: float | None = None) -> TiedState:
    """What the nodes say of S: norm, overlap, trace and distance from the target.

    `E = <(1/u - x)^2> + c <g/u>`, which keeps its digits near recovery.
    """
    x, p = start.x, start.p
    y, g, rest, inverse = (_positive if F.min() >= 0 else _signed)(start, log_e, F, guess)
    spread = 0.0
    if start.width < math.inf:
        mean = float(p @ (g * inverse))
        # kappa - 1 + <2g - g^2> by the equation of theta, so that small shares keep their digits.
        share = start.width * math.exp(-y) / start.scale + float(p @ (g * rest))
        spread = mean * mean / share if share > 0 else 0.0
    q = float(p @ inverse**2) + spread
    m, t = float(p @ (x * inverse)), float(p @ inverse)
    return TiedState(log_e, F, y, q, m, t, float(p @ (inverse - x) ** 2) + spread)


def _positive(start: TiedStart, log_e: Reals, F: Reals, guess: float | None) -> Parts:
    """log theta, g, 1 - g and 1/u in logarithms: late in time theta e and F span hundreds of decades."""
    with np.errstate(divide="ignore"):
        log_F = np.log(F)
    y = log_theta(start, log_e - log_F, guess)
    inverse = np.exp(-np.logaddexp(y + log_e, log_F))
    return y, expit(y + log_e - log_F), expit(log_F - log_e - y), inverse


def _signed(start: TiedStart, log_e: Reals, F: Reals, guess: float | None) -> Parts:
    """The same where some F is negative: Newton on `theta - <F/(e + F/theta)>/kappa - 1/s`, from above."""
    e, p, least = np.exp(log_e), start.p, 1 / start.scale
    theta = least if start.width == math.inf else least + max(float(p @ (F / e)), 0.0) / start.width
    for _ in range(100 if start.width < math.inf else 0):
        part = F / (theta * e + F)
        value = theta * (1 - float(p @ part) / start.width) - least
        step = value / (1 - float(p @ part**2) / start.width)
        theta -= step
        if abs(step) <= 1e-14 * theta:
            break
    u = theta * e + F
    return math.log(theta), theta * e / u, F / u, 1 / u


def log_theta(start: TiedStart, log_ratio: Reals, guess: float | None = None) -> float:
    """The root y = log theta of `<g> - 1 + kappa (1 - e^-y/s) = 0`, g = expit(y + log e - log F).

    Increasing in y, negative at theta = 1/s: Newton's steps inside a bracket, from a guess.
    """
    least = -math.log(start.scale)
    if start.width == math.inf:
        return least
    kappa, p = start.width, start.p
    low, high, step = least, math.inf, 1.0
    y = least if guess is None else max(guess, least)
    for _ in range(200):
        g = expit(y + log_ratio)
        rest = kappa * math.exp(least - y)
        mass = float(p @ g)
        value = mass + (kappa - 1) - rest
        if abs(value) <= ROUND_OFF * (mass + abs(kappa - 1)):
            return y
        if value > 0:
            high = y
        else:
            low = y
        slope = float(p @ (g * (1 - g))) + rest
        new = y - value / slope if slope > 0 else math.nan
        if not low < new < high:
            new = 0.5 * (low + high) if high < math.inf else low + step
            step *= 2
        if abs(new - y) <= 1e-13 * max(1.0, abs(y)) or high - low <= 1e-13 * max(1.0, abs(y)):
            return new
        y = new
    return y


def flow(start: TiedStart, gains: Gains, decay: float, times: Reals) -> list[TiedState]:
    """The states at some ascending times, of which the first is 0.

    F is stiff mode by mode: LSODA with a diagonal Jacobian.
    """
    x, guess = start.x, -math.log(start.scale)

    def state(y: Reals, tau: float) -> TiedState:
        nonlocal guess
        F = np.minimum(np.where(np.abs(y[1:]) < SMALLEST, 0.0, y[1:]), LARGEST)
        new_state = state_at(start, 2 * y[0] * x + 2 * decay * tau, F, guess)
        guess = new_state.log_theta
        return new_state

    def slope(y: Reals, tau: float) -> Reals:
        now = state(y, tau)
        G, H = gains(now.q, now.m)
        rate = 8 * G + (8 * H * x + 2 * decay) * now.F
        return np.concatenate([[4 * H], np.where(now.F < LARGEST, rate, 0.0)])

    path = odeint(
        slope, np.zeros(x.size + 1), times, ml=0, mu=0, rtol=RELATIVE, atol=ABSOLUTE, mxstep=100_000
    )
    guess = -math.log(start.scale)
    return [state(y, float(tau)) for y, tau in zip(path, times, strict=True)]


def solve(problem: Problem, schedule: Schedule) -> dict[str, Any]:
    """The arrays of a `Trajectory`."""
    start = start_of(problem, schedule)
    times = np.array(schedule.times)
    closed = average_over_potentials(
        problem, lambda potential: flow(start, potential.gains, schedule.decay, times)
    )
    return closed if schedule.learning_rate == 0 else add_noise_shifts(problem, schedule, closed)


def start_of(problem: Problem, schedule: Schedule, angles: int | None = None) -> TiedStart:
    """The start of a schedule on the nodes of a problem's target; its spikes are the last, of no weight."""
    narrow = schedule.width < problem.target.rank_fraction
    x, p = target_nodes(problem.target, angles or (MANY_ANGLES if narrow else ANGLES))
    spikes = problem.target.spikes
    return TiedStart(
        np.append(x, spikes), np.append(p, np.zeros(len(spikes))), schedule.scale, schedule.width
    )


def spectrum(problem: Problem, schedule: Schedule) -> Law:
    """The law of the eigenvalues at the last time."""
    return _law(problem, schedule)[0]


def outliers(problem: Problem, schedule: Schedule) -> tuple[Outlier, ...]:
    """The target's spikes that stand out at the last time, largest first."""
    law, state = _law(problem, schedule)
    visible_outliers = []
    for place, spike in enumerate(problem.target.spikes, start=state.F.size - len(problem.target.spikes)):
        e, F = math.exp(state.log_e[place]), float(state.F[place])
        if isinstance(law, Riccati):
            seen = law.outlier(e, F)
            visible_outliers += [] if seen is None else [Outlier(spike, *seen)]
        else:
            visible_outliers.append(Outlier(spike, 1 / (e / schedule.scale + F), 1.0))
    return tuple(sorted(visible_outliers, key=lambda outlier: -outlier.location))


def _law(problem: Problem, schedule: Schedule) -> tuple[Law, TiedState]:
    """From an orthogonal start the eigenvectors are the target's, and the law is that of the nodes."""
    start = start_of(problem, schedule, MANY_ANGLES)
    times = np.array(schedule.times)
    state = flow(start, potential_of(problem).gains, schedule.decay, times)[-1]
    kept = start.p > 0
    p, e, F = start.p[kept], np.exp(state.log_e[kept]), state.F[kept]
    if schedule.width < math.inf:
        return Riccati(p, e, F, schedule.scale, schedule.width), state
    return Discrete(tuple(1 / (e / schedule.scale + F)), tuple(p / p.sum())), state
