"""The Bayes-optimal student: the least error that any method can reach. It is computed, not trained.

Its equations are in `attnlaw.theory.learn.bayes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnlaw.theory.learn.students.student import Student

if TYPE_CHECKING:
    from attnlaw.theory.learn.bayes import Information
    from attnlaw.theory.learn.prediction import Prediction
    from attnlaw.theory.learn.problem import Problem
    from attnlaw.theory.learn.target import Target


def scores(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Labels that tell scores or logits: linear, and softmax of any temperature."""
    from attnlaw.theory.learn.bayes import channel_information
    from attnlaw.theory.learn.factorized import ProblemBatch

    batch = ProblemBatch.of(problems)
    return _predict(problems, channel_information(batch.alpha, batch.noise))


def signs(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Labels that tell which entry of a row of two is the larger one."""
    import numpy as np

    from attnlaw.theory.learn.bayes import hardmax_information

    alpha = np.array([problem.alpha for problem in problems])
    noise = np.array([problem.noise for problem in problems])
    return _predict(problems, hardmax_information(alpha, noise, problems[0].target.second_moment))


def _predict(problems: list[Problem], information: Information) -> list[Prediction]:
    import numpy as np

    from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
    from attnlaw.theory.laws.transformed import Folded, Shrunk
    from attnlaw.theory.learn.bayes import round_off, solve
    from attnlaw.theory.learn.outliers import shrunk_outliers
    from attnlaw.theory.learn.prediction import Prediction, estimates, outcome_of, trace_or_nuclear_norm

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
                    **trace_or_nuclear_norm(problem, float(sums[i])),
                    noise_level=a,
                ),
                shrinkage=1.0,
                spectrum=spectrum if sides == 1 else Folded(spectrum),
                outliers=shrunk_outliers(target, a),
                **outcome_of(residual, bool(point.resolved[i]), "add noise"),
                residual=residual,
                steps=point.steps,
            )
        )
    return results


def recovery(target: Target) -> float:
    """Beyond which nothing is left to learn."""
    from attnlaw.theory.learn.thresholds import bayes_recovery

    return bayes_recovery(target)


def untied_recovery(target: Target) -> float:
    """Beyond which nothing is left to learn, in pairs per d^2."""
    from attnlaw.theory.learn.thresholds import untied_bayes_recovery

    return untied_bayes_recovery(target)


def leading(gamma: float) -> float:
    """I of its scaling law (`attnlaw.theory.learn.scaling`)."""
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
    batched_outputs=frozenset({"linear", "softmax", "hardmax"}),
    recovery=recovery,
    # Softmax: the same equations with (T^2+T-2)/2 observations per sample.
    leading={"linear": leading, "softmax": leading},
    untied=UNTIED,
)
