"""State evolution: the sharp limit of what a student learns, for one problem or many at once.

`state_evolution(problem)` and `state_evolutions(problems)` are the theory's only doors. Problems that share
target, student and output are solved together (linear output and Bayes) or one from the other (softmax).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.laws.free_convolution import FreeConvolution
from attnlaw.laws.rectified import Rectified
from attnlaw.laws.shrunk import Shrunk
from attnlaw.learning import bayes, direct, factorized, softmax
from attnlaw.learning.outliers import find_outliers, shrunk_outliers
from attnlaw.learning.prediction import Prediction
from attnlaw.learning.problem import Problem
from attnlaw.learning.target import Target

Reals = NDArray[np.float64]
Progress = Callable[[int, int], None] | None
RESIDUAL = 1e-8


def state_evolution(problem: Problem) -> Prediction:
    """The prediction for one problem.

    >>> prediction = state_evolution(Problem(alpha=0.2, noise=0.5, weight_decay=0.1))
    >>> round(prediction.estimation_error, 6), round(prediction.rank_fraction, 6), prediction.status
    (0.802029, 0.385931, 'converged')
    """
    return state_evolutions([problem])[0]


def check_size(problem: Problem) -> None:
    """An `InputError` for a problem whose theory does not fit into memory."""
    if problem.output == "softmax" and problem.student != "bayes":
        softmax.check_size(problem)


def state_evolutions(problems: Sequence[Problem], progress: Progress = None) -> list[Prediction]:
    """Predictions in the order of the problems; `progress(done, total)` is called as groups finish."""
    groups: dict[tuple[str, str, Target, int], list[int]] = {}
    for index, problem in enumerate(problems):
        kind = (problem.student, problem.output, problem.target, len(problem.channels))
        groups.setdefault(kind, []).append(index)
    found: dict[int, Prediction] = {}
    for (student, output, _, _), places in groups.items():
        members = [problems[place] for place in places]
        if student == "bayes":
            results = _bayes(members)
        elif output == "softmax":
            results = _softmax(members, lambda done: progress and progress(len(found) + done, len(problems)))
        elif student == "direct":
            results = _direct(members)
        else:
            results = _factorized(members)
        found.update(zip(places, results, strict=True))
        if progress:
            progress(len(found), len(problems))
    return [found[index] for index in range(len(problems))]


def _batch(problems: list[Problem]) -> factorized.Batch:
    channels = [problem.channels for problem in problems]
    return factorized.Batch(
        problems[0].target,
        np.array([[channel.alpha for channel in row] for row in channels]),
        np.array([[channel.weight for channel in row] for row in channels]),
        np.array([[channel.noise for channel in row] for row in channels]),
        np.array([problem.weight_decay for problem in problems]),
    )


def _training_loss(batch: factorized.Batch, problems: list[Problem], V: Reals, E: Reals) -> Reals:
    """Per sample, over all (a, b): `sum_k (alpha_k/alpha) w_k (E + D_k) / (1 + 2 w_k V)^2`."""
    alpha = np.array([problem.alpha for problem in problems])
    terms = batch.alpha * batch.weight * (E[:, None] + batch.noise)
    terms = terms / (1 + 2 * batch.weight * V[:, None]) ** 2
    return np.asarray(terms.sum(axis=1) / alpha)


def _round_off(terms: float, E: float) -> float:
    """The relative error of an E that is a difference of terms of this size."""
    return float(np.finfo(float).eps) * terms / E if E > 0 else 0.0


def _status(residual: float, found: bool, remedy: str = "raise the weight decay") -> str:
    if not found:
        return (
            "recovered: the error is below what the solver resolves and is given as its bound; "
            f"lower alpha or {remedy} for a resolved value"
        )
    if not residual <= RESIDUAL:
        return f"residual {residual:.1e}: ill-conditioned equations; raise the weight decay or the noise"
    return "converged"


def _recovered(problem: Problem, E: float, residual: float, steps: int) -> Prediction:
    """The target itself, E = 0; or so near to it that the solver does not tell, E a bound."""
    target, T, exact = problem.target, problem.tokens, E == 0
    status = _status(residual, found=False)
    if exact:
        status = (
            "recovered: clean labels and no penalty give the target itself; add a weight decay for an error"
        )
    return Prediction(
        problem=problem,
        estimation_error=E,
        prediction_error=T * (T + 1) * E if exact or problem.output == "linear" else None,
        training_loss=0.0 if exact else None,
        overlap=target.second_moment,
        norm=target.second_moment,
        rank_fraction=target.rank_fraction if exact else None,
        trace=target.mean,
        noise_level=0.0 if exact else None,
        threshold=0.0 if exact and problem.student == "factorized" else None,
        shrinkage=1.0,
        spectrum=target.law,
        outliers=find_outliers(target, factorized.least_noise_level(target), None, 1.0),
        status=status,
        residual=residual,
        steps=steps,
    )


def _factorized(problems: list[Problem]) -> list[Prediction]:
    batch = _batch(problems)
    point = factorized.solve(batch)
    train = _training_loss(batch, problems, point.V, point.E)
    results = []
    for i, problem in enumerate(problems):
        if not point.found[i]:
            is_exact = problem.weight_decay == 0 and not batch.noise[i].any()
            bound, miss = (0.0, 0.0) if is_exact else (float(point.E[i]), float(point.residual[i]))
            results.append(_recovered(problem, bound, miss, point.steps))
            continue
        delta, b, E = float(point.delta[i]), float(point.b[i]), float(max(point.E[i], 0.0))
        J, M1, chi = (float(getattr(point.integrals, name)[i]) for name in ("J", "M1", "chi"))
        residual, T = float(point.residual[i]), problem.tokens
        results.append(
            Prediction(
                problem=problem,
                estimation_error=E,
                prediction_error=T * (T + 1) * E,
                training_loss=float(train[i]),
                overlap=J + b * M1 - delta**2 * chi,
                norm=J,
                rank_fraction=float(point.integrals.mass[i]),
                trace=M1,
                noise_level=delta,
                threshold=b,
                shrinkage=1.0,
                spectrum=Rectified(FreeConvolution(problem.target.law, delta), b),
                outliers=find_outliers(problem.target, delta, b, 1.0),
                status=_status(residual, found=True),
                residual=residual,
                steps=point.steps,
            )
        )
    return results


def _direct(problems: list[Problem]) -> list[Prediction]:
    batch = _batch(problems)
    point = direct.solve(batch)
    train = _training_loss(batch, problems, point.V, point.E)
    results = []
    for i, problem in enumerate(problems):
        if point.E[i] == 0:
            results.append(_recovered(problem, 0.0, 0.0, point.steps))
            continue
        delta, s, E = float(point.delta[i]), float(point.s[i]), float(point.E[i])
        Q, T = problem.target.second_moment, problem.tokens
        law, least = problem.target.law.scaled(s), factorized.least_noise_level(problem.target)
        results.append(
            Prediction(
                problem=problem,
                estimation_error=E,
                prediction_error=T * (T + 1) * E,
                training_loss=float(train[i]),
                overlap=s * Q,
                norm=s * s * (Q + delta * delta),
                rank_fraction=1.0,
                trace=s * problem.target.mean,
                noise_level=delta,
                threshold=None,
                shrinkage=s,
                spectrum=FreeConvolution(law, s * delta) if delta > least else law,
                outliers=find_outliers(problem.target, max(delta, least), None, s),
                status=_status(float(point.residual[i]), found=True),
                residual=float(point.residual[i]),
                steps=point.steps,
            )
        )
    return results


def _bayes(problems: list[Problem]) -> list[Prediction]:
    target, output = problems[0].target, problems[0].output
    batch = _batch(problems)
    if output == "hardmax":
        alpha = np.array([problem.alpha for problem in problems])
        noise = np.array([problem.noise for problem in problems])
        information = bayes.hardmax_information(alpha, noise, target.second_moment)
    else:
        information = bayes.channel_information(batch.alpha, batch.noise)
    point = bayes.solve(target, information, len(problems))
    results = []
    for i, problem in enumerate(problems):
        E, a, T = float(max(point.E[i], 0.0)), float(point.a[i]), problem.tokens
        residual = max(float(point.residual[i]), _round_off(a * a, E))
        results.append(
            Prediction(
                problem=problem,
                estimation_error=E,
                prediction_error=T * (T + 1) * E if output == "linear" else None,
                training_loss=None,
                overlap=target.second_moment - E,
                norm=target.second_moment - E,
                rank_fraction=1.0,
                trace=target.mean,
                noise_level=a,
                threshold=None,
                shrinkage=1.0,
                spectrum=Shrunk(FreeConvolution(target.law, a)),
                outliers=shrunk_outliers(target, a),
                status=_status(residual, bool(point.found[i]), "add noise"),
                residual=residual,
                steps=point.steps,
            )
        )
    return results


def _softmax(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    order = sorted(
        range(len(problems)), key=lambda i: (problems[i].tokens, problems[i].beta, problems[i].alpha)
    )
    results: dict[int, Prediction] = {}
    start = None
    for done, i in enumerate(order, start=1):
        problem = problems[i]
        if problem.weight_decay == 0 and problem.noise == 0:
            results[i] = _recovered(problem, 0.0, 0.0, 0)
        else:
            point = softmax.solve(problem, start)
            start = (point.E, point.theta, point.V) if point.iteration.converged else None
            results[i] = _softmax_prediction(problem, point)
        report(done)
    return [results[i] for i in range(len(problems))]


def _softmax_values(problem: Problem, point: softmax.SoftmaxPoint) -> dict[str, float]:
    """What is an average over draws, under its name in a prediction."""
    values = {
        "estimation_error": point.E,
        "prediction_error": point.test,
        "training_loss": point.train,
        "overlap": point.m,
        "norm": point.q,
        "rank_fraction": point.rank,
        "trace": point.trace,
        "noise_level": point.a,
    }
    return values if problem.student == "direct" else {**values, "threshold": point.b}


def _softmax_error(problem: Problem, point: softmax.SoftmaxPoint) -> dict[str, float]:
    """The standard error of the mean over the replicates and what the iteration left, in squares.

    The iteration's error is relative to E, so for m and q it is relative to their distance from Q*.
    """
    found = [_softmax_values(problem, replicate) for replicate in point.replicates]
    away = np.sqrt(problem.target.second_moment * point.E)
    sizes = _softmax_values(problem, point) | {"overlap": away, "norm": 2 * away + point.E}
    if problem.student == "direct":
        sizes["rank_fraction"] = 0.0
    root = np.sqrt(len(found))
    return {
        name: float(
            np.hypot(np.std([one[name] for one in found], ddof=1) / root, point.iteration.error * size)
        )
        for name, size in sizes.items()
    }


def _softmax_prediction(problem: Problem, point: softmax.SoftmaxPoint) -> Prediction:
    law, iteration = problem.target.law, point.iteration
    is_direct = problem.student == "direct"
    values: dict[str, Any] = {"threshold": None, **_softmax_values(problem, point)}
    bound = softmax.UNRESOLVED * problem.target.second_moment
    if bound > point.E:
        return _recovered(problem, bound, iteration.residual, iteration.steps)
    status, error = "converged", None
    if iteration.converged:
        error = _softmax_error(problem, point)
    else:
        status = (
            f"not converged: residual {iteration.residual:.1e} after {iteration.steps} steps, these values "
            "may be far off; lower beta or raise the weight decay for a unique proximal point"
        )
    return Prediction(
        problem=problem,
        **values,
        shrinkage=point.r,
        spectrum=(
            FreeConvolution(law.scaled(point.r), point.r * point.a)
            if is_direct
            else Rectified(FreeConvolution(law, point.a), point.b, point.r)
        ),
        outliers=find_outliers(problem.target, point.a, None if is_direct else point.b, point.r),
        status=status,
        residual=iteration.residual,
        steps=iteration.steps,
        error=error,
    )
