"""Factors in time on a fixed data set: full-batch gradient flow from a small start.

There is no exact theory on finite data (the direct student has one, `attnlaw.theory.learn.students.direct`).
What is known is for untied factors from small random entries of standard deviation eps, `s0 = eps^2
sqrt(kappa)/2`, `t = 2 alpha_P eta steps/sqrt(kappa)` (Saxe, McClelland and Ganguli, arXiv 1312.6120): each
mode on its own for infinite data (`population_mode`), the first mode for any data (`first_mode`), and a
heuristic for the least error over time (`least_flow_error`). One-pass SGD is a different problem, because it
never sees a sample twice. Letters are explained in `attnlaw.theory.learn.problem`.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.theory.laws.free_convolution import Truncated
from attnlaw.theory.learn.target import Target


def small_start(deviation: float, width: float = 1.0) -> float:
    """Return s0, the size of a mode in factors of width kappa with entries of this standard deviation."""
    return deviation**2 * float(np.sqrt(width)) / 2


def population_mode(value: float, start: float, time: ArrayLike) -> Reals:
    """Return a mode of the factors under infinite data: `s / (1 + (s/s0 - 1) exp(-2 s t))`.

    With a weight decay, s is the target's singular value minus `lt/(2 alpha_P)`. Modes appear in order of
    size, and reach half their height at `ln(s/s0 - 1)/(2 s)`.

    >>> round(float(population_mode(3.0, small_start(0.02), half_time(3.0, small_start(0.02)))), 12)
    1.5
    """
    return np.asarray(value / (1 + (value / start - 1) * np.exp(-2 * value * np.asarray(time, dtype=float))))


def half_time(value: float, start: float) -> float:
    """Return the time at which a mode under infinite data is half learned."""
    return float(np.log(value / start - 1) / (2 * value))


def first_mode(target: Target, pairs_ratio: float, noise: float, value: float) -> float:
    """Return half the rate at which factors first grow along a singular value of the target, for any data.

    Until something is learned, the factors see the matrix `S* + delta0 Z`, where `delta0^2 = (Q* +
    Delta/2)/alpha_P`. The result is `s + delta0^2 int dnu(t)/(s - t)`, where nu is the law of the target's
    other singular values with both signs. Later modes grow with less noise.

    Args:
        pairs_ratio: the ratio alpha_P, which is the number of pairs per d^2.
        value: the singular value s.
    """
    mirrored = target.with_both_signs()
    points, weights = mirrored.law.nodes()
    atoms = np.array(mirrored.law.atoms).reshape(-1, 2)
    gap = value - np.append(points, atoms[:, 0])
    weight = np.append(weights, atoms[:, 1])[gap != 0]
    return value + (target.second_moment + noise / 2) / pairs_ratio * float((weight / gap[gap != 0]).sum())


def least_flow_error(target: Target, pairs_ratio: float, noise: float, start: float) -> float:
    """Return the least error over time of factors on a fixed data set, by a heuristic.

    The error of the heuristic was below 2% in three cases. The function applies the logistic of
    `population_mode` to the singular values of `S* + delta Z`, where `delta^2 = (E + Delta/2)/alpha_P`.
    attnlaw does not offer the curve over time, because it is wrong by 5-18% before the minimum and by more
    afterwards.
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
