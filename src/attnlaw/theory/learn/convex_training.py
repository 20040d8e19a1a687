"""The convex form of the factorised student: `min over S >= 0 of F(S) = R(S) + lt d Tr S`.

FISTA (Beck and Teboulle 2009) is restarted when the momentum points uphill (O'Donoghue and Candes 2015,
arXiv:1204.3982). Douglas-Rachford splitting has the exact proximal map of the quadratic risk, needs fewer
observations than unknowns, and keeps its speed as lt -> 0 where first-order methods stall. In it A are the
fields, scaled by the root of the loss weights, R(S) = |y - A S|^2, K = A A^T is the Gram matrix (nP, nP), and
eigenvalues are shrunk by tau in each step, tau = rho lt d for the proximal parameter rho.

The gradient of F over S >= 0 is `G = R'(S) + lt d I`. A minimiser has `Tr(G S) = 0` and `G >= 0`, and for
convex R and every tau >= Tr S_min

    F(S) - F(S_min) <= Tr(G S) + tau max(0, -least eigenvalue of G),

whose right side over F(S) is the residual of the gradient solvers, tau = 2 Tr S. A small move per step would
not do: at a tiny lt the steps are tiny far from the minimiser. Splitting reports the relative gap between its
two half-steps, whose penalty moves S by order one however small lt is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from attnlaw.theory.learn.risk import Risk, linear_output
from attnlaw.theory.learn.sensing import Array
from attnlaw.theory.learn.training import TOLERANCE, Check, Trained, never_stop, relative_move

MOST_PROXIMAL_STEPS, MOST_SPLITTING_STEPS = 20_000, 3_000
OVERRELAXATION = 1.6


def positive_part(matrix: Array) -> Array:
    """The symmetric matrix with its negative eigenvalues set to zero, the nearest positive semidefinite one.

    >>> positive_part(np.diag([2.0, -1.0])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 0
    return np.asarray((vectors[:, kept] * values[kept]) @ vectors[:, kept].T)


def proximal_step(risk: Risk, matrix: Array, shift: float, step: float) -> Array:
    """`(S - t (R'(S) + shift I))_+` with `shift = lt d`: directions outside the solution become zero."""
    return positive_part(matrix - step * (risk(matrix)[1] + shift * np.eye(len(matrix))))


def optimality_gap(risk: Risk, matrix: Array, shift: float) -> float:
    """The bound above on what F(S) can still lose, relative to F(S), with `shift = lt d`.

    >>> from attnlaw.theory.learn.risk import Linear
    >>> from attnlaw.theory.learn.sensing import TokenSensing
    >>> tokens = TokenSensing(np.array([[[1.0, 0.0]]]))
    >>> risk = Risk(tokens, Linear(np.ones((1, 1))), tokens.fields(np.diag([0.0, 1.0])))
    >>> optimality_gap(risk, np.diag([0.0, 0.9]), shift=0.1) < 1e-12  # (1 - s)^2/2 + s/10 at its minimum
    True
    """
    value, gradient = risk(matrix)
    slack = gradient + shift * np.eye(len(matrix))
    trace = float(np.trace(matrix))
    total = value + shift * trace
    bound = 2.0 * trace if trace > 0 or not shift else total / shift
    gap = abs(float(np.vdot(slack, matrix))) + bound * max(0.0, -float(np.linalg.eigvalsh(slack)[0]))
    return gap / total if total else 0.0


def train_proximal(risk: Risk, weight_decay: float) -> Trained:
    """FISTA with restarts from S = 0, step 1/curvature.

    >>> from attnlaw.theory.learn.risk import Linear
    >>> from attnlaw.theory.learn.sensing import TokenSensing
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


def shrink_eigenvalues(matrix: Array, tau: float) -> Array:
    """The positive semidefinite matrix of `(x - tau)_+` for each eigenvalue x."""
    return positive_part(matrix - tau * np.eye(len(matrix)))


def train_splitting(
    risk: Risk,
    weight_decay: float,
    check: Check = never_stop,
    shrink: Callable[[Array, float], Array] = shrink_eigenvalues,
) -> Trained:
    """Douglas-Rachford: the risk's proximal map by one Cholesky factor of K + lt d/(2 tau), then shrinkage.

    Its limit lt -> 0 is the interpolator of least trace (of least nuclear norm where `shrink` acts on
    singular values). Needs the linear output and fewer observations than unknowns, d(d+1)/2 (untied d^2),
    else K is singular; where no S >= 0 fits the data (beyond interpolation) a tiny lt does not converge.
    Memory and set-up grow like (nP)^2 and (nP)^3.

    >>> from attnlaw.theory.learn.risk import Linear
    >>> from attnlaw.theory.learn.sensing import TokenSensing
    >>> tokens = TokenSensing(np.array([[[1.0, 0.0], [0.0, 1.0]]]))
    >>> risk = Risk(tokens, Linear(np.ones((2, 1))), tokens.fields(np.diag([2.0, 0.0])))
    >>> trained = train_splitting(risk, 1e-9)  # Tr S - S_11 = 0 and Tr S - S_22 = 2
    >>> trained.converged, trained.matrix.round(6).tolist()
    (True, [[2.0, 0.0], [0.0, 0.0]])
    """
    output = linear_output(risk, "splitting", "use train_proximal or the factorized student")
    samples, tokens, size = risk.sensing.shape
    scale = np.sqrt(0.5 * output.curvature(tokens))
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
        matrix = shrink(2.0 * fitted - state, tau)
        residual = relative_move(matrix, fitted)
        state = state + OVERRELAXATION * (matrix - fitted)
        steps += 1
    return Trained(matrix, residual, steps, "splitting")
