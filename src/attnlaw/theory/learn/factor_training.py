"""Training the factor of the factorised student: L-BFGS on W, `S = W W^T / sqrt(m d)`.

arXiv:2509.24914: W of shape (d, m), kappa = m/d, lt = sqrt(kappa) lambda,

    F(W) = R(S) + lambda |W|_F^2 = R(S) + lt d Tr S,    dF/dW = 2 (R'(S) + lt d I) W / sqrt(m d).

For every m at least the rank of the minimiser over S >= 0 this and `convex_training` have the same minimum
(linear output: R is convex in S). `train_factors` has m = d, which always suffices; `train_narrow` has less.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnlaw.theory.learn.convex_training import optimality_gap, proximal_step
from attnlaw.theory.learn.risk import Risk
from attnlaw.theory.learn.sensing import Array
from attnlaw.theory.learn.training import Check, Trained, descend, never_stop

GRADIENT = 1e-6
STARTS = 3


def train_factors(
    risk: Risk, weight_decay: float, rng: np.random.Generator, check: Check = never_stop
) -> Trained:
    """Minimise R(W W^T/d) + lt d Tr S over square W from standard Gaussian weights.

    Slow as lt -> 0 below interpolation (steps grow like 1/sqrt(lt)): use `train_splitting` there.

    >>> from attnlaw.theory.learn.risk import Linear
    >>> from attnlaw.theory.learn.sensing import TokenSensing
    >>> x = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    >>> tokens = TokenSensing(x)
    >>> risk = Risk(tokens, Linear(np.ones((3, 1))), tokens.fields(np.diag([2.0, 0.0])))
    >>> trained = train_factors(risk, 1e-3, np.random.default_rng(0))
    >>> trained.converged, trained.matrix.round(2).tolist()
    (True, [[2.0, 0.0], [0.0, 0.0]])
    """
    size = risk.sensing.shape[2]
    flat, steps = descend_factors(
        lambda w: factors_objective(risk, weight_decay, w.reshape(size, size)),
        rng.standard_normal(size * size),
        weight_decay,
        size,
        check,
    )
    w = flat.reshape(size, size)
    matrix = w @ w.T / size
    # One proximal step sets the directions outside the solution, about 1e-8 after L-BFGS, to exactly zero.
    polished = proximal_step(risk, matrix, weight_decay * size, risk.step())
    residual = optimality_gap(risk, polished, weight_decay * size)
    return Trained(polished, residual, steps, "factors")


def descend_factors(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array,
    weight_decay: float,
    size: int,
    check: Check,
) -> tuple[Array, int]:
    """L-BFGS on flat factors of a (size, size) matrix: where it ended, and its steps."""
    # In units of the penalty's own gradient, 2 lt W/d^2; the floor serves lt = 0.
    tolerance = GRADIENT * 2.0 * max(weight_decay, 1e-3) / size**2
    return descend(objective, start, tolerance, check)


def train_narrow(
    objective: Callable[[Array], tuple[float, Array]],
    product: Callable[[Array], Array],
    count: int,
    weight_decay: float,
    size: int,
    rng: np.random.Generator,
    check: Check,
) -> Trained:
    """The best of `STARTS` descents on `count` entries of factors narrower than what they would learn.

    The loss is not convex in S there, and starts may end apart. The residual is `|gradient| |w| / F`: what a
    step of the length of w could still gain.
    """
    starts = [rng.standard_normal(count) for _ in range(STARTS)]
    ends = [descend_factors(objective, start, weight_decay, size, check) for start in starts]
    flat, steps = min(ends, key=lambda end: objective(end[0])[0])
    value, gradient = objective(flat)
    residual = float(np.linalg.norm(gradient) * np.linalg.norm(flat)) / value if value else 0.0
    return Trained(product(flat), residual, steps, "narrow factors")


def factors_objective(risk: Risk, weight_decay: float, w: Array) -> tuple[float, Array]:
    """F(W)/d^2 and its gradient, flat, for W of shape (d, m)."""
    size, width = w.shape
    scale = 1.0 / np.sqrt(size * width)
    matrix = scale * (w @ w.T)
    value, gradient = risk(matrix)
    value += weight_decay * size * np.trace(matrix)
    gradient = 2.0 * scale * (gradient @ w + weight_decay * size * w)
    return value / size**2, gradient.reshape(-1) / size**2
