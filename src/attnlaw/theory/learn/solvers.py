"""Solvers that train students: one for each student and form of its problem.

S is the matrix that is trained, R(S) its risk without the penalty (`attnlaw.theory.learn.risk`), and W, of m
columns, are its factors. Other letters are explained in `attnlaw.theory.learn.problem`.

| student | problem | solver |
|---|---|---|
| factorized | `R(S) + lambda |W|_F^2 = R(S) + lt d Tr S`, `S = W W^T / sqrt(m d)` | `train_factors` |
| ... narrow | the same with fewer columns than the solution has rank | `train_narrow` |
| ... its convex form | `min over S >= 0 of R(S) + lt d Tr S` | `train_splitting` |
| ... untied | `R(S) + lt d |S|_*`, `S = W_Q W_K^T / sqrt(m d)` | `train_factors` with `PAIR_FACTORS` |
| direct | `min over symmetric S of R(S) + lambda d |S|_F^2` (untied: over any S) | `train_direct` |
| ... up to a time | gradient flow of the same problem | `train_flow` |

Factors (arXiv 2509.24914): W has shape (d, m), kappa = m/d, lt = sqrt(kappa) lambda, and

    F(W) = R(S) + lambda |W|_F^2 = R(S) + lt d Tr S,    dF/dW = 2 (R'(S) + lt d I) W / sqrt(m d).

If m is at least the rank of the minimiser over S >= 0, this and the convex form have the same minimum (linear
output: R is convex in S). Untied factors have `F = R(S) + lambda (|W_Q|_F^2 + |W_K|_F^2) = R(S) + lt d |S|_*`
at the minimum over factors of the same product, `lt = 2 sqrt(kappa) lambda` (Srebro, Rennie and Jaakkola
2004), and the same holds for them.

Convex form: Douglas-Rachford splitting with
the exact proximal map of the quadratic risk, which keeps its speed as lt -> 0. A are the fields, scaled by
the root of the loss weights, so that R(S) = |y - A S|^2, and K = A A^T is the Gram matrix (nP, nP). Each step
shrinks eigenvalues by tau = rho lt d for the proximal parameter rho.

Residuals: the gradient of F over S >= 0 is `G = R'(S) + lt d I`. A minimiser has `Tr(G S) = 0` and `G >= 0`.
For convex R and every tau >= Tr S_min

    F(S) - F(S_min) <= Tr(G S) + tau max(0, -least eigenvalue of G).

The residual of the gradient solvers is the right side over F(S), with tau = 2 Tr S. A small move per step
would not do: at a tiny lt the steps are tiny far from the minimiser. For untied factors `G = R'(S)` and

    F(S) - F(S_min) <= Tr(G^T S) + lt d |S|_* + tau max(0, |G|_op - lt d),    tau = 2 |S|_*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.theory.learn.risk import Risk
from attnlaw.theory.learn.training import (
    MOST_STEPS,
    TOLERANCE,
    Check,
    Trained,
    descend,
    never_stop,
    relative_move,
)

MOST_SPLITTING_STEPS = 3_000
OVERRELAXATION = 1.6


def positive_part(matrix: Reals) -> Reals:
    """Return a symmetric matrix with its negative eigenvalues replaced by zero."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 0
    return np.asarray((vectors[:, kept] * values[kept]) @ vectors[:, kept].T)


def proximal_step(risk: Risk, matrix: Reals, shift: float, step: float) -> Reals:
    """Return the result of a proximal gradient step, `(S - t (R'(S) + shift I))_+` with t = `step`."""
    return positive_part(matrix - step * (risk(matrix)[1] + shift * np.eye(len(matrix))))


def optimality_gap(risk: Risk, matrix: Reals, shift: float) -> float:
    """Return a bound on how much lower F can be than F(S) for any S >= 0, relative to F(S)."""
    value, gradient = risk(matrix)
    slack = gradient + shift * np.eye(len(matrix))
    trace = float(np.trace(matrix))
    total = value + shift * trace
    bound = 2.0 * trace if trace > 0 or not shift else total / shift
    gap = abs(float(np.vdot(slack, matrix))) + bound * max(0.0, -float(np.linalg.eigvalsh(slack)[0]))
    return gap / total if total else 0.0


def shrink_eigenvalues(matrix: Reals, tau: float) -> Reals:
    """Return the matrix with every eigenvalue x replaced by `(x - tau)_+`."""
    return positive_part(matrix - tau * np.eye(len(matrix)))


def train_splitting(
    risk: Risk,
    weight_decay: float,
    check: Check = never_stop,
    shrink: Callable[[Reals, float], Reals] = shrink_eigenvalues,
) -> Trained:
    """Minimise the penalised risk by Douglas-Rachford splitting.

    As the weight decay goes to 0, the result is the matrix of least trace (or nuclear norm) that fits all
    labels. Memory grows like (nP)^2, and the time to start like (nP)^3. The method needs a linear output and
    fewer observations than unknowns. If no S >= 0 fits all labels, a tiny weight decay does not converge.
    """
    samples, tokens, size = risk.sensing.shape
    scale = np.sqrt(0.5 * risk.output.curvature(tokens))
    labels = scale * risk.labels
    tau = 0.4 * float(np.sqrt(np.mean(risk.labels**2))) or 1.0
    kernel = risk.sensing.gram()
    kernel *= scale.reshape(-1, 1) * scale.reshape(-1)
    kernel[np.diag_indices_from(kernel)] += weight_decay * size / (2.0 * tau)
    check()
    factor = scipy.linalg.cho_factor(kernel, lower=True, overwrite_a=True, check_finite=False)
    state = matrix = np.zeros((size, size))
    residual, steps = np.inf, 0
    while residual > TOLERANCE and steps < MOST_SPLITTING_STEPS:
        check()
        gap = (labels - scale * risk.sensing.fields(state)).reshape(-1)
        dual = scipy.linalg.cho_solve(factor, gap, check_finite=False).reshape(samples, -1)
        fitted = state + risk.sensing.adjoint(scale * dual)
        matrix = shrink(2.0 * fitted - state, tau)
        residual = relative_move(matrix, fitted)
        state = state + OVERRELAXATION * (matrix - fitted)
        steps += 1
    return Trained(matrix, residual, steps, "splitting")


GRADIENT = 1e-6
STARTS = 3


def train_factors(
    risk: Risk,
    weight_decay: float,
    rng: np.random.Generator,
    check: Check = never_stop,
    form: FactorForm | None = None,
) -> Trained:
    """Minimise the penalised risk over square factors by L-BFGS, from Gaussian weights."""
    size, form = risk.sensing.shape[2], form or TIED_FACTORS
    start = rng.standard_normal(form.count * size * size)
    flat, steps = _descend_factors(form, risk, weight_decay, start, check)
    # One proximal step sets the directions outside the solution, about 1e-8 after L-BFGS, to exactly zero.
    polished = form.proximal_step(risk, form.product(flat, size), weight_decay * size, risk.step())
    return Trained(polished, form.gap(risk, polished, weight_decay * size), steps, "factors")


def train_narrow(
    risk: Risk, weight_decay: float, width: int, rng: np.random.Generator, check: Check, form: FactorForm
) -> Trained:
    """Train factors that are narrower than the rank they would learn, and return the best of `STARTS` runs.

    The residual `|gradient| |w| / F` estimates how much F could still fall.
    """
    size = risk.sensing.shape[2]
    starts = [rng.standard_normal(form.count * size * width) for _ in range(STARTS)]
    ends = [_descend_factors(form, risk, weight_decay, start, check) for start in starts]
    flat, steps = min(ends, key=lambda end: form.objective(risk, weight_decay, end[0])[0])
    value, gradient = form.objective(risk, weight_decay, flat)
    residual = float(np.linalg.norm(gradient) * np.linalg.norm(flat)) / value if value else 0.0
    return Trained(form.product(flat, size), residual, steps, "narrow factors")


def _descend_factors(
    form: FactorForm, risk: Risk, weight_decay: float, start: Reals, check: Check
) -> tuple[Reals, int]:
    # In units of the penalty's gradient, 2 lt W/d^2. The floor is for lt = 0.
    tolerance = GRADIENT * 2.0 * max(weight_decay, 1e-3) / risk.sensing.shape[2] ** 2
    return descend(lambda w: form.objective(risk, weight_decay, w), start, tolerance, check)


def factors_objective(risk: Risk, weight_decay: float, w: Reals) -> tuple[float, Reals]:
    """Return F(W)/d^2 and its gradient as a flat array, for factors W of shape (d, m) or flat."""
    size = risk.sensing.shape[2]
    w = w.reshape(size, -1)
    scale = 1.0 / np.sqrt(size * w.shape[1])
    matrix = scale * (w @ w.T)
    value, gradient = risk(matrix)
    value += weight_decay * size * np.trace(matrix)
    gradient = 2.0 * scale * (gradient @ w + weight_decay * size * w)
    return value / size**2, gradient.reshape(-1) / size**2


def _tied_product(w: Reals, size: int) -> Reals:
    w = w.reshape(size, -1)
    return np.asarray(w @ w.T / (size * w.shape[1]) ** 0.5)


def train_direct(risk: Risk, weight_decay: float, check: Check = never_stop) -> Trained:
    """Train the direct student: by conjugate gradients if the loss is quadratic, else by L-BFGS."""
    solve = _conjugate_gradients if risk.output.quadratic else _descent
    matrix, steps = solve(risk, weight_decay, check)
    ridge = 2.0 * weight_decay * len(matrix)
    step = 1.0 / (1.0 / risk.step() + ridge)
    moved = matrix - step * (risk(matrix)[1] + ridge * matrix)
    return Trained(matrix, relative_move(moved, matrix), steps, "direct")


def train_flow(risk: Risk, weight_decay: float, time: float, check: Check = never_stop) -> Trained:
    """Follow the gradient flow `dS/dt = -(R'(S) + 2 lambda d S)/(2d)` from S = 0 up to a time.

    The solution is `S(t) = B^T (1 - exp(-(K + lambda) t))/(K + lambda) y`. Here B maps S to its scores,
    scaled by the root of the loss weights over d, and K = B B^T. It is exact, so the residual is 0.
    """
    _, tokens, size = risk.sensing.shape
    scale = np.sqrt(0.5 * risk.output.curvature(tokens) / size)
    kernel = risk.sensing.gram() * (scale.reshape(-1, 1) * scale.reshape(-1))
    check()
    rates, vectors = np.linalg.eigh(kernel)
    speed = np.maximum(rates, 0.0) + weight_decay
    moved = np.where(speed > 0, -np.expm1(-speed * time) / np.where(speed > 0, speed, 1.0), time)
    dual = vectors @ (moved * (vectors.T @ (scale * risk.labels).reshape(-1)))
    matrix = risk.sensing.adjoint(scale * dual.reshape(scale.shape))
    return Trained(matrix, 0.0, 1, "flow")


def _conjugate_gradients(risk: Risk, weight_decay: float, check: Check) -> tuple[Reals, int]:
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


def _descent(risk: Risk, weight_decay: float, check: Check) -> tuple[Reals, int]:
    size = risk.sensing.shape[2]

    def objective(flat: Reals) -> tuple[float, Reals]:
        matrix = flat.reshape(size, size)
        value, gradient = risk(matrix)
        value += weight_decay * size * float(np.vdot(matrix, matrix))
        return value / size**2, (gradient + 2.0 * weight_decay * size * matrix).reshape(-1) / size**2

    # Every iterate stays symmetric, because the start and the gradient are symmetric.
    flat, steps = descend(objective, np.zeros(size * size), TOLERANCE, check)
    matrix = flat.reshape(size, size)
    return 0.5 * (matrix + matrix.T), steps


def shrink_singular_values(matrix: Reals, tau: float) -> Reals:
    """Return the matrix with every singular value x replaced by `(x - tau)_+`."""
    left, values, right = np.linalg.svd(matrix)
    kept = values > tau
    return np.asarray((left[:, kept] * (values[kept] - tau)) @ right[kept])


def nuclear_gap(risk: Risk, matrix: Reals, shift: float) -> float:
    """Return a bound on how far F(S) is above its minimum, relative to F(S), for untied factors."""
    value, gradient = risk(matrix)
    norm = float(np.linalg.svd(matrix, compute_uv=False).sum())
    total = value + shift * norm
    bound = 2.0 * norm if norm > 0 or not shift else total / shift
    excess = max(0.0, float(np.linalg.norm(gradient, 2)) - shift)
    gap = abs(float(np.vdot(gradient, matrix)) + shift * norm) + bound * excess
    return gap / total if total else 0.0


def pair_matrix(w: Reals, size: int) -> Reals:
    """Return `S = W_Q W_K^T / sqrt(m d)`, given both factors in one flat array."""
    first, second = w.reshape(2, size, -1)
    return np.asarray(first @ second.T / np.sqrt(size * first.shape[1]))


def pair_objective(risk: Risk, weight_decay: float, w: Reals) -> tuple[float, Reals]:
    """Return F/d^2 and its gradient as a flat array, for a flat array of W_Q and W_K."""
    size = risk.sensing.shape[2]
    first, second = w.reshape(2, size, -1)
    scale = 1.0 / np.sqrt(size * first.shape[1])
    value, gradient = risk(scale * (first @ second.T))
    # lambda = lt / (2 sqrt(kappa)) = lt d scale / 2
    decay = weight_decay * size * scale / 2
    value += decay * float(w @ w)
    slopes = scale * np.stack([gradient @ second, gradient.T @ first]) + 2 * decay * np.stack([first, second])
    return value / size**2, slopes.reshape(-1) / size**2


def _pair_proximal_step(risk: Risk, matrix: Reals, shift: float, step: float) -> Reals:
    return shrink_singular_values(matrix - step * risk(matrix)[1], step * shift)


@dataclass(frozen=True)
class FactorForm:
    """A way to store tied factors W, or untied factors W_Q and W_K, in one flat array."""

    count: int  # number of factors
    objective: Callable[[Risk, float, Reals], tuple[float, Reals]]  # returns F/d^2 and its gradient
    product: Callable[[Reals, int], Reals]  # returns S of size d
    proximal_step: Callable[[Risk, Reals, float, float], Reals]
    gap: Callable[[Risk, Reals, float], float]  # bounds what F(S) can still lose, relative to F(S)
    shrink: Callable[[Reals, float], Reals]  # applies the penalty of the convex form
    unknowns: Callable[[int], int]  # number of free entries of S


TIED_FACTORS = FactorForm(
    1,
    factors_objective,
    _tied_product,
    proximal_step,
    optimality_gap,
    shrink_eigenvalues,
    lambda size: size * (size + 1) // 2,
)
PAIR_FACTORS = FactorForm(
    2,
    pair_objective,
    pair_matrix,
    _pair_proximal_step,
    nuclear_gap,
    shrink_singular_values,
    lambda size: size * size,
)
