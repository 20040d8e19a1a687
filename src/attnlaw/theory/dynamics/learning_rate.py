"""What a finite learning rate does: where it ends, and from where on the target is no resting place.

`eta = lr d/B`. Linear output, no decay, to leading order in eta (derived for this project; SGD at d = 64 to
80 agrees). The noise of the gradient keeps a student away from its target:

| student | stable for | E at the end |
|---|---|---|
| tied | eta < 1/(4 t*) | (Delta/2) z/(1 - z), z = 4 eta t* |
| direct | eta < 1 | (Delta/2) eta/(1 - eta), exactly |

t* = Tr S*/d. A little beyond the limit Gaussian sensing stays bounded, tokens at d = 64 diverge.
"""

from __future__ import annotations

from typing import Any

from attnlaw.core.estimate import Outcome
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.learn.problem import Problem

STABLE = {("tied", "factorized"): "1/(4 t*)", ("tied", "direct"): "1"}


def largest_rate_and_plateau(problem: Problem, schedule: Schedule) -> tuple[float | None, float | None]:
    """The largest stable learning rate and E at the end; None where they are not known.

    >>> from attnlaw.theory.learn.problem import Target
    >>> problem = Problem(target=Target.discrete([1.0]), noise=0.5)
    >>> largest_rate_and_plateau(problem, Schedule([1.0], learning_rate=0.05))
    (0.25, 0.0625)
    """
    if problem.output != "linear" or (problem.attention, problem.student) not in STABLE:
        return None, None
    limit = 1.0 if problem.student == "direct" else 1 / (4 * problem.target.mean)
    z = schedule.learning_rate / limit
    ends = 0 < z < 1 and schedule.decay == 0
    return limit, problem.noise / 2 * z / (1 - z) if ends else None


def stability(problem: Problem, schedule: Schedule, divergence_time: float | None) -> dict[str, Any]:
    """The outcome and the remark of a trajectory that is not stable, or that diverges at `divergence_time`.

    At the limit itself S* is not stable either, unless decay holds it.
    """
    eta, (limit, _) = schedule.learning_rate, largest_rate_and_plateau(problem, schedule)
    if limit is not None and (eta > limit or (eta == limit and schedule.decay == 0)):
        place = "above" if eta > limit else "at"
        name = STABLE[problem.attention, problem.student]
        remark = f"learning rate {place} {name}: S* is not stable; take one below {limit:.3g}"
    elif divergence_time is not None:
        remark = "the noise of its gradient carries the student away; take a smaller learning rate"
    else:
        return {}
    return {"outcome": Outcome.UNSTABLE, "remark": remark}
