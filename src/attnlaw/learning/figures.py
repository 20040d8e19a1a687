"""Rows for charts: densities of predicted spectra, points of measurements, thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnlaw.learning.prediction import Prediction
from attnlaw.learning.simulate import Measurement
from attnlaw.learning.thresholds import RECOVERIES, Thresholds


def density_rows(prediction: Prediction, points: int = 300) -> list[dict[str, Any]]:
    """The density of the trained matrix's spectrum on its intervals, with points that crowd at the edges.

    >>> from attnlaw.learning.problem import Problem
    >>> from attnlaw.learning.state_evolution import state_evolution
    >>> rows = density_rows(state_evolution(Problem(alpha=0.3, noise=0.5, weight_decay=0.6)))
    >>> sorted(rows[0])
    ['density', 'interval', 'x']
    """
    rows = []
    for interval, (low, high) in enumerate(prediction.describe()["spectrum"]["edges"]):
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


def error_row(measurement: Measurement) -> dict[str, Any]:
    """A measured estimation error as a point of a learning curve."""
    return {
        "alpha": measurement.problem.alpha,
        "student": measurement.problem.student,
        "size": measurement.size,
        "mean": measurement.estimation_error.mean,
        "standard_error": measurement.estimation_error.standard_error,
    }


def threshold_rows(thresholds: Thresholds, noise: float) -> list[dict[str, Any]]:
    """Thresholds as named places on the axis of alpha: interpolation with noisy labels, else recovery."""
    names = {"interpolation": "interpolation"} if noise > 0 else RECOVERIES
    places: dict[float, str] = {}
    for name, label in names.items():
        value = getattr(thresholds, name)
        if value is not None:
            places[value] = f"{places[value]}, {label}" if value in places else label
    return [{"alpha": place, "name": name} for place, name in places.items()]
