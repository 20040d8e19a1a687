"""FISTA with restarts, an independent route to the factorized student's matrix (arXiv 1204.3982)."""

from __future__ import annotations

import numpy as np

from attnlaw.theory.learn.risk import Risk
from attnlaw.theory.learn.solvers import optimality_gap, proximal_step
from attnlaw.theory.learn.training import TOLERANCE, Trained, relative_move

MOST_PROXIMAL_STEPS = 20_000


def train_proximal(risk: Risk, weight_decay: float) -> Trained:
    """Minimise by FISTA with restarts from S = 0, with steps of 1/curvature."""
    size = risk.sensing.shape[2]
    step = risk.step()
    matrix = ahead = np.zeros((size, size))
    momentum, move, steps = 1.0, np.inf, 0
    while move > TOLERANCE and steps < MOST_PROXIMAL_STEPS:
        following = proximal_step(risk, ahead, weight_decay * size, step)
        move = relative_move(following, ahead)
        if np.vdot(ahead - following, following - matrix) > 0:
            momentum = 1.0
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = following + (momentum - 1.0) / grown * (following - matrix)
        matrix, momentum, steps = following, grown, steps + 1
    return Trained(matrix, optimality_gap(risk, matrix, weight_decay * size), steps, "proximal")
