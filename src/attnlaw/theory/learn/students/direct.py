"""The direct student: any symmetric S (untied: any S) with a ridge, without the factors' inductive bias.

Its equations are in `attnlaw.theory.learn.direct` and `softmax`, its solvers in `solvers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnlaw.theory.learn.students.student import Student

if TYPE_CHECKING:
    import numpy as np

    from attnlaw.theory.laws.law import Law
    from attnlaw.theory.learn.prediction import Prediction
    from attnlaw.theory.learn.problem import Problem
    from attnlaw.theory.learn.risk import Risk
    from attnlaw.theory.learn.target import Target
    from attnlaw.theory.learn.training import Check, Trained

# As many observations per d^2 as a symmetric matrix has entries, or any matrix.
INTERPOLATION, UNTIED_INTERPOLATION = 0.5, 1.0


def linear(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Shrunk, blurred targets: a batch at once."""
    import numpy as np

    from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
    from attnlaw.theory.laws.transformed import Rectified
    from attnlaw.theory.learn.direct import solve
    from attnlaw.theory.learn.factorized import ProblemBatch, least_noise_level
    from attnlaw.theory.learn.flow import flow_points
    from attnlaw.theory.learn.outliers import find_outliers
    from attnlaw.theory.learn.prediction import (
        Prediction,
        estimates,
        outcome_of,
        recovered_prediction,
        trace_or_nuclear_norm,
    )

    batch = ProblemBatch.of(problems)
    if problems[0].flow_time is None:
        point = solve(batch)
        train = batch.training_loss(problems, point.V, point.E)
    else:
        point, train = flow_points(problems)
    least = least_noise_level(batch.target)
    sums = point.s * batch.target.mean
    if batch.sides == 2:
        blurred = Truncated(batch.target.law, np.maximum(point.delta, least), batch.sides)
        sums = point.s * blurred.above(np.zeros(point.s.size))[1]
    results = []
    for i, problem in enumerate(problems):
        if point.E[i] == 0:
            results.append(recovered_prediction(problem, 0.0, 0.0, point.steps))
            continue
        delta, s, E = float(point.delta[i]), float(point.s[i]), float(point.E[i])
        Q = problem.target.second_moment
        if batch.sides == 2:
            spectrum: Law = Rectified(FreeConvolution(problem.target.law, max(delta, least)), 0.0, s, sides=2)
        else:
            law = problem.target.law.scaled(s)
            spectrum = FreeConvolution(law, s * delta) if delta > least else law
        results.append(
            Prediction(
                problem=problem,
                **estimates(
                    problem,
                    E,
                    training_loss=float(train[i]),
                    overlap=s * Q,
                    norm=s * s * (Q + delta * delta),
                    rank_fraction=1.0,
                    **trace_or_nuclear_norm(problem, float(sums[i])),
                    noise_level=delta,
                ),
                shrinkage=s,
                spectrum=spectrum,
                outliers=find_outliers(problem.target, max(delta, least), None, s),
                **outcome_of(float(point.residual[i])),
                residual=float(point.residual[i]),
                steps=point.steps,
            )
        )
    return results


def through_softmax(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """One after the other, each from the one before."""
    from attnlaw.theory.learn.softmax import RIDGE, predictions

    return predictions(problems, RIDGE, report)


def train(problem: Problem, risk: Risk, rng: np.random.Generator, check: Check) -> Trained:
    """Conjugate gradients on S where the loss is quadratic, else L-BFGS; flow up to a time exactly."""
    from attnlaw.theory.learn.solvers import train_direct, train_flow

    if problem.flow_time is not None:
        return train_flow(risk, problem.weight_decay, problem.flow_time, check)
    return train_direct(risk, problem.weight_decay, check)


def interpolation(target: Target, noise: float) -> tuple[float, float | None]:
    """It fits all labels up to 1/2, where its error grows without bound."""
    return INTERPOLATION, None


def recovery(target: Target) -> float:
    """It needs as many observations as there are unknowns."""
    return INTERPOLATION


def untied_interpolation(target: Target, noise: float) -> tuple[float, float | None]:
    """Any matrix fits all labels up to 1, where the error grows without bound."""
    return UNTIED_INTERPOLATION, None


def untied_recovery(target: Target) -> float:
    """It needs as many observations as there are unknowns."""
    return UNTIED_INTERPOLATION


def best_decay(problem: Problem) -> float | None:
    """`Delta/(2 Q*)`, for noise that is not spread over groups."""
    from attnlaw.theory.learn.settings import LARGEST

    known = problem.noise / (2 * problem.target.second_moment)
    return known if known >= 1 / LARGEST else None


UNTIED = Student(
    "direct",
    "direct (ridge)",
    colour=1,
    penalised=True,
    has_flow=True,
    theories={"linear": linear},
    trainer=train,
    interpolation=untied_interpolation,
    recovery=untied_recovery,
    best_decay={"linear": best_decay},
)
DIRECT = replace(
    UNTIED,
    theories={"linear": linear, "softmax": through_softmax},
    batched_outputs=frozenset({"linear"}),
    interpolation=interpolation,
    recovery=recovery,
    memory_checks={"softmax": "attnlaw.theory.learn.softmax:check_size"},
    untied=UNTIED,
)
