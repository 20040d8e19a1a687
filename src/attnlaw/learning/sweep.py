"""Many problems at once: learning curves, the best weight decay, phase diagrams, and their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnlaw.base.errors import InputError
from attnlaw.learning.prediction import Prediction
from attnlaw.learning.problem import LARGEST, Problem
from attnlaw.learning.state_evolution import state_evolution, state_evolutions
from attnlaw.learning.target import Target
from attnlaw.learning.thresholds import threshold_columns

Progress = Callable[[int, int], None] | None


def curve(problem: Problem, alphas: Iterable[float], progress: Progress = None) -> list[Prediction]:
    """Predictions of one problem along the sample ratio, solved together.

    >>> problem = Problem(alpha=0.1, noise=0.5, weight_decay=0.1)
    >>> [round(prediction.estimation_error, 3) for prediction in curve(problem, [0.1, 0.2, 0.4])]
    [1.183, 0.802, 0.467]
    """
    return state_evolutions([replace(problem, alpha=float(alpha)) for alpha in alphas], progress)


@dataclass(frozen=True)
class BestDecay:
    """The weight decay of least estimation error and the prediction there.

    `status` is "converged", or says that the least error lies at an end of the range searched.
    """

    weight_decay: float
    prediction: Prediction
    status: str


def best_weight_decay(problem: Problem, *, points: int = 25, rounds: int = 4) -> BestDecay:
    """The best weight decay of a student, by a grid in its logarithm that zooms in `rounds` times.

    The range is 1e-4 to 30 times `sqrt(2 alpha_T (Q* + Delta/2))`, the scale of the noise that a penalty must
    remove. It solves `points * rounds` problems: seconds with the linear output, minutes with softmax unless
    both are lowered. The direct student with the linear output, noise and no groups is not searched: its best
    weight decay is `Delta/(2 Q*)`.

    >>> best = best_weight_decay(Problem(alpha=0.3, target=Target.marchenko_pastur(0.3), noise=0.5))
    >>> round(best.prediction.estimation_error, 4)
    0.3652
    """
    if problem.student == "bayes":
        raise InputError("best weight decay: the Bayes-optimal student has none; choose factorized or direct")
    known = problem.noise / (2 * problem.target.second_moment)
    if problem.student == "direct" and problem.output == "linear" and known >= 1 / LARGEST:
        best = replace(problem, weight_decay=known)
        return BestDecay(known, state_evolution(best), "converged")
    noise = max(channel.noise for channel in problem.channels)
    scale = np.sqrt(2 * problem.observations * (problem.target.second_moment + noise))
    ends = np.log(scale * np.array([1e-4, 30.0]))
    low, high = ends
    for _ in range(rounds):
        grid = np.linspace(low, high, points)
        found = state_evolutions([replace(problem, weight_decay=float(np.exp(at))) for at in grid])
        least = int(np.argmin([prediction.estimation_error for prediction in found]))
        low, high = grid[max(least - 1, 0)], grid[min(least + 1, points - 1)]
    decay = found[least].problem.weight_decay
    at_end = min(abs(np.log(decay) - ends)) < 1e-9
    status = "converged"
    if at_end:
        status = f"the least error lies at an end of the range searched, {decay:.3g}; the best is beyond it"
    return BestDecay(decay, found[least], status)


def phase_diagram(
    problem: Problem, rank_ratios: Sequence[float], alphas: Sequence[float], progress: Progress = None
) -> list[dict[str, Any]]:
    """Rows of the error relative to Q* over target ranks and sample ratios, with each rank's thresholds.

    >>> rows = phase_diagram(Problem(0.1, weight_decay=0.01), [0.2, 0.5], [0.1, 0.3])
    >>> len(rows), rows[0]["target_rank"], rows[0]["recovery"].__round__(4)
    (4, 0.2, 0.2556)
    """
    rows = []
    for done, rank in enumerate(rank_ratios):
        ranked = replace(problem, target=Target.marchenko_pastur(rank))
        known = threshold_columns(ranked)
        for prediction in curve(ranked, alphas):
            relative = prediction.estimation_error / ranked.target.second_moment
            rows.append({**row(prediction), "relative_error": relative, **known})
        if progress:
            progress(done + 1, len(rank_ratios))
    return rows


def row(prediction: Prediction) -> dict[str, Any]:
    """A prediction as one flat row: arguments under their option names, then quantities and status."""
    problem, values = prediction.problem, prediction.describe()
    arguments = {
        name: value for name, value in problem.describe().items() if name not in ("target", "groups")
    }
    spectrum, error = values.pop("spectrum"), values.pop("error") or {}
    return {
        **arguments,
        "target_rank": problem.target.rank_ratio,
        **values,
        **{f"{name}_standard_error": error.get(name) for name in ("estimation_error", "prediction_error")},
        "atom_at_zero": spectrum["atom_at_zero"],
        "top_edge": max((high for _, high in spectrum["edges"]), default=None),
    }
