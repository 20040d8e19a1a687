"""Norm, overlap, alignment and errors of a student over time, in the limit of large dimension d.

`trajectory(problem, schedule)` is the main function, and `quantities` defines the quantities. Each sample is
seen once, and the schedule has the decay. So `alpha` and `weight_decay` of the problem have no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.theory.dynamics import direct, learners, tied, untied
from attnlaw.theory.dynamics.potential import POTENTIALS
from attnlaw.theory.dynamics.quantities import StudentPath
from attnlaw.theory.dynamics.schedule import Schedule, largest_rate_and_plateau, stability
from attnlaw.theory.laws.law import Law
from attnlaw.theory.learn.outliers import Outlier
from attnlaw.theory.learn.outputs import OUTPUTS
from attnlaw.theory.learn.problem import Problem

# On a plateau the alignment changes by less than FLAT while time grows by the factor LONG, and it has not yet
# reached LEARNED. A plateau lasts at least LASTING of the time until then, because the start of any curve is
# flat in the logarithm of time.
FLAT, LONG, LEARNED, LASTING = 0.01, 2.0, 0.5, 0.1
FINE, CLOSER = 17, 3  # a recovery time is refined CLOSER times, on FINE times of the interval that has it


@dataclass(frozen=True)
class StudentDynamics:
    """The theory of one kind of student, and the class that trains it by SGD."""

    solve: Callable[[Problem, Schedule], dict[str, Any]]  # arrays by the field names of `Trajectory`
    learner: type[learners.Learner]
    spectrum: Callable[[Problem, Schedule], Law] | None = None
    outliers: Callable[[Problem, Schedule], tuple[Outlier, ...]] | None = None
    check: Callable[[Problem, Schedule], None] | None = None  # raises an `InputError` without a theory


STUDENT_DYNAMICS = {
    ("tied", "factorized"): StudentDynamics(tied.solve, learners.Tied, tied.spectrum, tied.outliers),
    ("tied", "direct"): StudentDynamics(direct.solve, learners.Direct, direct.spectrum, direct.outliers),
    ("untied", "factorized"): StudentDynamics(untied.solve, learners.Untied, check=untied.check),
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Trajectory(StudentPath):
    """The measures of a student over time, in the limit of large dimension d.

    If the arrays are averages over random draws, `error` has their standard errors.
    """

    gains: Reals = field(repr=False)  # G and H of the potential, (times, 2)
    transposed_norm: Reals | None = field(default=None, repr=False)  # Tr M M/d of untied M = U V^T
    transposed_overlap: Reals | None = field(default=None, repr=False)  # Tr M M*/d

    def steps(self, size: int, batch: int) -> Reals:
        """Return the number of SGD steps until each time, for batches of B samples at dimension d."""
        if self.samples is None:
            raise BadSetting(
                "learning_rate", "expected a number above 0, because a gradient flow has no steps", 0.0
            )
        return self.samples * size**2 / batch

    def recovery_time(self, level: float = 0.5) -> float | None:
        """Return the first time at which the alignment reaches a level, or None if it never does."""
        reached = np.flatnonzero(self.alignment >= level)
        if not reached.size:
            return None
        last = int(reached[0])
        if last == 0:
            return 0.0
        times, alignment = self.time, self.alignment
        for _ in range(0 if self.error else CLOSER):  # finer than the error of draws would be useless
            between = np.linspace(times[last - 1], times[last], FINE)
            path = trajectory(self.problem, replace(self.schedule, times=tuple(between)))
            times, alignment = path.time[-FINE:], path.alignment[-FINE:]
            last = max(int(np.argmax(alignment >= level)), 1)
        below, above = alignment[last - 1], alignment[last]
        if np.isnan(below):  # a start of size 0, as of infinite width, has no alignment
            return float(times[last])
        return float(times[last - 1] + (times[last] - times[last - 1]) * (level - below) / (above - below))

    @cached_property
    def plateaus(self) -> tuple[tuple[float, float], ...]:
        """The start and the end of each plateau, a long time in which the alignment hardly changes.

        On a plateau, the alignment changes by less than 0.01 before it reaches 0.5. It ends at twice its
        start time or later, and lasts at least a tenth of the time until 0.5 is reached (or of the whole
        time).
        """
        learned = np.flatnonzero(self.alignment >= LEARNED)
        last = int(learned[0]) if learned.size else self.time.size
        least = LASTING * self.time[min(last, self.time.size - 1)]
        stretches, i = [], 1
        while i < last:
            j = i
            while j + 1 < last and np.ptp(self.alignment[i : j + 2]) < FLAT:
                j += 1
            if self.time[j] >= max(LONG * self.time[i], self.time[i] + least):
                stretches.append((float(self.time[i]), float(self.time[j])))
                i = j
            i += 1
        return tuple(stretches)

    def spectrum(self, time: float) -> Law:
        """Return the distribution of the student's eigenvalues at a time.

        The result is that of the gradient flow, also if the learning rate is not zero.
        """
        law: Law = self._at_end("spectrum", time)
        return law

    def outliers(self, time: float) -> tuple[Outlier, ...]:
        """Return the target eigenvalues that appear as outliers of the student at a time, largest first."""
        outliers: tuple[Outlier, ...] = self._at_end("outliers", time)
        return outliers

    def edge(self, time: float) -> float:
        """Return the upper end of the spectrum at a time, without outliers."""
        return self.spectrum(time).support[1]

    @property
    def largest_rate(self) -> float | None:
        """The learning rate below which a student at the target is stable, or None if no formula is known."""
        return largest_rate_and_plateau(self.problem, self.schedule)[0]

    @property
    def plateau_error(self) -> float | None:
        """The error E after long training by SGD, to leading order in eta, or None if no formula is known."""
        return largest_rate_and_plateau(self.problem, self.schedule)[1]

    @property
    def divergence_time(self) -> float | None:
        """The first time at which the norm is not finite, or None if it is always finite."""
        lost = ~np.isfinite(self.norm)
        return float(self.time[lost.argmax()]) if lost.any() else None

    def _at_end(self, name: str, time: float) -> Any:
        theory = getattr(student_dynamics(self.problem), name)
        if theory is None:
            raise InputError(f"{name}: attnlaw has no theory for {self.problem.attention} factors")
        return theory(self.problem, replace(self.schedule, times=(time,)))


def trajectory(problem: Problem, schedule: Schedule) -> Trajectory:
    """Compute how the student of a problem learns over time.

    >>> found = trajectory(Problem(), Schedule([0.02, 0.1]))
    >>> found.overlap.round(6).tolist(), found.recovery_time(0.5) is not None
    ([0.494975, 0.66067, 1.338921], True)
    """
    check_motion(problem, schedule)
    with np.errstate(over="ignore", invalid="ignore"):  # the outcome reports a student that diverges
        arrays = student_dynamics(problem).solve(problem, schedule)
    path = Trajectory(problem=problem, schedule=schedule, **arrays)
    return replace(path, **stability(problem, schedule, path.divergence_time))


def student_dynamics(problem: Problem) -> StudentDynamics:
    """Return the theory for a problem's student, or raise a `BadSetting` if attnlaw has none."""
    kind = (problem.attention, problem.student)
    if kind not in STUDENT_DYNAMICS:
        able = [student for attention, student in STUDENT_DYNAMICS if attention == problem.attention]
        raise BadSetting(
            "student",
            f"expected {' or '.join(able)}: attnlaw does not know the dynamics of other students",
            problem.student,
        )
    return STUDENT_DYNAMICS[kind]


def check_motion(problem: Problem, schedule: Schedule) -> None:
    """Raise an `InputError` if attnlaw has no theory for a problem with this schedule."""
    student_dynamics(problem)
    for name in ("width", "flow_time"):
        given = getattr(problem, name)
        if given is not None:
            raise BadSetting(name, "belongs to the schedule; leave it out of the problem", given)
    if problem.pairs != "all":
        raise BadSetting(
            "pairs", "expected all: one pass over new samples uses every ordered pair", problem.pairs
        )
    if schedule.scale_key is not None and problem.attention != "untied":
        raise BadSetting("scale_key", "needs {attention} untied, because tied attention has no separate keys")
    if problem.output not in POTENTIALS:
        raise BadSetting("output", f"expected one of {', '.join(POTENTIALS)}", problem.output)
    if not OUTPUTS[problem.output].has_static_theory and problem.noise > 0:
        raise BadSetting("noise", f"expected 0 with {{output}} {problem.output}", problem.noise)
    if problem.groups:
        raise InputError("groups: attnlaw cannot compute dynamics with groups; leave them out")
    check = student_dynamics(problem).check
    if check is not None:
        check(problem, schedule)
