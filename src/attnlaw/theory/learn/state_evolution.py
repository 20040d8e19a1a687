"""State evolution: the sharp limit of what a student learns, for one problem or many at once.

`state_evolution(problem)` and `state_evolutions(problems)` are the theory's only doors. Problems that share
target, student, attention and output are handed to that student's theory together: it solves them at once
(linear output and Bayes) or one from the other (softmax).
"""

from __future__ import annotations

from collections.abc import Sequence

from attnlaw.core.progress import Progress, no_progress
from attnlaw.theory.learn.prediction import Prediction
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.target import Target


def state_evolution(problem: Problem) -> Prediction:
    """The prediction for one problem.

    >>> prediction = state_evolution(Problem(alpha=0.2, noise=0.5, weight_decay=0.1))
    >>> round(prediction.estimation_error.value, 6), round(prediction.rank_fraction.value, 6)
    (0.802029, 0.385931)
    >>> print(prediction.outcome)
    done
    """
    return state_evolutions([problem])[0]


def state_evolutions(problems: Sequence[Problem], progress: Progress | None = None) -> list[Prediction]:
    """Predictions in the order of the problems; `progress(done, total)` is called as groups finish."""
    tell, total = progress or no_progress, len(problems)
    groups: dict[tuple[str, str, str, bool, Target, int], list[int]] = {}
    for index, problem in enumerate(problems):
        kind = (problem.student, problem.attention, problem.observed_output.name, problem.flow_time is None)
        groups.setdefault((*kind, problem.target, len(problem.channels)), []).append(index)
    predictions: dict[int, Prediction] = {}
    for (_, _, output, *_), places in groups.items():
        theory = problems[places[0]].student_spec.theory(output)
        results = theory(
            [problems[place] for place in places], lambda done: tell(len(predictions) + done, total)
        )
        predictions.update(zip(places, results, strict=True))
        tell(len(predictions), total)
    return [predictions[index] for index in range(total)]
