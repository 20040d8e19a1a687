"""The record of a student, and the table of all students.

Each file of `attnlaw.theory.learn.students` describes one student and imports problems, predictions and
solvers. Problems and settings look a student up by its name, so they need the table but must not import those
files. That is why the table is here and is filled by `attnlaw.theory.learn.students`, which this package
imports first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnlaw.core.errors import BadSetting

if TYPE_CHECKING:
    import numpy as np

    from attnlaw.theory.learn.prediction import Prediction
    from attnlaw.theory.learn.problem import Problem
    from attnlaw.theory.learn.risk import Risk
    from attnlaw.theory.learn.target import Target
    from attnlaw.theory.learn.training import Check, Trained

    Theory = Callable[[list[Problem], Callable[[int], object]], list[Prediction]]
    Trainer = Callable[[Problem, Risk, np.random.Generator, Check], Trained]


@dataclass(frozen=True)
class Student:
    """A kind of student, with its theory for each output, its training and its thresholds.

    Args:
        theories: functions `theory(problems, report)` by output, or by a loss that makes other labels. Each
            function returns the predictions of problems that share target and output, and may call
            `report(done)` with the number solved. If `theories` lacks an output, a message says that the
            output is not supported.
        batched_outputs: outputs whose theory solves many problems at once, to the same digits as one by one.
        trainer: function `train(problem, risk, rng, check)` that returns a `Trained`. Its argument `risk(S)`
            returns the value of the data term and its gradient, a (d, d) matrix, and `check()` must be called
            in every step. `trainer` is None if the student is computed instead of trained.
        interpolation: function of (target, noise) that returns the observations per d^2 up to which the
            student fits all labels, and its error there (None if unbounded). `interpolation` is None if the
            student does not fit labels.
        recovery: function of a target that returns the observations per d^2 above which the student finds
            this target from clean labels.
        leading: functions of gamma, by output, that return the constant I of the scaling law.
        best_decay: functions of a problem, by output, that return the weight decay of least error from a
            closed form. Such a function returns None if the weight decay requires a search.
        memory_checks: functions, by output, that raise an `InputError` if the theory of a problem needs too
            much memory.
        untied: the record of this student for untied attention, or None if it has no theory for untied
            attention.
    """

    name: str
    label: str
    colour: int
    penalised: bool
    theories: Mapping[str, Theory]
    batched_outputs: frozenset[str] = frozenset()
    trainer: Trainer | None = None
    interpolation: Callable[[Target, float], tuple[float, float | None]] | None = None
    recovery: Callable[[Target], float] | None = None
    leading: Mapping[str, Callable[[float], float]] = field(default_factory=dict)
    best_decay: Mapping[str, Callable[[Problem], float | None]] = field(default_factory=dict)
    memory_checks: Mapping[str, Callable[[Problem], None]] = field(default_factory=dict)
    untied: Student | None = None
    has_factors: bool = False
    has_flow: bool = False

    def for_attention(self, attention: str) -> Student | None:
        """Return the record of this student for tied or untied attention, or None if it has no theory."""
        return self if attention == "tied" else self.untied

    def theory(self, output: str) -> Theory:
        """Return the theory for an output, or raise a `BadSetting` if only its dynamics is known."""
        if output not in self.theories:
            raise BadSetting("output", "attnlaw only knows the dynamics for this output (trajectory)", output)
        return self.theories[output]

    def check_size(self, problem: Problem) -> None:
        """Raise an `InputError` if the theory of a problem does not fit into memory."""
        if problem.observed_output.name in self.memory_checks:
            self.memory_checks[problem.observed_output.name](problem)


STUDENTS: dict[str, Student] = {}
