"""Time on a fixed data set: full-batch gradient flow. Not one-pass SGD, which never sees a sample twice.

**Direct student, exactly** (Advani and Saxe, arXiv 1710.03667; Ali, Kolter and Tibshirani, arXiv 1810.10082;
put together for attention here). From S = 0, `dS/dt = -(1/(2d)) dR/dS` of the risk with its ridge; gradient
descent on it with steps of size eta reaches `t = 2 d eta steps`. Rates x follow `x = u y`, y of the
Marchenko-Pastur density `sqrt((y - y1)(y2 - y))/(2 pi y)`, `y1, y2 = (1 -+ sqrt(A/u))^2`, and an atom
`(1 - A/u)_+` at zero:

    phi   = (1 - exp(-(w x + lambda) t))/(w x + lambda)
    k     = 1 - w x phi
    E     = Q* int k^2 + u D int w^2 x phi^2
    m     = Q* int w x phi
    q     = Q* int (w x phi)^2 + u D int w^2 x phi^2
    train = (observations per sample) (w/A) [Q* int x k^2 + D (A - u int_(x>0) (1 - k^2))]

untied A = alpha_P, u = 1, w = 1; tied A = alpha_T, u = 1/2, w = 2; D = Delta/2. The matrix is `s (S* + c Z)`,
s = m/Q*.

**Factors** have no exact theory on finite data. What is known, for untied factors from small random entries
of standard deviation eps, `s0 = eps^2 sqrt(kappa)/2`, `t = 2 alpha_P eta steps/sqrt(kappa)` (Saxe, McClelland
and Ganguli, arXiv 1312.6120): each mode on its own for infinite data (`population_mode`), the first mode for
any data (`first_mode`), and a heuristic for the least error over time (`least_flow_error`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.theory.laws.free_convolution import Truncated
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.learn.direct import RidgePoint
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.target import Target


@dataclass(frozen=True)
class FlowPoint:
    """What the direct student knows at time t: its matrix is `s (S* + c Z)`."""

    E: float
    s: float
    c: float
    training_loss: float


def direct_flow(problem: Problem) -> FlowPoint:
    """The direct student of a problem at its `flow_time`.

    >>> shared = {"noise": 0.5, "weight_decay": 0.0, "student": "direct", "attention": "untied"}
    >>> [round(direct_flow(Problem(1.5, flow_time=t, **shared)).E, 5) for t in (0.5, 2.0, 8.0)]
    [0.4109, 0.26034, 0.33872]
    """
    (channel,) = problem.channels
    A, w, D = channel.alpha, channel.weight, channel.noise
    u, Q, lam, t = (
        problem.sides / 2,
        problem.target.second_moment,
        problem.weight_decay,
        problem.flow_time or 0.0,
    )
    ratio = A / u
    rates = MarchenkoPastur(ratio)
    points, weights = rates.nodes()
    x = u * np.sqrt(ratio) * points
    speed = w * x + lam
    phi = -np.expm1(-speed * t) / speed
    k = 1 - w * x * phi
    still = rates.mass_of_atoms  # at rate zero nothing is learned: k = 1
    spread = u * D * float(weights @ (w * w * x * phi * phi))
    m = Q * float(weights @ (w * x * phi))
    q = Q * float(weights @ (w * x * phi) ** 2) + spread
    E = Q * (still + float(weights @ (k * k))) + spread
    loss = Q * float(weights @ (x * k * k)) + D * (A - u * float(weights @ (1 - k * k)))
    s = m / Q
    train = problem.observations_per_sample * w / A * loss
    return FlowPoint(E, s, float(np.sqrt(max(q - s * s * Q, 0.0)) / s), train)


def flow_points(problems: Sequence[Problem]) -> tuple[RidgePoint, Reals]:
    """Points of many problems as the ridge has them, and their training losses; no equation is solved."""
    points = [direct_flow(problem) for problem in problems]
    E, s, c, train = np.array([(point.E, point.s, point.c, point.training_loss) for point in points]).T
    return RidgePoint(c, s, np.full(len(points), np.nan), E, np.zeros(len(points)), 0), train


def small_start(deviation: float, width: float = 1.0) -> float:
    """s0, the size of a mode in factors of ratio kappa with random entries of this standard deviation."""
    return deviation**2 * float(np.sqrt(width)) / 2


def population_mode(value: float, start: float, time: ArrayLike) -> Reals:
    """A mode of the factors under infinite data: `s / (1 + (s/s0 - 1) exp(-2 s t))`.

    With a decay s is the target's singular value less `lt/(2 alpha_P)`. Modes appear in order of size: half
    height is at `ln(s/s0 - 1)/(2 s)`.

    >>> round(float(population_mode(3.0, small_start(0.02), half_time(3.0, small_start(0.02)))), 12)
    1.5
    """
    return np.asarray(value / (1 + (value / start - 1) * np.exp(-2 * value * np.asarray(time, dtype=float))))


def half_time(value: float, start: float) -> float:
    """When a mode under infinite data is half learned."""
    return float(np.log(value / start - 1) / (2 * value))


def first_mode(target: Target, pairs_ratio: float, noise: float, value: float) -> float:
    """What factors first grow along a target's singular value, at any data: `pairs_ratio` is alpha_P.

    Until something is learned they see `S* + delta0 Z`, `delta0^2 = (Q* + Delta/2)/alpha_P`; the rate of
    growth is twice the value returned, `s + delta0^2 int dnu(t)/(s - t)`, nu the law of the target's other
    singular values with both signs. Later modes grow with less noise.
    """
    mirrored = target.with_both_signs()
    points, weights = mirrored.law.nodes()
    atoms = np.array(mirrored.law.atoms).reshape(-1, 2)
    gap = value - np.append(points, atoms[:, 0])
    weight = np.append(weights, atoms[:, 1])[gap != 0]
    return value + (target.second_moment + noise / 2) / pairs_ratio * float((weight / gap[gap != 0]).sum())


def least_flow_error(target: Target, pairs_ratio: float, noise: float, start: float) -> float:
    """The least error over time of factors on a fixed data set, a heuristic: within 2% in three cases.

    The logistic of `population_mode` as a map of singular values of `S* + delta Z`, `delta^2 = (E +
    Delta/2)/alpha_P`. The curve over time that it gives is off by 5-18% before its minimum and by more after
    it: it is not offered.
    """
    law, Q = target.with_both_signs().law, target.second_moment

    def error(delta: float, time: float) -> float:
        total = Q
        for _, groups in Truncated(law, np.array([delta])).node_groups():
            for nodes in groups:
                x, size = nodes.x, np.abs(nodes.x)
                with np.errstate(over="ignore"):
                    f = x / (1 + (size / start - 1) * np.exp(-2 * size * time))
                terms = f * f - 2 * f * (x - 2 * delta**2 * nodes.re_g)
                total += float((nodes.mass * terms).sum()) * np.pi / x.shape[-1]
        return total

    def at(time: float) -> float:
        def miss(delta: float) -> float:
            return error(delta, time) + noise / 2 - pairs_ratio * delta**2

        high = float(np.sqrt((Q + noise / 2) / pairs_ratio))
        while miss(high) > 0:
            high *= 1.5
        low = float(np.sqrt(noise / 2 / pairs_ratio)) * 0.999 or 1e-6
        delta = float(scipy.optimize.brentq(miss, low, high, xtol=1e-10))
        return pairs_ratio * delta**2 - noise / 2

    middle = half_time(float(np.sqrt(Q)), start)
    minimum = scipy.optimize.minimize_scalar(
        at, bounds=(0.2 * middle, 5 * middle), method="bounded", options={"xatol": 1e-4}
    )
    return float(minimum.fun)
