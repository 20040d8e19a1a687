"""The same student as a convex problem: positive semidefinite S with a nuclear-norm penalty.

    min over S >= 0 of R(S) + lt d Tr S

Two solvers: accelerated proximal gradient (FISTA, Beck and Teboulle 2009, restarted when the momentum points
uphill, O'Donoghue and Candes 2015, arXiv:1204.3982), for any output; and Douglas-Rachford splitting with the
exact proximal map of the quadratic risk, for the linear output with fewer observations than unknowns, which
keeps its speed as lt -> 0 where first-order methods stall.

| letter | meaning |
|---|---|
| A | fields, scaled by the square root of the loss weights: R(S) = |y - A S|^2 |
| K | A A^T, the Gram matrix of the sensing matrices, (nP, nP) |
| tau | eigenvalues are shrunk by tau in each splitting step; tau = rho lt d for the proximal parameter rho |
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from attnlaw.base.errors import InputError
from attnlaw.learning.risk import Linear, Risk
from attnlaw.learning.students.trained import (
    Check,
    Trained,
    go_on,
    optimality_gap,
    positive_part,
    proximal_step,
    relative_move,
)

TOLERANCE = 1e-10
MOST_PROXIMAL_STEPS, MOST_SPLITTING_STEPS = 20_000, 3_000
OVERRELAXATION = 1.6


def train_proximal(risk: Risk, weight_decay: float) -> Trained:
    """FISTA with restarts from S = 0, step 1/curvature.

    >>> from attnlaw.learning.sensing import TokenSensing
    >>> tokens = TokenSensing(np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]))
    >>> risk = Risk(tokens, Linear(np.ones((3, 1))), tokens.fields(np.diag([2.0, 0.0])))
    >>> trained = train_proximal(risk, 1e-3)
    >>> trained.converged, trained.matrix.round(2).tolist()
    (True, [[2.0, 0.0], [0.0, 0.0]])
    """
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


def train_splitting(risk: Risk, weight_decay: float, check: Check = go_on) -> Trained:
    """Douglas-Rachford: the risk's proximal map by one Cholesky factor of K + lt d/(2 tau), then shrinkage.

    Its limit lt -> 0 is the interpolator of least trace. Needs the linear output and fewer observations than
    d(d+1)/2, else K is singular; where no S >= 0 fits the data (beyond interpolation) a tiny lt does not
    converge. Memory and set-up grow like (nP)^2 and (nP)^3.

    >>> from attnlaw.learning.sensing import TokenSensing
    >>> tokens = TokenSensing(np.array([[[1.0, 0.0], [0.0, 1.0]]]))
    >>> risk = Risk(tokens, Linear(np.ones((2, 1))), tokens.fields(np.diag([2.0, 0.0])))
    >>> trained = train_splitting(risk, 1e-9)  # Tr S - S_11 = 0 and Tr S - S_22 = 2
    >>> trained.converged, trained.matrix.round(6).tolist()
    (True, [[2.0, 0.0], [0.0, 0.0]])
    """
    if not isinstance(risk.output, Linear):
        raise InputError("splitting: the output is not linear; use train_proximal or the factorized student")
    samples, tokens, size = risk.sensing.shape
    scale = np.sqrt(0.5 * risk.output.curvature(tokens))
    labels = scale * risk.labels
    tau = 0.4 * float(np.sqrt(np.mean(risk.labels**2))) or 1.0
    kernel = risk.sensing.gram()
    kernel *= scale.reshape(-1, 1) * scale.reshape(-1)
    kernel[np.diag_indices_from(kernel)] += weight_decay * size / (2.0 * tau)
    check()
    factor = cho_factor(kernel, lower=True, overwrite_a=True, check_finite=False)
    state = matrix = np.zeros((size, size))
    residual, steps = np.inf, 0
    while residual > TOLERANCE and steps < MOST_SPLITTING_STEPS:
        check()
        gap = (labels - scale * risk.sensing.fields(state)).reshape(-1)
        dual = cho_solve(factor, gap, check_finite=False).reshape(samples, -1)
        fitted = state + risk.sensing.adjoint(scale * dual)
        matrix = positive_part(2.0 * fitted - state - tau * np.eye(size))
        residual = relative_move(matrix, fitted)
        state = state + OVERRELAXATION * (matrix - fitted)
        steps += 1
    return Trained(matrix, residual, steps, "splitting")
