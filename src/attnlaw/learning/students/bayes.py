"""The Bayes-optimal student: the least error that any method can reach. It is computed, not trained.

Its equations are in `attnlaw.learning.bayes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnlaw.learning.students.student import Student

if TYPE_CHECKING:
    from attnlaw.learning.bayes import Information
    from attnlaw.learning.prediction import Prediction
    from attnlaw.learning.problem import Problem
    from attnlaw.learning.target import Target


def scores(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Labels that tell scores or logits: linear, and softmax of any temperature."""
    from attnlaw.learning.bayes import channel_information
    from attnlaw.learning.factorized import Batch

    batch = Batch.of(problems)
    return _solved(problems, channel_information(batch.alpha, batch.noise))


def signs(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Labels that tell which entry of a row of two is the larger one."""
    import numpy as np

    from attnlaw.learning.bayes import hardmax_information

    alpha = np.array([problem.alpha for problem in problems])
    noise = np.array([problem.noise for problem in problems])
    return _solved(problems, hardmax_information(alpha, noise, problems[0].target.second_moment))


def _solved(problems: list[Problem], information: Information) -> list[Prediction]:
    import numpy as np

    from attnlaw.laws.folded import Folded
    from attnlaw.laws.free_convolution import FreeConvolution, Truncated
    from attnlaw.laws.shrunk import Shrunk
    from attnlaw.learning.bayes import round_off, solve
    from attnlaw.learning.outliers import shrunk_outliers
    from attnlaw.learning.prediction import Prediction, ending, estimates, size_of

    target, sides = problems[0].target, problems[0].sides
    point = solve(target, information, len(problems))
    # The trace is kept; a nuclear norm is the mean of abs(x - 2 a^2 Re g), which has the sign of x.
    sums = np.full(len(problems), target.mean)
    if sides == 2:
        _, first, _, plain, _ = Truncated(target.law, point.a, sides).above(np.zeros(len(problems)))
        sums = first - 2 * point.a**2 * plain
    results = []
    for i, problem in enumerate(problems):
        E, a = float(max(point.E[i], 0.0)), float(point.a[i])
        residual = max(float(point.residual[i]), round_off(a * a, E))
        spectrum = Shrunk(FreeConvolution(target.law, a))
        results.append(
            Prediction(
                problem=problem,
                **estimates(
                    problem,
                    E,
                    overlap=target.second_moment - E,
                    norm=target.second_moment - E,
                    rank_fraction=1.0,
                    **size_of(problem, float(sums[i])),
                    noise_level=a,
                ),
                shrinkage=1.0,
                spectrum=spectrum if sides == 1 else Folded(spectrum),
                outliers=shrunk_outliers(target, a),
                **ending(residual, bool(point.found[i]), "add noise"),
                residual=residual,
                steps=point.steps,
            )
        )
    return results


def recovery(target: Target) -> float:
    """Beyond which nothing is left to learn."""
    from attnlaw.learning.thresholds import bayes_recovery

    return bayes_recovery(target)


def untied_recovery(target: Target) -> float:
    """Beyond which nothing is left to learn, in pairs per d^2."""
    from attnlaw.learning.thresholds import untied_bayes_recovery

    return untied_bayes_recovery(target)


def leading(gamma: float) -> float:
    """I of its scaling law (`attnlaw.learning.scaling`)."""
    return 1 / (2 * gamma - 1) + 2 - 1 / (1 + 2 * gamma)


UNTIED = Student(
    "bayes",
    "Bayes-optimal",
    colour=2,
    penalised=False,
    theories={"linear": scores},
    recovery=untied_recovery,
    leading={"linear": leading},
)
BAYES = replace(
    UNTIED,
    theories={"linear": scores, "softmax": scores, "hardmax": signs},
    at_once=frozenset({"linear", "softmax", "hardmax"}),
    recovery=recovery,
    # Softmax: the same equations with (T^2+T-2)/2 observations per sample.
    leading={"linear": leading, "softmax": leading},
    untied=UNTIED,
)
