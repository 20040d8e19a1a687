"""Theory and SGD of one trajectory, quantity by quantity and time by time.

What SGD adds to the flow from the same start is put upon the flow of the limit: `theory at eta = 0 + mean of
(SGD - flow)`. Several sizes are extrapolated in 1/d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnlaw.core.errors import InputError
from attnlaw.theory.dynamics.sgd import MeasuredTrajectory
from attnlaw.theory.dynamics.trajectory import Trajectory, trajectory
from attnlaw.theory.learn.agreement import extrapolate, require_seeds

QUANTITIES = ("norm", "overlap", "trace", "estimation_error")  # untied factors have no trace


@dataclass(frozen=True)
class TimeComparison:
    """A quantity at one time: theory, what SGD says of the limit, and their distance in standard errors."""

    quantity: str
    time: float
    theory: float
    value: float
    standard_error: float

    @property
    def z(self) -> float:
        return (self.value - self.theory) / self.standard_error


def trajectory_agreement(
    path: Trajectory, measured: Sequence[MeasuredTrajectory]
) -> tuple[TimeComparison, ...]:
    """Comparisons of a trajectory with runs of SGD at one size or several, times after 0.

    The standard error is that of both. Fails with an `InputError` for runs of other problems or single seeds.
    """
    if any(
        (measurement.problem, measurement.schedule) != (path.problem, path.schedule)
        for measurement in measured
    ):
        raise InputError("agreement: the runs belong to another problem or schedule; compare one at a time")
    require_seeds(measured)
    flow = trajectory(path.problem, replace(path.schedule, learning_rate=0.0))
    comparisons = []
    for name in (name for name in QUANTITIES if not np.isnan(getattr(path, name)).any()):
        for i, time in enumerate(path.schedule.times[1:], start=1):
            rows = [
                (
                    measurement.size,
                    float(measurement.added[name][:, i].mean()),
                    _error(measurement.added[name][:, i]),
                )
                for measurement in measured
            ]
            _, value, error = rows[-1]
            if len(rows) > 1:
                fit = extrapolate(*zip(*rows, strict=True))
                value, error = fit.value, fit.standard_error
            path_errors = path.error.get(name)
            total = float(np.hypot(error, 0.0 if path_errors is None else path_errors[i]))
            base = float(getattr(flow, name)[i])
            comparisons.append(TimeComparison(name, time, float(getattr(path, name)[i]), base + value, total))
    return tuple(comparisons)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))
