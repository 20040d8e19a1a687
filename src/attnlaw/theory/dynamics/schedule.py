"""The schedule of a student's training: the times to report, its learning rate, its decay and its start.

The loss of a sample is `sum_ab (y_ab - yhat_ab)^2` without a factor 1/2, and S = W W^T is of order one. SGD
with batches of B samples and the learning rate lr on W, at dimension d, has

    eta = lr d/B,   tau = lr n/d after n steps,   samples/d^2 = n B/d^2 = tau/eta

| letter | field |
|---|---|
| tau | `times`; 0 is always the first |
| eta | `learning_rate`; 0 is the gradient flow of the population loss, without SGD |
| gamma | `decay`: `gamma/(2d) |W|^2` is added to the loss |
| kappa | `width` of the factors over d; infinite means an orthogonal start |
| s | `scale` of the start: Tr S0/d (tied), sqrt(Tr S0^2/d) (direct), Tr U0 U0^T/d (untied) |

The noise of the gradient keeps a student of SGD away from its target S*. For the linear output without
decay, and to leading order in eta, the table says up to which eta S* is stable and which error E remains.
Delta is the label noise and t* = Tr S*/d. The table is not in the paper; it was derived for attnlaw and
agrees with SGD at d = 64 to 80.

| student | stable for | E at the end |
|---|---|---|
| tied | eta < 1/(4 t*) | (Delta/2) z/(1 - z), z = 4 eta t* |
| direct | eta < 1 | (Delta/2) eta/(1 - eta), exactly |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.settings import check_value
from attnlaw.theory.learn.problem import Problem


@dataclass(frozen=True)
class Schedule:
    """The schedule of a training run: the times of measurement, the learning rate, and the start.

    Args:
        times: ascending times tau = lr * steps/d. 0 is added as the first time.
        learning_rate: eta = lr * d/batch of one-pass SGD. The value 0 means the gradient flow of the
            population loss.
        scale: size of the start, Tr S0/d (direct: sqrt(Tr S0^2/d); untied: Tr U0 U0^T/d).
        scale_key: size of the start of untied keys, Tr V0 V0^T/d. None means the same as `scale`.

    >>> schedule = Schedule.of_run(lr=0.005, batch=20, size=80, steps=[1000, 4000])
    >>> schedule.times, schedule.learning_rate
    ((0.0, 0.0625, 0.25), 0.02)
    """

    times: Sequence[float]
    learning_rate: float = 0.0
    decay: float = 0.0
    width: float = 1.0
    scale: float = 0.7
    scale_key: float | None = None

    def __post_init__(self) -> None:
        times = tuple(float(time) for time in np.ravel(np.asarray(self.times, dtype=float)))
        if not times or not all(0 <= time < math.inf for time in times) or list(times) != sorted(set(times)):
            raise InputError("times: expected finite numbers from 0 on, in ascending order")
        rules: dict[str, dict[str, Any]] = {
            "learning_rate": {"minimum": 0},
            "decay": {"minimum": 0},
            "width": {"greater_than": 0, "allow_infinite": True},
            "scale": {"greater_than": 0},
            "scale_key": {"greater_than": 0},
        }
        object.__setattr__(self, "times", times if times[0] == 0 else (0.0, *times))
        for name, rule in rules.items():
            if (value := getattr(self, name)) is not None or name != "scale_key":
                object.__setattr__(self, name, check_value(name, value, float, **rule))

    @classmethod
    def of_run(cls, lr: float, batch: int, size: int, steps: int | Sequence[int], **rest: Any) -> Schedule:
        """Return the schedule of a training run, given its learning rate, batch size, dimension and steps.

        Args:
            lr: learning rate of the factor W, where S = W W^T. If your model has S = W W^T/sqrt(m d) instead,
                divide its learning rate by `sqrt(m d)`.
        """
        times = [lr * step / size for step in np.ravel(steps)]
        return cls(times, learning_rate=lr * size / batch, **rest)


STABLE = {("tied", "factorized"), ("tied", "direct")}  # their largest rates are known


def largest_rate_and_plateau(problem: Problem, schedule: Schedule) -> tuple[float | None, float | None]:
    """Return the largest stable learning rate and the final error E, or None if no formula is known."""
    if problem.output != "linear" or (problem.attention, problem.student) not in STABLE:
        return None, None
    limit = 1.0 if problem.student == "direct" else 1 / (4 * problem.target.mean)
    z = schedule.learning_rate / limit
    ends = 0 < z < 1 and schedule.decay == 0
    return limit, problem.noise / 2 * z / (1 - z) if ends else None


def stability(problem: Problem, schedule: Schedule, divergence_time: float | None) -> dict[str, Any]:
    """Return the outcome and a remark for an unstable trajectory, or an empty dictionary for a stable one."""
    eta, (limit, _) = schedule.learning_rate, largest_rate_and_plateau(problem, schedule)
    if limit is not None and (eta > limit or (eta == limit and schedule.decay == 0)):
        place = "above" if eta > limit else "at"
        remark = (
            f"the learning rate is {place} {limit:.3g}, so training cannot settle at the target; choose a "
            "smaller one"
        )
    elif divergence_time is not None:
        remark = "the noise of the gradient makes the student diverge; choose a smaller learning rate"
    else:
        return {}
    return {"outcome": Outcome.UNSTABLE, "remark": remark}
