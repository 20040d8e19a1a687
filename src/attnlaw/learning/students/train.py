"""Which solver trains which student.

| student | output, regime | solver |
|---|---|---|
| factorized | any | `train_factors`, L-BFGS on the weights W |
| factorized | linear, weight decay below 0.02, below interpolation | `train_splitting` on S |
| direct | linear | conjugate gradients on S |
| direct | softmax | L-BFGS on S |

The factorised student and the convex one have the same minimum; L-BFGS on W needs steps like 1/sqrt(lt), so
the small weight decays that stand for the limit lt -> 0 are solved in their convex form. Where splitting does
not converge, beyond interpolation, L-BFGS is fast again and takes over.
"""

from __future__ import annotations

import numpy as np

from attnlaw.learning.problem import Problem
from attnlaw.learning.risk import Linear, Risk
from attnlaw.learning.students.convex import train_splitting
from attnlaw.learning.students.direct import train_direct
from attnlaw.learning.students.factors import train_factors
from attnlaw.learning.students.trained import Check, Trained, go_on

SMALL_WEIGHT_DECAY = 0.02


def train(problem: Problem, risk: Risk, rng: np.random.Generator, check: Check = go_on) -> Trained:
    """Train the problem's student on the data in `risk`; what `check` raises in a step ends it.

    >>> from attnlaw.learning.sensing import draw_sensing
    >>> rng = np.random.default_rng(0)
    >>> sensing = draw_sensing("tokens", samples=200, tokens=1, size=10, rng=rng)
    >>> risk = Risk(sensing, Linear(np.ones((200, 1))), sensing.fields(np.eye(10)))
    >>> train(Problem(alpha=2.0, weight_decay=1e-3), risk, rng).matrix.trace().round(1).item()
    10.0
    """
    if problem.student == "direct":
        return train_direct(risk, problem.weight_decay, check)
    small = 0 < problem.weight_decay < SMALL_WEIGHT_DECAY and isinstance(risk.output, Linear)
    size = risk.sensing.shape[2]
    if small and risk.labels.size < size * (size + 1) // 2:
        trained = train_splitting(risk, problem.weight_decay, check)
        if trained.converged:
            return trained
    return train_factors(risk, problem.weight_decay, rng, check)
