"""Attention that is learned by one score step and a threshold, compared with training to the end.

At one token and a linear output (see `theory.learn.problem`), the step
`phi = sqrt(d)/(2n) sum_i h_i (x_i x_i^T - I)` is `S* + delta GOE`, where S* is the teacher and

    delta^2 = (Q* + Delta/2)/(2 alpha)

with the second moment Q* of the teacher, label noise Delta and alpha = n/d^2 (ours; exact in the limit for
symmetric Gaussian sensing, higher by a term of order 1/d for tokens). Factors that stop early keep the
eigenvalues of phi above a threshold. Weight decay would keep `(x - b)_+` of the same phi. The best rule is
the conditional mean of each eigenvalue, `laws.Shrunk`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from attnlaw.core.errors import InputError
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.transformed import Shrunk, Thresholded, rectify
from attnlaw.theory.learn.problem import Problem

GRID = 60  # number of thresholds that are tried before the best is refined


@dataclass(frozen=True)
class OneStep:
    """Estimation errors |f(phi) - S*|^2/d of several threshold rules f, each at its best threshold.

    `hard` and `soft` are the errors of the two kinds of threshold. Thresholds are in units of the noise level
    delta (`noise`). `least` is the smallest error that any function of the eigenvalues of phi can reach.
    """

    noise: float
    hard: float
    hard_threshold: float
    soft: float
    soft_threshold: float
    least: float


def one_step_law(problem: Problem) -> FreeConvolution:
    """Return the distribution of the eigenvalues of the score step phi."""
    if problem.output != "linear" or problem.tokens != 1 or problem.groups:
        raise InputError(
            f"one step: output {problem.output}, {problem.tokens} tokens, {len(problem.groups)} groups; "
            "one step is only known for a linear output of one token without groups"
        )
    square = (problem.target.second_moment + problem.noise / 2) / (2 * problem.alpha)
    return FreeConvolution(problem.target.law, float(np.sqrt(square)))


def one_step(problem: Problem) -> OneStep:
    """Compute the error of each rule after one step. The result does not depend on the student.

    >>> from attnlaw.theory.learn.target import Target
    >>> step = one_step(Problem(alpha=0.3, noise=0.5, target=Target.marchenko_pastur(0.3)))
    >>> round(step.hard, 4), round(step.soft, 4), round(step.least, 4)
    (1.0777, 0.6503, 0.5934)
    """
    law = one_step_law(problem)
    table = Truncated(law.solved_base, np.array([law.sigma]))
    top = float(table.top[0])
    hard = _best(lambda tau: Thresholded(law, tau).distance, top)
    soft = _best(lambda b: float(rectify(table, np.array([b])).E[0]), top)
    least = table.second_moment - Shrunk(law).moment(2)
    delta = law.sigma
    return OneStep(delta, hard[1], hard[0] / delta, soft[1], soft[0] / delta, float(least))


def _best(error: Callable[[float], float], top: float) -> tuple[float, float]:
    """Return the best threshold up to the edge, and its error, from a grid: there may be several minima."""
    # The error may have several minima, so a grid finds the interval of the smallest one.
    places = np.linspace(0.0, top, GRID)
    first = int(np.argmin([error(float(place)) for place in places]))
    ends = float(places[max(first - 1, 0)]), float(places[min(first + 1, GRID - 1)])
    minimum = scipy.optimize.minimize_scalar(
        error, bounds=ends, method="bounded", options={"xatol": 1e-8 * top}
    )
    return float(minimum.x), float(minimum.fun)
