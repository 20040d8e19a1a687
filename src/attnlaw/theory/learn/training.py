"""What training a student gives, and the one descent that several solvers use.

| student | problem | solver |
|---|---|---|
| factorized | `R(S) + lambda |W|_F^2 = R(S) + lt d Tr S`, `S = W W^T / sqrt(m d)` | `factor_training` |
| ... its convex form | `min over S >= 0 of R(S) + lt d Tr S` | `convex_training` |
| ... untied | `R(S) + lt d |S|_*`, `S = W_Q W_K^T / sqrt(m d)` | `untied_training` |
| direct | `min over symmetric S of R(S) + lambda d |S|_F^2` | `direct_training` |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from attnlaw.theory.learn.sensing import Array

Check = Callable[[], None]
"""Called in every step of a solver; raises where training is to end."""

RESIDUAL = 1e-4
"""A training run with a larger residual is reported as not converged."""

TOLERANCE = 1e-10
MEMORY = 20
MOST_STEPS = 20_000


def never_stop() -> None:
    """The check of a training run that nobody ends."""


@dataclass(frozen=True)
class Trained:
    """A trained matrix S (d, d), the residual of its optimality condition, steps and the solver's name."""

    matrix: Array
    residual: float
    steps: int
    solver: str

    @property
    def converged(self) -> bool:
        """Whether the residual is at most 1e-4."""
        return self.residual <= RESIDUAL


def relative_move(after: Array, before: Array) -> float:
    """|after - before|_F over the larger norm, 0 if both vanish."""
    scale = max(float(np.linalg.norm(after)), float(np.linalg.norm(before)))
    return float(np.linalg.norm(after - before)) / scale if scale else 0.0


def descend(
    objective: Callable[[Array], tuple[float, Array]], start: Array, tolerance: float, check: Check
) -> tuple[Array, int]:
    """L-BFGS until no entry of the gradient passes `tolerance`: where it ended, and its steps."""

    def checked(w: Array) -> tuple[float, Array]:
        check()
        return objective(w)

    result = minimize(
        checked,
        start,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxcor": MEMORY,
            "maxiter": MOST_STEPS,
            "maxfun": 2 * MOST_STEPS,
            "ftol": 0.0,
            "gtol": tolerance,
        },
    )
    return np.asarray(result.x), int(result.nit)
