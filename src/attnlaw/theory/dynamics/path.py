"""What theory and SGD tell alike of a student: norm, overlap, alignment and errors, time by time.

| quantity | definition |
|---|---|
| norm, overlap, trace | q = Tr S^2/d, m = Tr S S*/d, t = Tr S/d |
| estimation_error | E = q - 2m + Q* |
| prediction_error | Phi(q, m), the loss of a fresh sample with clean labels |
| alignment | rho = (m - t t*)/sqrt((q - t^2)(Q* - t*^2)); its absolute value for an even output |

Untied factors M = U V^T have q = Tr M M^T/d, m = Tr M M*^T/d, no trace (nan), and as their alignment the
correlation of the scores that labels see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.estimate import BriefRepr, Outcome
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.learn.problem import Problem

Reals = NDArray[np.float64]
NAMES = ("alignment", "estimation_error", "prediction_error", "overlap", "norm", "trace")


@dataclass(frozen=True, kw_only=True, repr=False)
class StudentPath(BriefRepr):
    """A student over time, one entry of each array for each of the schedule's times.

    `error` holds standard errors by quantity, where a quantity is an average over several draws. Alignment is
    nan where it is not defined (a target or a student proportional to I).
    """

    problem: Problem
    schedule: Schedule
    norm: Reals
    overlap: Reals
    trace: Reals
    estimation_error: Reals
    prediction_error: Reals
    alignment: Reals
    error: Mapping[str, Reals] = field(default_factory=dict, repr=False)
    outcome: Outcome = Outcome.DONE
    remark: str | None = None

    @property
    def time(self) -> Reals:
        return np.array(self.schedule.times)

    @property
    def samples(self) -> Reals | None:
        """Samples seen over d^2, tau/eta; None for a gradient flow, which has seen infinitely many."""
        eta = self.schedule.learning_rate
        return None if eta == 0 else self.time / eta
