"""The direct student: any symmetric S with a ridge, the baseline without the factorisation's inductive bias.

    min over symmetric S of R(S) + lambda d |S|_F^2           (arXiv:2509.24914)

Linear output: the normal equations `R''(S) + 2 lambda d S = -R'(0)` by conjugate gradients in the space of
matrices, started at zero, so that lambda = 0 gives the limit lambda -> 0. Softmax: L-BFGS.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from attnlaw.learning.risk import Linear, Risk
from attnlaw.learning.sensing import Array
from attnlaw.learning.students.trained import Check, Trained, go_on, relative_move

TOLERANCE = 1e-10
MOST_STEPS = 20_000


def train_direct(risk: Risk, weight_decay: float, check: Check = go_on) -> Trained:
    """The ridge student; the residual is the relative move of one gradient step of safe length.

    >>> from attnlaw.learning.sensing import TokenSensing
    >>> tokens = TokenSensing(np.array([[[1.0, 0.0]]]))
    >>> risk = Risk(tokens, Linear(np.ones((1, 1))), np.array([[np.sqrt(2.0)]]))  # S_11 - Tr S = 2
    >>> train_direct(risk, 0.0).matrix.round(12).tolist()
    [[0.0, 0.0], [0.0, -2.0]]
    """
    solve = _linear if isinstance(risk.output, Linear) else _softmax
    matrix, steps = solve(risk, weight_decay, check)
    ridge = 2.0 * weight_decay * len(matrix)
    step = 1.0 / (1.0 / risk.step() + ridge)
    moved = matrix - step * (risk(matrix)[1] + ridge * matrix)
    return Trained(matrix, relative_move(moved, matrix), steps, "direct")


def _linear(risk: Risk, weight_decay: float, check: Check) -> tuple[Array, int]:
    size = risk.sensing.shape[2]
    matrix = np.zeros((size, size))
    gap = -risk(matrix)[1]
    direction, power, steps = gap, float(np.vdot(gap, gap)), 0
    target = TOLERANCE**2 * power
    while power > target and steps < MOST_STEPS:
        check()
        image = risk.curvature(direction) + 2.0 * weight_decay * size * direction
        length = power / float(np.vdot(direction, image))
        matrix = matrix + length * direction
        gap = gap - length * image
        power, previous = float(np.vdot(gap, gap)), power
        direction = gap + power / previous * direction
        steps += 1
    return matrix, steps


def _softmax(risk: Risk, weight_decay: float, check: Check) -> tuple[Array, int]:
    size = risk.sensing.shape[2]

    def objective(flat: Array) -> tuple[float, Array]:
        check()
        matrix = flat.reshape(size, size)
        value, gradient = risk(matrix)
        value += weight_decay * size * float(np.vdot(matrix, matrix))
        return value / size**2, (gradient + 2.0 * weight_decay * size * matrix).reshape(-1) / size**2

    # From a symmetric start every iterate stays symmetric: the gradient is symmetric.
    result = minimize(
        objective,
        np.zeros(size * size),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxcor": 20,
            "maxiter": MOST_STEPS,
            "maxfun": 2 * MOST_STEPS,
            "ftol": 0.0,
            "gtol": TOLERANCE,
        },
    )
    matrix = result.x.reshape(size, size)
    return 0.5 * (matrix + matrix.T), int(result.nit)
