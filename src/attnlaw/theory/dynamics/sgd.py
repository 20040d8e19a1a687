"""One-pass SGD at a finite dimension, and its comparison with the theory of trajectories.

A step on a batch of B fresh samples has the learning rate lr = eta B/d at dimension d. It moves time by
lr/d, and the student by the rule of its learner (`learners`). The gradient flow of the population loss runs
from the same start. The difference between SGD and this flow has less scatter, and a smaller bias in 1/d,
than SGD alone. So theory is compared with `theory at eta = 0 + mean of (SGD - flow)`. Several dimensions are
extrapolated in 1/d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.settings import check_value
from attnlaw.numerics.draws import generators
from attnlaw.theory.dynamics.learners import Learner
from attnlaw.theory.dynamics.quantities import NAMES, StudentPath
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.trajectory import Trajectory, check_motion, student_dynamics, trajectory
from attnlaw.theory.learn.agreement import extrapolate, require_seeds
from attnlaw.theory.learn.attention import ATTENTIONS
from attnlaw.theory.learn.data import check_sensing, draw_risk
from attnlaw.theory.learn.problem import Problem

LARGEST = 1e6  # a run with a larger first entry has diverged
COMPARED = ("norm", "overlap", "trace", "estimation_error")  # untied factors have no trace


@dataclass(frozen=True, kw_only=True, repr=False)
class MeasuredTrajectory(StudentPath):
    """Averages over several students that were trained by SGD from different seeds."""

    size: int  # the dimension d
    seeds: int
    batch: int
    sensing: str  # what students saw: Gaussian matrices or tokens
    steps: int  # steps of SGD of each student
    added: dict[str, Reals] = field(repr=False)  # SGD minus the flow from the same start, (seeds, times)
    eigenvalues: Reals = field(repr=False)  # (seeds, times, d); untied: singular values


def simulate_dynamics(
    problem: Problem,
    schedule: Schedule,
    size: int,
    seeds: int = 8,
    seed: int = 0,
    sensing: str | None = None,
    batch: int = 8,
    progress: Progress | None = None,
) -> MeasuredTrajectory:
    """Train students by one-pass SGD at dimension d.

    Each student has a different start and different samples.

    With T tokens, inputs that are Gaussian matrices cost about 2 T(T+1) d^4 tau/eta operations for each seed
    (untied: 4 T^2 d^4 tau/eta). Inputs that are tokens cost 8 T d^4 tau/eta. With tokens and a softmax
    or hermite output, SGD approaches the theory slowly in d, because the scores of tokens are skewed.

    Args:
        size: the dimension d. If the target has a rank ratio, d times this ratio must be a whole number.
        sensing: the kind of inputs. None means the matrices of the theory: "goe" (untied: "ginibre").

    >>> found = simulate_dynamics(Problem(), Schedule([0.02], learning_rate=0.1), size=16, seeds=2)
    >>> found.steps, found.eigenvalues.shape
    (6, (2, 2, 16))
    """
    check_sgd(problem, schedule, size, sensing, batch)
    sensing = sensing or ATTENTIONS[problem.attention].gaussian
    show_progress, runs = progress or no_progress, []
    for done, rng in enumerate(generators(seed, seeds)):
        show_progress(done, seeds)
        runs.append(_train_student(problem, schedule, size, sensing, batch, rng))
    sgd, flow, eigenvalues, steps = zip(*runs, strict=True)
    quantities = {name: np.array([run[name] for run in sgd]) for name in NAMES}
    added = {name: quantities[name] - np.array([run[name] for run in flow]) for name in NAMES}
    errors = {name: v.std(axis=0, ddof=1) / seeds**0.5 for name, v in quantities.items()} if seeds > 1 else {}
    return MeasuredTrajectory(
        problem=problem,
        schedule=schedule,
        size=size,
        seeds=seeds,
        batch=batch,
        sensing=sensing,
        steps=steps[0],
        **{name: values.mean(axis=0) for name, values in quantities.items()},
        error=errors,
        added=added,
        eigenvalues=np.array(eigenvalues),
        **_outcome_and_remark(quantities["norm"]),
    )


def check_sgd(problem: Problem, schedule: Schedule, size: int, sensing: str | None, batch: int) -> None:
    """Raise an `InputError` if `simulate_dynamics` cannot run with these arguments."""
    check_motion(problem, schedule)
    if schedule.learning_rate == 0:
        raise BadSetting("learning_rate", "expected a number above 0, because SGD takes steps", 0.0)
    check_value("batch", batch, int, minimum=1)
    check_value("size", size, int, minimum=2)
    problem.target.quantiles(size)
    check_sensing(sensing or ATTENTIONS[problem.attention].gaussian, problem, batch, size)


def _outcome_and_remark(norms: Reals) -> dict[str, Any]:
    lost = int(np.sum(~np.isfinite(norms[:, -1])))
    if not lost:
        return {}
    remark = f"{lost} of {len(norms)} runs diverged; choose a lower learning rate or a smaller batch"
    return {"outcome": Outcome.UNSTABLE, "remark": remark}


def _train_student(
    problem: Problem, schedule: Schedule, size: int, sensing: str, batch: int, rng: np.random.Generator
) -> tuple[dict[str, Reals], dict[str, Reals], Reals, int]:
    student: Learner = student_dynamics(problem).learner.from_problem(problem, schedule, size, rng)
    first, eta = student, schedule.learning_rate
    rate = eta / size  # lr/B
    decay = eta * batch / size**2 * schedule.decay  # gamma times the time of a step
    lost = np.full((size, size), math.nan)
    matrices, done = [student.matrix], 0
    for time in schedule.times[1:]:
        wanted = round(time * size * size / (eta * batch))
        S = matrices[-1]
        for _ in range(wanted - done):
            if not np.isfinite(S[0, 0]) or abs(S[0, 0]) > LARGEST:
                S = lost
                break
            _, gradient = draw_risk(problem, student.target, batch, sensing, rng)(S)
            student = student.after_gradient_step(gradient, rate, decay)
            S = student.matrix
        done = wanted
        matrices.append(S)
    values = [student.spectrum(S) if np.isfinite(S).all() else np.full(size, math.nan) for S in matrices]
    return first.statistics(matrices), first.statistics(first.flow()), np.array(values), done


@dataclass(frozen=True)
class TimeComparison:
    """One quantity at one time: the value in theory, and the value from SGD with its standard error."""

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
    """Compare a trajectory with runs of SGD at all times after 0.

    Args:
        measured: runs of SGD. Runs of several dimensions d are extrapolated in 1/d.
    """
    if any((run.problem, run.schedule) != (path.problem, path.schedule) for run in measured):
        raise InputError(
            "agreement: these runs do not all have the same problem and schedule; compare "
            "one set of runs at a time"
        )
    require_seeds(measured)
    flow = trajectory(path.problem, replace(path.schedule, learning_rate=0.0))
    comparisons = []
    for name in (name for name in COMPARED if not np.isnan(getattr(path, name)).any()):
        for i, time in enumerate(path.schedule.times[1:], start=1):
            columns = [(run.size, run.added[name][:, i]) for run in measured]
            rows = [(d, float(a.mean()), float(a.std(ddof=1) / np.sqrt(a.size))) for d, a in columns]
            _, value, error = rows[-1]
            if len(rows) > 1:
                fit = extrapolate(*zip(*rows, strict=True))
                value, error = fit.value, fit.standard_error
            path_errors = path.error.get(name)
            total = float(np.hypot(error, 0.0 if path_errors is None else path_errors[i]))
            base = float(getattr(flow, name)[i])
            comparisons.append(TimeComparison(name, time, float(getattr(path, name)[i]), base + value, total))
    return tuple(comparisons)
