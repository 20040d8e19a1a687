"""The solvers that train students on data, and how well they solve their optimality conditions.

| student | problem | solver |
|---|---|---|
| factorized | `S = W W^T / sqrt(m d)`, `F(W) = R(S) + lambda |W|_F^2 = R(S) + lt d Tr S` | L-BFGS on W |
| ... its convex form | `min over S >= 0 of R(S) + lt d Tr S` | FISTA, or splitting where R is quadratic |
| direct | `min over symmetric S of R(S) + lambda d |S|_F^2` | conjugate gradients, or L-BFGS |

arXiv:2509.24914: W of shape (d, m), kappa = m/d, lt = sqrt(kappa) lambda, `dF/dW = 2 (R'(S) + lt d I) W /
sqrt(m d)`. For every m at least the rank of the minimiser over S >= 0 the first two have the same minimum
(linear output: R is convex in S); here m = d, which always suffices.

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
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from attnlaw.base.errors import InputError
from attnlaw.learning.risk import Linear, Risk
from attnlaw.learning.sensing import Array

Check = Callable[[], None]
"""Called in every step of a solver; raises where training is to end."""

RESIDUAL = 1e-4
"""A training run with a larger residual is reported as not converged."""

TOLERANCE = 1e-10
MEMORY = 20
MOST_STEPS = 20_000
MOST_PROXIMAL_STEPS, MOST_SPLITTING_STEPS = 20_000, 3_000
GRADIENT = 1e-6
OVERRELAXATION = 1.6
STARTS = 3


def go_on() -> None:
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


def positive_part(matrix: Array) -> Array:
    """The symmetric matrix with its negative eigenvalues set to zero, the nearest positive semidefinite one.

    >>> positive_part(np.diag([2.0, -1.0])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 0
    return np.asarray((vectors[:, kept] * values[kept]) @ vectors[:, kept].T)


def relative_move(after: Array, before: Array) -> float:
    """|after - before|_F over the larger norm, 0 if both vanish."""
    scale = max(float(np.linalg.norm(after)), float(np.linalg.norm(before)))
    return float(np.linalg.norm(after - before)) / scale if scale else 0.0


def proximal_step(risk: Risk, matrix: Array, shift: float, step: float) -> Array:
    """`(S - t (R'(S) + shift I))_+` with `shift = lt d`: directions outside the solution become zero."""
    return positive_part(matrix - step * (risk(matrix)[1] + shift * np.eye(len(matrix))))


def optimality_gap(risk: Risk, matrix: Array, shift: float) -> float:
    """The bound above on what F(S) can still lose, relative to F(S), with `shift = lt d`.

    >>> from attnlaw.learning.sensing import TokenSensing
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


def train_factors(risk: Risk, weight_decay: float, rng: np.random.Generator, check: Check = go_on) -> Trained:
    """Minimise R(W W^T/d) + lt d Tr S over square W from standard Gaussian weights.

    Slow as lt -> 0 below interpolation (steps grow like 1/sqrt(lt)): use `train_splitting` there.

    >>> from attnlaw.learning.sensing import TokenSensing
    >>> x = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    >>> tokens = TokenSensing(x)
    >>> risk = Risk(tokens, Linear(np.ones((3, 1))), tokens.fields(np.diag([2.0, 0.0])))
    >>> trained = train_factors(risk, 1e-3, np.random.default_rng(0))
    >>> trained.converged, trained.matrix.round(2).tolist()
    (True, [[2.0, 0.0], [0.0, 0.0]])
    """
    size = risk.sensing.shape[2]

    flat, steps = descend(
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


def descend(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array,
    weight_decay: float,
    size: int,
    check: Check,
) -> tuple[Array, int]:
    """L-BFGS on flat factors of a (size, size) matrix: where it ended, and its steps."""

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
            # In units of the penalty's own gradient, 2 lt W/d^2; the floor serves lt = 0.
            "gtol": GRADIENT * 2.0 * max(weight_decay, 1e-3) / size**2,
        },
    )
    return np.asarray(result.x), int(result.nit)


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
    ends = [descend(objective, rng.standard_normal(count), weight_decay, size, check) for _ in range(STARTS)]
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


def lowered(matrix: Array, tau: float) -> Array:
    """The positive semidefinite matrix of `(x - tau)_+` for each eigenvalue x."""
    return positive_part(matrix - tau * np.eye(len(matrix)))


def train_splitting(
    risk: Risk, weight_decay: float, check: Check = go_on, shrink: Callable[[Array, float], Array] = lowered
) -> Trained:
    """Douglas-Rachford: the risk's proximal map by one Cholesky factor of K + lt d/(2 tau), then shrinkage.

    Its limit lt -> 0 is the interpolator of least trace (of least nuclear norm where `shrink` acts on
    singular values). Needs the linear output and fewer observations than unknowns, d(d+1)/2 (untied d^2),
    else K is singular; where no S >= 0 fits the data (beyond interpolation) a tiny lt does not converge.
    Memory and set-up grow like (nP)^2 and (nP)^3.

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
        matrix = shrink(2.0 * fitted - state, tau)
        residual = relative_move(matrix, fitted)
        state = state + OVERRELAXATION * (matrix - fitted)
        steps += 1
    return Trained(matrix, residual, steps, "splitting")


def train_direct(risk: Risk, weight_decay: float, check: Check = go_on) -> Trained:
    """The ridge student; the residual is the relative move of one gradient step of safe length.

    >>> from attnlaw.learning.sensing import TokenSensing
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


def train_flow(risk: Risk, weight_decay: float, time: float, check: Check = go_on) -> Trained:
    """Gradient flow `dS/dt = -(R'(S) + 2 lambda d S)/(2d)` from S = 0, by the Gram matrix's eigenvalues.

    `S(t) = B^T (1 - exp(-(K + lambda) t))/(K + lambda) y`, B the fields scaled by the root of the loss
    weights over d, K = B B^T: exact, so its residual is 0.

    >>> from attnlaw.learning.sensing import TokenSensing
    >>> tokens = TokenSensing(np.array([[[1.0, 0.0]]]))
    >>> risk = Risk(tokens, Linear(np.ones((1, 1))), np.array([[np.sqrt(2.0)]]))
    >>> train_flow(risk, 0.0, 1e9).matrix.round(12).tolist()  # the end is the ridge's
    [[0.0, 0.0], [0.0, -2.0]]
    """
    if not isinstance(risk.output, Linear):
        raise InputError("flow: the output is not linear; use train_direct")
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
            "maxcor": MEMORY,
            "maxiter": MOST_STEPS,
            "maxfun": 2 * MOST_STEPS,
            "ftol": 0.0,
            "gtol": TOLERANCE,
        },
    )
    matrix = result.x.reshape(size, size)
    return 0.5 * (matrix + matrix.T), int(result.nit)
