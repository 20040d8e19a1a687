"""How a student is trained: when it is looked at, its learning rate, its decay and its start.

Loss `sum_ab (y_ab - yhat_ab)^2` per sample, no 1/2; S = W W^T of order one. A step of SGD with a batch of B
and the learning rate lr on W, at dimension d:

    eta = lr d/B,   tau = lr n/d after n steps,   samples/d^2 = n B/d^2 = tau/eta

| letter | field |
|---|---|
| tau | `times`; 0 is always the first |
| eta | `learning_rate`; 0 is the gradient flow of the population loss, no SGD |
| gamma | `decay`: `gamma/(2d) |W|^2` is added to the loss |
| kappa | `width`, that of the factors over d; infinite: an orthogonal start |
| s | `scale` of the start: Tr S0/d (tied), sqrt(Tr S0^2/d) (direct), Tr U0 U0^T/d (untied) |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value


@dataclass(frozen=True)
class Schedule:
    """When a student is looked at, how fast it learns, and from where.

    >>> schedule = Schedule.of_run(lr=0.005, batch=20, size=80, steps=[1000, 4000])
    >>> schedule.times, schedule.learning_rate
    ((0.0, 0.0625, 0.25), 0.02)
    """

    times: Sequence[float]
    learning_rate: float = 0.0
    decay: float = 0.0
    width: float = 1.0
    scale: float = 0.7
    scale_key: float | None = None  # of V0 where it is not that of U0 (untied)

    def __post_init__(self) -> None:
        times = tuple(float(time) for time in np.ravel(np.asarray(self.times, dtype=float)))
        if not times or not all(0 <= time < math.inf for time in times) or list(times) != sorted(set(times)):
            raise InputError("times: expected ascending finite numbers, none negative")
        rules: dict[str, dict[str, Any]] = {
            "learning_rate": {"minimum": 0},
            "decay": {"minimum": 0},
            "width": {"greater_than": 0, "allow_infinite": True},
            "scale": {"greater_than": 0},
        }
        object.__setattr__(self, "times", times if times[0] == 0 else (0.0, *times))
        for name, rule in rules.items():
            object.__setattr__(self, name, check_value(name, getattr(self, name), float, **rule))
        if self.scale_key is not None:
            object.__setattr__(
                self, "scale_key", check_value("scale_key", self.scale_key, float, greater_than=0)
            )

    @classmethod
    def of_run(cls, lr: float, batch: int, size: int, steps: int | Sequence[int], **rest: Any) -> Schedule:
        """That of a training run: `lr` is the rate on W with S = W W^T, `sqrt(m d)` times less than on raw
        weights with S = W W^T/sqrt(m d).
        """
        times = [lr * step / size for step in np.ravel(steps)]
        return cls(times, learning_rate=lr * size / batch, **rest)
