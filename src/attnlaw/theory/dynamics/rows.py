"""Trajectories as rows of tables. If the user asks for spectra, they are computed here too."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.estimate import BriefRepr, Estimate, Outcome
from attnlaw.theory.dynamics.quantities import NAMES, StudentPath
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.sgd import MeasuredTrajectory
from attnlaw.theory.dynamics.trajectory import Trajectory, trajectory
from attnlaw.theory.laws.law import Law
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.state_evolution import best_weight_decay, state_evolution

ROUND_OFF = 1e-12
SHOWN, POINTS = 5, 200  # spectra, and points of each
LEAST_SAMPLES, SAMPLE_COUNTS = 0.05, 10  # for `_statics`: fewest samples over d^2, number of rows


class PathRows(BriefRepr):
    """The table rows that trajectories of the theory and of SGD have in common, one for each time."""

    path: StudentPath

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        samples = self.path.samples
        return [
            {"time": float(time), "samples": None if samples is None else float(samples[i])}
            | {
                name if end == 0 else f"{name}_error": value
                for name in NAMES
                for end, value in enumerate(_value_and_error(self.path, name, i))
            }
            for i, time in enumerate(self.path.time)
        ]

    @property
    def _last(self) -> dict[str, Any]:
        last = {name: _value_and_error(self.path, name, -1) for name in NAMES}
        estimates = {name: None if pair[0] is None else Estimate(*pair) for name, pair in last.items()}
        return estimates | {"samples": self.rows[-1]["samples"]}

    @property
    def outcome(self) -> Outcome:
        return self.path.outcome

    @property
    def remark(self) -> str | None:
        return self.path.remark


@dataclass(frozen=True, repr=False)
class TrajectoryRows(PathRows):
    """A trajectory of the theory, with its table rows. `quantities` is one row for the whole time."""

    path: Trajectory
    spectra: list[dict[str, Any]] = field(default_factory=list, repr=False)
    tracks: list[dict[str, Any]] = field(default_factory=list, repr=False)
    statics: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @cached_property
    def quantities(self) -> dict[str, Any]:
        path = self.path
        half, eta = path.recovery_time(0.5), path.schedule.learning_rate
        return {
            "recovery_time": half,
            "recovery_time_90": path.recovery_time(0.9),
            "recovery_samples": None if half is None or eta == 0 else half / eta,
            **self._last,
            "plateaus": [end for pair in path.plateaus for end in pair] or None,
            "largest_rate": path.largest_rate,
            "plateau_error": path.plateau_error,
        }


@dataclass(frozen=True, repr=False)
class SgdRows(PathRows):
    """Runs of SGD, with their table rows. `quantities` is one row for the last time."""

    path: MeasuredTrajectory

    @cached_property
    def quantities(self) -> dict[str, Any]:
        return self._last | {"steps": self.path.steps}

    @cached_property
    def eigenvalues(self) -> list[dict[str, Any]]:
        """The eigenvalues of all runs, at the times that `snapshot_indices` selects."""
        return [
            {"time": float(self.path.time[i]), "eigenvalue": float(value)}
            for i in snapshot_indices(self.path.time.size)
            for value in np.sort(self.path.eigenvalues[:, i], axis=None)
            if np.isfinite(value)
        ]


def snapshot_indices(times: int) -> NDArray[np.intp]:
    """Return the indices of times at which spectra are shown: the last and up to four earlier ones."""
    return np.unique(np.linspace(1, times - 1, SHOWN).round().astype(int))


def _value_and_error(path: StudentPath, name: str, i: int) -> tuple[Any, float | None]:
    """Return a quantity at time number i (None if undefined) and its standard error (None if exact)."""
    value = float(getattr(path, name)[i])
    if np.isnan(value):
        return None, None
    errors = path.error.get(name)
    error = None if errors is None else float(errors[i])
    # Quantities that are matched at the start are exact except for rounding.
    exact = error is None or error < ROUND_OFF
    return value if abs(value) > ROUND_OFF else 0.0, None if exact else error


def trajectory_with_rows(
    problem: Problem, schedule: Schedule, spectrum: bool = False, statics: bool = False
) -> TrajectoryRows:
    """Compute a trajectory and the rows of its tables."""
    path = trajectory(problem, schedule)
    static_rows = _statics(path) if statics else []
    if not spectrum:
        return TrajectoryRows(path, statics=static_rows)
    return TrajectoryRows(
        path,
        [
            {"time": time, "x": place, "density": value}
            for time in path.time[snapshot_indices(path.time.size)].tolist()
            for place, value in density_curve(path.spectrum(time), POINTS)
        ],
        [row for time in path.time[1:] for row in _track(path, float(time))] if problem.target.spikes else [],
        static_rows,
    )


def _statics(path: Trajectory) -> list[dict[str, Any]]:
    """Return the errors of two students that keep all their samples, a row for each number of samples."""
    samples = path.samples
    assert samples is not None
    least, most = max(samples[1], LEAST_SAMPLES), max(samples[-1], 2 * LEAST_SAMPLES)
    alphas = np.geomspace(least, most, SAMPLE_COUNTS)
    rows = []
    for alpha in alphas.tolist():
        kept = best_weight_decay(replace(path.problem, alpha=alpha), points=9, rounds=2).prediction
        bayes = state_evolution(replace(path.problem, alpha=alpha, student="bayes"))
        errors = [prediction.estimation_error.value for prediction in (kept, bayes)]
        rows.append({"samples": alpha, "minimiser_error": errors[0], "bayes_error": errors[1]})
    return rows


def density_curve(law: Law, points: int) -> list[tuple[float, float]]:
    """Return pairs (x, density) on each interval of a spectral law. The points are closer near the ends."""
    angles = np.linspace(0.0, np.pi, points + 2)[1:-1]
    x = np.sort(np.concatenate([piece.at(angles)[0] for piece in law.pieces] or [np.empty(0)]))
    return list(zip(x.tolist(), law.density(x).tolist(), strict=True))


def _track(path: Trajectory, time: float) -> list[dict[str, Any]]:
    """Return a row for each spike at one time. A spike that is not visible yet has no location."""
    edge, seen = path.edge(time), {outlier.target: outlier for outlier in path.outliers(time)}
    rows = []
    for spike in path.problem.target.spikes:
        outlier = seen.get(spike)
        place = {} if outlier is None else {"location": outlier.location, "squared_overlap": outlier.overlap}
        rows.append({"time": time, "target": spike, "edge": edge} | place)
    return rows
