"""The factorised student: weights W trained with weight decay, by L-BFGS with a written-out gradient.

arXiv:2509.24914: `S = W W^T / sqrt(m d)`, W of shape (d, m); with kappa = m/d and lt = sqrt(kappa) lambda

    F(W) = R(S) + lambda |W|_F^2 = R(S) + lt d Tr S
    dF/dW = 2 (R'(S) + lt d I) W / sqrt(m d)

For every m at least the rank of the minimiser over positive semidefinite S the two minima agree (linear
output: R is convex in S); here m = d, which always suffices.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from attnlaw.learning.risk import Risk
from attnlaw.learning.sensing import Array
from attnlaw.learning.students.trained import Check, Trained, go_on, optimality_gap, proximal_step

MEMORY = 20
MOST_STEPS = 20_000
GRADIENT = 1e-6


def train_factors(risk: Risk, weight_decay: float, rng: np.random.Generator, check: Check = go_on) -> Trained:
    """Minimise R(W W^T/d) + lt d Tr S over square W from standard Gaussian weights.

    Slow as lt -> 0 below interpolation (steps grow like 1/sqrt(lt)): use `train_splitting` there.

    >>> from attnlaw.learning.risk import Linear
    >>> from attnlaw.learning.sensing import TokenSensing
    >>> x = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    >>> tokens = TokenSensing(x)
    >>> risk = Risk(tokens, Linear(np.ones((3, 1))), tokens.fields(np.diag([2.0, 0.0])))
    >>> trained = train_factors(risk, 1e-3, np.random.default_rng(0))
    >>> trained.converged, trained.matrix.round(2).tolist()
    (True, [[2.0, 0.0], [0.0, 0.0]])
    """
    size = risk.sensing.shape[2]

    def objective(w: Array) -> tuple[float, Array]:
        check()
        return factors_objective(risk, weight_decay, w.reshape(size, size))

    result = minimize(
        objective,
        rng.standard_normal(size * size),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxcor": MEMORY,
            "maxiter": MOST_STEPS,
            "maxfun": 2 * MOST_STEPS,
            "ftol": 0.0,
            # In units of the penalty's own gradient, 2 lt W/d^2; the floor serves lt = 0.
            "gtol": GRADIENT * 2.0 * max(weight_decay, 1e-3) / size**2,
        },
    )
    w = result.x.reshape(size, size)
    matrix = w @ w.T / size
    # One proximal step sets the directions outside the solution, about 1e-8 after L-BFGS, to exactly zero.
    polished = proximal_step(risk, matrix, weight_decay * size, risk.step())
    residual = optimality_gap(risk, polished, weight_decay * size)
    return Trained(polished, residual, int(result.nit), "factors")


def factors_objective(risk: Risk, weight_decay: float, w: Array) -> tuple[float, Array]:
    """F(W)/d^2 and its gradient, flat, for W of shape (d, m)."""
    size, width = w.shape
    scale = 1.0 / np.sqrt(size * width)
    matrix = scale * (w @ w.T)
    value, gradient = risk(matrix)
    value += weight_decay * size * np.trace(matrix)
    gradient = 2.0 * scale * (gradient @ w + weight_decay * size * w)
    return value / size**2, gradient.reshape(-1) / size**2
