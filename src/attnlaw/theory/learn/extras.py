"""A prediction with what else was asked for: thresholds, the scaling law, the density of its spectrum."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from attnlaw.theory.learn.prediction import Prediction
from attnlaw.theory.learn.scaling import leading_order
from attnlaw.theory.learn.thresholds import problem_thresholds

Densities = list[dict[str, float]]


@dataclass(frozen=True, repr=False)
class DetailedPrediction(Prediction):
    """What `attnlaw learn` finds. Thresholds (samples per d^2) and `density` are None unless asked for.

    `outlier` is where the trained matrix shows the spike of the target. `observations` is N/d of a power-law
    target, `leading_error` and `predicted_exponent` its leading-order law.
    """

    outlier: float | None = None
    observations: float | None = None
    leading_error: float | None = None
    predicted_exponent: float | None = None
    threshold_recovery: float | None = None
    threshold_feasibility: float | None = None
    threshold_bayes: float | None = None
    threshold_direct: float | None = None
    threshold_own_recovery: float | None = None
    threshold_interpolation: float | None = None
    threshold_peak_error: float | None = None
    density: Densities | None = None


def with_details(
    prediction: Prediction, *, thresholds: bool = False, spectrum: bool = False
) -> DetailedPrediction:
    """The prediction with all that its target tells, and what was asked for.

    >>> from attnlaw.theory.learn.problem import Problem
    >>> from attnlaw.theory.learn.state_evolution import state_evolution
    >>> found = with_details(state_evolution(Problem(alpha=0.2)), thresholds=True)
    >>> round(found.threshold_recovery, 6), found.density
    (0.422175, None)
    """
    problem = prediction.problem
    spikes = problem.target.spikes
    seen = (outlier.location for outlier in prediction.outliers if outlier.target in spikes)
    leading, exponent = leading_order(problem)
    dimension = problem.target.dimension
    known = problem_thresholds(problem) if thresholds else None
    return DetailedPrediction(
        **{column.name: getattr(prediction, column.name) for column in fields(Prediction)},
        outlier=next(seen, None),
        observations=None if dimension is None else problem.observations * dimension,
        leading_error=leading,
        predicted_exponent=exponent,
        **({} if known is None else {f"threshold_{name}": value for name, value in vars(known).items()}),
        density=density_rows(prediction) if spectrum else None,
    )


def density_rows(prediction: Prediction, points: int = 300) -> Densities:
    """The density of the trained matrix's spectrum on its intervals, with points that crowd at the edges.

    >>> from attnlaw.theory.learn.problem import Problem
    >>> from attnlaw.theory.learn.state_evolution import state_evolution
    >>> rows = density_rows(state_evolution(Problem(alpha=0.3, noise=0.5, weight_decay=0.6)))
    >>> sorted(rows[0])
    ['density', 'interval', 'x']
    """
    rows = []
    for interval, (low, high) in enumerate(prediction.bulk):
        angles = np.linspace(0.0, np.pi, points)
        # The ends themselves are left out: the density jumps there or is zero.
        x = np.clip(
            0.5 * (low + high) - 0.5 * (high - low) * np.cos(angles),
            low + 1e-9 * (high - low),
            high - 1e-9 * (high - low),
        )
        for place, height in zip(x, prediction.spectrum.density(x), strict=True):
            rows.append({"x": float(place), "density": float(height), "interval": interval})
    return rows
