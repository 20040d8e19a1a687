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
    """A kind of student: its theory for each output, its training and its thresholds."""

    name: str  # in settings
    label: str  # in legends and tables
    colour: int  # index in the palette
    penalised: bool  # whether it has a weight decay
    # By output, or by a loss that makes other labels: predict problems that share target and output, and
    # perhaps call `report(done)` with the number solved.
    theories: Mapping[str, Theory]
    batched_outputs: frozenset[str] = frozenset()  # solved for many problems at once, to the same digits
    # `risk(S)` returns the value of the data term and its gradient (d, d); `check()` must be called in every
    # step. None: the student is computed instead of trained.
    trainer: Trainer | None = None
    # Returns the observations per d^2 up to which the student fits all noisy labels, and its error there.
    interpolation: Callable[[Target, float], tuple[float, float | None]] | None = None
    recovery: Callable[[Target], float] | None = None  # observations per d^2 to find it from clean labels
    leading: Mapping[str, Callable[[float], float]] = field(default_factory=dict)  # I of the scaling law
    # Returns the weight decay of least error from a closed form, or None if it requires a search.
    best_decay: Mapping[str, Callable[[Problem], float | None]] = field(default_factory=dict)
    memory_checks: Mapping[str, Callable[[Problem], None]] = field(default_factory=dict)
    untied: Student | None = None  # the same student for untied attention, if it has a theory
    has_factors: bool = False  # with a `width` that may be limited
    has_flow: bool = False  # whether its gradient flow is known at every `flow_time`

    def for_attention(self, attention: str) -> Student | None:
        """Return the record of this student for a kind of attention, or None if it has no theory."""
        return self if attention == "tied" else self.untied

    def theory(self, output: str) -> Theory:
        """Return the theory for an output, or raise a `BadSetting` if only its dynamics are known."""
        if output not in self.theories:
            raise BadSetting("output", "attnlaw only knows the dynamics for this output (trajectory)", output)
        return self.theories[output]

    def check_size(self, problem: Problem) -> None:
        """Raise an `InputError` if the theory of a problem does not fit into memory."""
        if problem.observed_output.name in self.memory_checks:
            self.memory_checks[problem.observed_output.name](problem)


STUDENTS: dict[str, Student] = {}
