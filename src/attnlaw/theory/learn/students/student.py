"""What a student is: a record of its theory by output, its training, its thresholds and its look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnlaw.core.errors import BadSetting
from attnlaw.core.lazy import resolve
from attnlaw.theory.learn.choices import Named

if TYPE_CHECKING:
    from attnlaw.theory.learn.prediction import Prediction
    from attnlaw.theory.learn.problem import Problem
    from attnlaw.theory.learn.training import Trained

Theory = Callable[["list[Problem]", Callable[[int], object]], "list[Prediction]"]


@dataclass(frozen=True)
class Student:
    """Who learns. A student is a file of this folder, which imports mathematics inside functions, and a line
    in `STUDENTS`.

    | field | what it says |
    |---|---|
    | `label`, `colour` | its name in legends and tables; its place in the palette |
    | `penalised` | whether `weight_decay` plays a part |
    | `has_factors` | whether it has factors, whose `width` may be limited |
    | `has_flow` | whether its gradient flow is known at every `flow_time` |
    | `theories` | output (or a loss with labels of its own) -> `theory(problems, report)`: predictions of
      problems that share target and output; `report(done)` may tell how many are. What is not here is refused
      by name |
    | `batched_outputs` | the outputs whose theory solves many problems at once, to the same digits as alone |
    | `trainer` | `train(problem, risk, rng, check) -> Trained`; None: computed, not trained |
    | `interpolation` | `(target, noise) -> (observations per d^2, error there or None)` up to which it fits
      all labels; None: it does not fit labels |
    | `recovery` | `(target) -> observations per d^2` beyond which clean labels give the target |
    | `leading` | output -> `I(gamma)`, the constant of its scaling law, where one is known |
    | `best_decay` | output -> `(problem) -> weight decay` of least error in closed form, or None: searched |
    | `memory_checks` | output -> `check(problem)`, an `InputError` if its theory does not fit into memory |
    | `untied` | the same student for untied attention; None: it has no theory there |
    """

    name: str
    label: str
    colour: int
    penalised: bool
    theories: Mapping[str, Named]
    batched_outputs: frozenset[str] = frozenset()
    trainer: Named | None = None
    interpolation: Callable[[Any, float], tuple[float, float | None]] | None = None
    recovery: Callable[[Any], float] | None = None
    leading: Mapping[str, Callable[[float], float]] = field(default_factory=dict)
    best_decay: Mapping[str, Callable[[Any], float | None]] = field(default_factory=dict)
    memory_checks: Mapping[str, Named] = field(default_factory=dict)
    untied: Student | None = None
    has_factors: bool = False
    has_flow: bool = False

    def for_attention(self, attention: str) -> Student | None:
        """Its record for tied or untied attention, None where it has none."""
        return self if attention == "tied" else self.untied

    def theory(self, output: str) -> Theory:
        """Its theory for an output; a `BadSetting` where its dynamics alone is known."""
        if output not in self.theories:
            raise BadSetting("output", "whose dynamics alone is known (trajectory)", output)
        theory: Theory = resolve(self.theories[output])
        return theory

    def train(self, *data: Any) -> Trained:
        """What it learns of `(problem, risk, rng, check)`."""
        trained: Trained = resolve(self.trainer)(*data)
        return trained

    def check_size(self, problem: Problem) -> None:
        """An `InputError` for a problem whose theory does not fit into memory."""
        if problem.observed_output.name in self.memory_checks:
            resolve(self.memory_checks[problem.observed_output.name])(problem)
