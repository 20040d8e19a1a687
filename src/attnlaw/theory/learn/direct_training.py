"""Training the direct student: `min over symmetric S of R(S) + lambda d |S|_F^2` (untied over any S).

Conjugate gradients where the loss is quadratic, else L-BFGS; up to a time, gradient flow exactly.
"""

from __future__ import annotations

import numpy as np

from attnlaw.theory.learn.risk import Risk, linear_output
from attnlaw.theory.learn.sensing import Array
from attnlaw.theory.learn.training import (
    MOST_STEPS,
    TOLERANCE,
    Check,
    Trained,
    descend,
    never_stop,
    relative_move,
)


def train_direct(risk: Risk, weight_decay: float, check: Check = never_stop) -> Trained:
    """The ridge student; the residual is the relative move of one gradient step of safe length.

    >>> from attnlaw.theory.learn.risk import Linear
    >>> from attnlaw.theory.learn.sensing import TokenSensing
    >>> tokens = TokenSensing(np.array([[[1.0, 0.0]]]))
    >>> risk = Risk(tokens, Linear(np.ones((1, 1))), np.array([[np.sqrt(2.0)]]))  # S_11 - Tr S = 2
    >>> train_direct(risk, 0.0).matrix.round(12).tolist()
    [[0.0, 0.0], [0.0, -2.0]]
    """
    solve = _conjugate_gradients if risk.output.quadratic else _descent
    matrix, steps = solve(risk, weight_decay, check)
    ridge = 2.0 * weight_decay * len(matrix)
    step = 1.0 / (1.0 / risk.step() + ridge)
    moved = matrix - step * (risk(matrix)[1] + ridge * matrix)
    return Trained(matrix, relative_move(moved, matrix), steps, "direct")


def train_flow(risk: Risk, weight_decay: float, time: float, check: Check = never_stop) -> Trained:
    """Gradient flow `dS/dt = -(R'(S) + 2 lambda d S)/(2d)` from S = 0, by the Gram matrix's eigenvalues.

    `S(t) = B^T (1 - exp(-(K + lambda) t))/(K + lambda) y`, B the fields scaled by the root of the loss
    weights over d, K = B B^T: exact, so its residual is 0.

    >>> from attnlaw.theory.learn.risk import Linear
    >>> from attnlaw.theory.learn.sensing import TokenSensing
    >>> tokens = TokenSensing(np.array([[[1.0, 0.0]]]))
    >>> risk = Risk(tokens, Linear(np.ones((1, 1))), np.array([[np.sqrt(2.0)]]))
    >>> train_flow(risk, 0.0, 1e9).matrix.round(12).tolist()  # the end is the ridge's
    [[0.0, 0.0], [0.0, -2.0]]
    """
    output = linear_output(risk, "flow", "use train_direct")
    _, tokens, size = risk.sensing.shape
    scale = np.sqrt(0.5 * output.curvature(tokens) / size)
    kernel = risk.sensing.gram() * (scale.reshape(-1, 1) * scale.reshape(-1))
    check()
    rates, vectors = np.linalg.eigh(kernel)
    speed = np.maximum(rates, 0.0) + weight_decay
    moved = np.where(speed > 0, -np.expm1(-speed * time) / np.where(speed > 0, speed, 1.0), time)
    dual = vectors @ (moved * (vectors.T @ (scale * risk.labels).reshape(-1)))
    matrix = risk.sensing.adjoint(scale * dual.reshape(scale.shape))
    return Trained(matrix, 0.0, 1, "flow")


def _conjugate_gradients(risk: Risk, weight_decay: float, check: Check) -> tuple[Array, int]:
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


def _descent(risk: Risk, weight_decay: float, check: Check) -> tuple[Array, int]:
    size = risk.sensing.shape[2]

    def objective(flat: Array) -> tuple[float, Array]:
        matrix = flat.reshape(size, size)
        value, gradient = risk(matrix)
        value += weight_decay * size * float(np.vdot(matrix, matrix))
        return value / size**2, (gradient + 2.0 * weight_decay * size * matrix).reshape(-1) / size**2

    # From a symmetric start every iterate stays symmetric: the gradient is symmetric.
    flat, steps = descend(objective, np.zeros(size * size), TOLERANCE, check)
    matrix = flat.reshape(size, size)
    return 0.5 * (matrix + matrix.T), steps
