"""State evolution: the exact limit of large d of what a student learns, for one problem or many.

Problems that share target, student, attention and output are passed to the theory of that student together.
The theory solves them all at once (linear output and Bayes), or one after the other, each from the previous
solution (softmax). Learning curves and the best weight decay are computed from such predictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnlaw.core.errors import BadSetting
from attnlaw.core.progress import Progress, no_progress
from attnlaw.theory.learn.prediction import Prediction
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.student import STUDENTS
from attnlaw.theory.learn.target import Target


def state_evolution(problem: Problem) -> Prediction:
    """Predict what the student of a problem learns.

    >>> prediction = state_evolution(Problem(alpha=0.2, noise=0.5, weight_decay=0.1))
    >>> round(prediction.estimation_error.value, 6), round(prediction.rank_fraction.value, 6)
    (0.802029, 0.385931)
    >>> print(prediction.outcome)
    done
    """
    return state_evolutions([problem])[0]


def state_evolutions(problems: Sequence[Problem], progress: Progress | None = None) -> list[Prediction]:
    """Predict what the students of several problems learn, in the order of the problems."""
    report, total = progress or no_progress, len(problems)
    groups: dict[tuple[str, str, str, bool, Target, int], list[int]] = {}
    for index, problem in enumerate(problems):
        kind = (problem.student, problem.attention, problem.observed_output.name, problem.flow_time is None)
        groups.setdefault((*kind, problem.target, len(problem.channels)), []).append(index)
    predictions: dict[int, Prediction] = {}
    for (_, _, output, *_), places in groups.items():
        theory = problems[places[0]].student_spec.theory(output)
        results = theory(
            [problems[place] for place in places], lambda done: report(len(predictions) + done, total)
        )
        predictions.update(zip(places, results, strict=True))
        report(len(predictions), total)
    return [predictions[index] for index in range(total)]


def curve(problem: Problem, alphas: Iterable[float], progress: Progress | None = None) -> list[Prediction]:
    """Predict what the student of a problem learns for several values of alpha.

    >>> problem = Problem(alpha=0.1, noise=0.5, weight_decay=0.1)
    >>> [round(prediction.estimation_error.value, 3) for prediction in curve(problem, [0.1, 0.2, 0.4])]
    [1.183, 0.802, 0.467]
    """
    return state_evolutions([replace(problem, alpha=float(alpha)) for alpha in alphas], progress)


@dataclass(frozen=True)
class BestDecay:
    """The weight decay with the smallest estimation error, and the prediction at this weight decay."""

    weight_decay: float
    prediction: Prediction
    remark: str | None = None  # a warning if the smallest error is at an end of the searched range


def best_weight_decay(problem: Problem, *, points: int = 25, rounds: int = 4) -> BestDecay:
    """Find the weight decay with the smallest estimation error.

    If no formula is known, the function solves `points * rounds` problems on finer and finer grids.
    """
    student = problem.student_spec
    if not student.penalised:
        able = [name for name, student in STUDENTS.items() if student.penalised]
        raise BadSetting(
            "student", f"this student has no weight decay; choose {' or '.join(able)}", problem.student
        )
    closed_form = student.best_decay.get(problem.observed_output.name)
    known = None if closed_form is None else closed_form(problem)
    if known is not None:
        return BestDecay(known, state_evolution(replace(problem, weight_decay=known)))
    noise = max(channel.noise for channel in problem.channels)
    scale = np.sqrt(2 * problem.observations * (problem.target.second_moment + noise))
    ends = np.log(scale * np.array([1e-4, 30.0]))
    low, high = ends
    for _ in range(rounds):
        grid = np.linspace(low, high, points)
        predictions = state_evolutions([replace(problem, weight_decay=float(np.exp(at))) for at in grid])
        least = int(np.argmin([prediction.estimation_error.value for prediction in predictions]))
        low, high = grid[max(least - 1, 0)], grid[min(least + 1, points - 1)]
    decay = predictions[least].problem.weight_decay
    at_end = min(abs(np.log(decay) - ends)) < 1e-9
    remark = (
        f"the smallest error is at the end of the searched range, at weight decay {decay:.3g}; the best "
        "value may be outside it"
    )
    return BestDecay(decay, predictions[least], remark if at_end else None)
