"""Training two factors, `S = W_Q W_K^T / sqrt(m d)`, and the convex problem that has the same minimum.

`F = R(S) + lambda (|W_Q|_F^2 + |W_K|_F^2) = R(S) + lt d |S|_*` at its minimum over factors of the same
product, `lt = 2 sqrt(kappa) lambda`, kappa = m/d (Srebro, Rennie and Jaakkola 2004). For every m at least the
rank of the minimiser over all S both have the same minimum.

A minimiser S has `Tr(G^T S) + lt d |S|_* = 0` and `|G|_op <= lt d` for `G = R'(S)`, and for convex R and
every tau >= |S_min|_*

    F(S) - F(S_min) <= Tr(G^T S) + lt d |S|_* + tau max(0, |G|_op - lt d),

whose right side over F(S) is the residual, tau = 2 |S|_*, as for positive semidefinite S (`convex_training`).
"""

from __future__ import annotations

import numpy as np

from attnlaw.theory.learn.factor_training import descend_factors
from attnlaw.theory.learn.risk import Risk
from attnlaw.theory.learn.sensing import Array
from attnlaw.theory.learn.training import Check, Trained, never_stop


def shrink_singular_values(matrix: Array, tau: float) -> Array:
    """The matrix with its singular values lowered by tau, none below zero.

    >>> shrink_singular_values(np.array([[0.0, 3.0], [1.0, 0.0]]), 2.0).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    left, values, right = np.linalg.svd(matrix)
    kept = values > tau
    return np.asarray((left[:, kept] * (values[kept] - tau)) @ right[kept])


def nuclear_gap(risk: Risk, matrix: Array, shift: float) -> float:
    """The bound above on what F(S) can still lose, relative to F(S), with `shift = lt d`."""
    value, gradient = risk(matrix)
    norm = float(np.linalg.svd(matrix, compute_uv=False).sum())
    total = value + shift * norm
    bound = 2.0 * norm if norm > 0 or not shift else total / shift
    excess = max(0.0, float(np.linalg.norm(gradient, 2)) - shift)
    gap = abs(float(np.vdot(gradient, matrix)) + shift * norm) + bound * excess
    return gap / total if total else 0.0


def train_pair_factors(
    risk: Risk, weight_decay: float, rng: np.random.Generator, check: Check = never_stop
) -> Trained:
    """Minimise R(W_Q W_K^T/d) + lt d |S|_* over square factors from standard Gaussian weights.

    >>> from attnlaw.theory.learn.untied_sensing import draw_squares
    >>> from attnlaw.theory.learn.risk import Linear
    >>> rng = np.random.default_rng(0)
    >>> data = draw_squares(40, 1, "cross", 4, rng)
    >>> target = np.outer([2.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0])
    >>> risk = Risk(data, Linear(np.ones((40, 1)), ordered=True), data.fields(target))
    >>> trained = train_pair_factors(risk, 1e-3, rng)
    >>> trained.converged, float(np.abs(trained.matrix - target).max().round(2))
    (True, 0.0)
    """
    size = risk.sensing.shape[2]
    start = rng.standard_normal(2 * size * size)
    flat, steps = descend_factors(
        lambda w: pair_objective(risk, weight_decay, w), start, weight_decay, size, check
    )
    matrix = pair_matrix(flat, size)
    # One proximal step sets the directions outside the solution, about 1e-8 after L-BFGS, to exactly zero.
    step = risk.step()
    polished = shrink_singular_values(matrix - step * risk(matrix)[1], step * weight_decay * size)
    residual = nuclear_gap(risk, polished, weight_decay * size)
    return Trained(polished, residual, steps, "factors")


def pair_matrix(w: Array, size: int) -> Array:
    """`W_Q W_K^T / sqrt(m d)` of flat factors."""
    first, second = w.reshape(2, size, -1)
    return np.asarray(first @ second.T / np.sqrt(size * first.shape[1]))


def pair_objective(risk: Risk, weight_decay: float, w: Array) -> tuple[float, Array]:
    """F/d^2 and its gradient, flat, for W_Q and W_K of shape (d, m), one after the other."""
    size = risk.sensing.shape[2]
    first, second = w.reshape(2, size, -1)
    scale = 1.0 / np.sqrt(size * first.shape[1])
    value, gradient = risk(scale * (first @ second.T))
    # lambda = lt / (2 sqrt(kappa)) = lt d scale / 2
    decay = weight_decay * size * scale / 2
    value += decay * float(w @ w)
    slopes = scale * np.stack([gradient @ second, gradient.T @ first]) + 2 * decay * np.stack([first, second])
    return value / size**2, slopes.reshape(-1) / size**2
