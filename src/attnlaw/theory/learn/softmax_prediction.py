"""What the fixed points of the row softmax predict: values with the errors of their averages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnlaw.core.estimate import Outcome
from attnlaw.theory.laws.free_convolution import FreeConvolution
from attnlaw.theory.laws.rectified import Rectified
from attnlaw.theory.learn.outliers import find_outliers
from attnlaw.theory.learn.prediction import (
    UNSTABLE,
    Prediction,
    estimates,
    recovered_prediction,
    trace_or_nuclear_norm,
)
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.softmax import SoftmaxPoint, StudentUpdate, solve

# Of Q*: below it the gradients at the proximal points are round-off.
UNRESOLVED = 1e-19


Start = tuple[float, float, float]


def predictions(
    problems: list[Problem],
    answer: StudentUpdate,
    report: Callable[[int], object],
    solved: Callable[[Problem, StudentUpdate, Start | None], SoftmaxPoint] = solve,
) -> list[Prediction]:
    """Predictions of problems that share a target, each started at the one before along alpha."""
    order = sorted(
        range(len(problems)), key=lambda i: (problems[i].tokens, problems[i].beta, problems[i].alpha)
    )
    results: dict[int, Prediction] = {}
    start = None
    for done, i in enumerate(order, start=1):
        problem = problems[i]
        if problem.weight_decay == 0 and problem.noise == 0:
            results[i] = recovered_prediction(problem, 0.0, 0.0, 0, 0.0 if answer.cuts else None)
        else:
            point = solved(problem, answer, start)
            start = (point.E, point.theta, point.V) if point.iteration.converged else None
            results[i] = _prediction(problem, answer, point)
        report(done)
    return [results[i] for i in range(len(problems))]


def _values(problem: Problem, answer: StudentUpdate, point: SoftmaxPoint) -> dict[str, float]:
    """What is an average, under its name in a prediction."""
    values = {
        "estimation_error": point.E,
        "prediction_error": point.test,
        "training_loss": point.train,
        "overlap": point.m,
        "norm": point.q,
        "rank_fraction": point.rank,
        **trace_or_nuclear_norm(problem, point.trace),
        "noise_level": point.a,
    }
    return {**values, "threshold": point.b} if answer.cuts else values


def errors(problem: Problem, answer: StudentUpdate, point: SoftmaxPoint) -> dict[str, float]:
    """The standard error of the mean over the replicates and what the iteration left, in squares.

    The iteration's error is relative to E, so for m and q it is relative to their distance from Q*.
    """
    tables = [_values(problem, answer, replicate) for replicate in point.replicates]
    away = np.sqrt(problem.target.second_moment * point.E)
    sizes = _values(problem, answer, point) | {"overlap": away, "norm": 2 * away + point.E}
    if not answer.cuts:
        sizes["rank_fraction"] = 0.0
    root = np.sqrt(len(tables))
    return {
        name: float(
            np.hypot(np.std([table[name] for table in tables], ddof=1) / root, point.iteration.error * size)
        )
        for name, size in sizes.items()
    }


def _prediction(problem: Problem, answer: StudentUpdate, point: SoftmaxPoint) -> Prediction:
    law, iteration, threshold = problem.target.law, point.iteration, point.b if answer.cuts else None
    bound = UNRESOLVED * problem.target.second_moment
    if bound > point.E:
        return recovered_prediction(problem, bound, iteration.residual, iteration.steps)
    outcome, remark = Outcome.DONE, None
    if point.stability is not None and point.stability > UNSTABLE:
        outcome = Outcome.UNSTABLE
        remark = f"unstable: replicon value {point.stability:.3g}; training runs may end apart"
    if not iteration.converged:
        outcome = Outcome.NOT_CONVERGED
        remark = (
            f"residual {iteration.residual:.1e} after {iteration.steps} steps, these values may be far off; "
            "lower beta or raise the weight decay for a unique proximal point"
        )
    values = _values(problem, answer, point)
    return Prediction(
        problem=problem,
        **estimates(
            problem,
            values.pop("estimation_error"),
            **values,
            errors=errors(problem, answer, point) if point.replicates else None,
        ),
        shrinkage=point.r,
        spectrum=(
            Rectified(FreeConvolution(law, point.a), point.b, point.r, problem.sides)
            if answer.cuts
            else FreeConvolution(law.scaled(point.r), point.r * point.a)
        ),
        outliers=find_outliers(problem.target, point.a, threshold, point.r),
        stability=point.stability if iteration.converged else None,
        outcome=outcome,
        remark=remark,
        residual=iteration.residual,
        steps=iteration.steps,
    )
