"""The direct student: any symmetric S (untied: any S) with a ridge penalty, without the bias of factors.

State evolution with the linear output. `Vhat = sum 2 alpha_k c_k`, `c_k = 2 w_k/(1 + 2 w_k V)`, `V = 1/(Vhat
+ 4 lambda)`, `s = Vhat/(Vhat + 4 lambda)`; `delta^2 = qhat/Vhat^2`, `qhat = sum 2 alpha_k c_k^2 (E + D_k)`;
`m = s Q*`, `q = s^2 (Q* + delta^2)`, so that E solves the linear equation `E = (1-s)^2 Q* + s^2 delta^2(E)`.
The trained matrix is `s (S* + delta Z)`: it has negative eigenvalues and no atom at zero. It lacks the
inductive bias of factors (arXiv 2509.24914). Untied attention has the same equations at half of alpha_k and
lambda (`ProblemBatch.of`).

Gradient flow on a fixed data set, exactly (Advani and Saxe, arXiv 1710.03667; Ali, Kolter and Tibshirani,
arXiv 1810.10082; combined for attention here). From S = 0, `dS/dt = -(1/(2d)) dR/dS` of the risk with its
ridge. Gradient descent with steps of size eta reaches `t = 2 d eta steps`. The rates are `x = u y`, where y
has the Marchenko-Pastur density `sqrt((y - y1)(y2 - y))/(2 pi y)`, `y1, y2 = (1 -+ sqrt(A/u))^2`, and an atom
`(1 - A/u)_+` at zero:

    phi   = (1 - exp(-(w x + lambda) t))/(w x + lambda)
    k     = 1 - w x phi
    E     = Q* int k^2 + u D int w^2 x phi^2
    m     = Q* int w x phi
    q     = Q* int (w x phi)^2 + u D int w^2 x phi^2
    train = (observations per sample) (w/A) [Q* int x k^2 + D (A - u int_(x>0) (1 - k^2))]

Untied A = alpha_P, u = 1, w = 1; tied A = alpha_T, u = 1/2, w = 2; D = Delta/2. The matrix is `s (S* + c Z)`,
s = m/Q*. Letters are explained in `attnlaw.theory.learn.problem`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from attnlaw.core.arrays import Indices, Reals
from attnlaw.numerics.fixed_point import bracketed_roots
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.law import Law
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.transformed import Rectified
from attnlaw.theory.learn import softmax, solvers
from attnlaw.theory.learn.outliers import find_outliers
from attnlaw.theory.learn.prediction import (
    Prediction,
    estimates,
    outcome_of,
    recovered_prediction,
    trace_or_nuclear_norm,
)
from attnlaw.theory.learn.problem import Problem, ProblemBatch
from attnlaw.theory.learn.risk import Risk
from attnlaw.theory.learn.settings import LARGEST
from attnlaw.theory.learn.softmax import ChannelAverages, StudentUpdate, angle, noise_level
from attnlaw.theory.learn.student import Student
from attnlaw.theory.learn.training import Check, Trained


@dataclass(frozen=True, eq=False)
class RidgePoint:
    """The solution of the module's equations for several problems."""

    delta: Reals  # noise level
    s: Reals  # shrinkage
    V: Reals
    E: Reals
    residual: Reals  # remaining error of the equation for V
    steps: int


def solve(batch: ProblemBatch) -> RidgePoint:
    """Solve the equations of each problem. `batch.lt` is the weight decay lambda."""
    lam = batch.lt

    def c(V: Reals, which: Indices) -> Reals:
        return np.asarray(2 * batch.weight[which] / (1 + 2 * batch.weight[which] * V[:, None]))

    def miss(log_V: Reals, which: Indices) -> Reals:
        V = np.exp(log_V)
        Vhat = (2 * batch.alpha[which] * c(V, which)).sum(axis=1)
        return np.asarray(V * (Vhat + 4 * lam[which]) - 1.0)

    every = np.arange(lam.size)
    gain = (4 * batch.alpha * batch.weight).sum(axis=1) + 4 * lam
    # V Vhat grows with V up to sum 2 alpha_k. So without a penalty there is a root only beyond 1/2.
    reach = np.where(lam > 0, 1 / np.where(lam > 0, 4 * lam, 1.0), 1e14 / gain)
    roots = bracketed_roots(miss, np.log(1 / gain) - 1e-9, np.log(reach) + 1e-9, tolerance=1e-15)
    V = np.exp(roots.x)
    ck = c(V, every)
    Vhat = (2 * batch.alpha * ck).sum(axis=1)
    s, lost = Vhat / (Vhat + 4 * lam), 4 * lam / (Vhat + 4 * lam)
    power = 2 * batch.alpha * ck**2 / Vhat[:, None] ** 2
    noise = (power * batch.noise).sum(axis=1)
    E = (lost**2 * batch.target.second_moment + s**2 * noise) / (1 - s**2 * power.sum(axis=1))
    delta = np.sqrt(power.sum(axis=1) * E + noise)
    return RidgePoint(delta, s, V, E, np.abs(roots.residual), roots.steps)


def direct_flow(problem: Problem) -> tuple[float, float, float, float]:
    """Return E, s, c and the training loss at the `flow_time`. The trained matrix is `s (S* + c Z)`."""
    (channel,) = problem.channels
    A, w, D = channel.alpha, channel.weight, channel.noise
    u, Q, lam, t = (
        problem.sides / 2,
        problem.target.second_moment,
        problem.weight_decay,
        problem.flow_time or 0.0,
    )
    ratio = A / u
    rates = MarchenkoPastur(ratio)
    points, weights = rates.nodes()
    x = u * np.sqrt(ratio) * points
    speed = w * x + lam
    phi = -np.expm1(-speed * t) / speed
    k = 1 - w * x * phi
    still = rates.mass_of_atoms  # nothing is learned at rate zero: k = 1
    spread = u * D * float(weights @ (w * w * x * phi * phi))
    m = Q * float(weights @ (w * x * phi))
    q = Q * float(weights @ (w * x * phi) ** 2) + spread
    E = Q * (still + float(weights @ (k * k))) + spread
    loss = Q * float(weights @ (x * k * k)) + D * (A - u * float(weights @ (1 - k * k)))
    s = m / Q
    train = problem.observations_per_sample * w / A * loss
    return E, s, float(np.sqrt(max(q - s * s * Q, 0.0)) / s), train


def linear(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Predict several problems at once. The trained matrix is `s (S* + delta Z)`."""
    batch = ProblemBatch.of(problems)
    if problems[0].flow_time is None:
        point = solve(batch)
        train = batch.training_loss(problems, point.V, point.E)
    else:
        E, shares, noises, train = np.array([direct_flow(problem) for problem in problems]).T
        point = RidgePoint(noises, shares, np.full(E.size, np.nan), E, np.zeros(E.size), 0)
    least = batch.target.least_noise_level
    sums = point.s * batch.target.mean
    if batch.sides == 2:
        blurred = Truncated(batch.target.law, np.maximum(point.delta, least), batch.sides)
        sums = point.s * blurred.above(np.zeros(point.s.size))[1]
    results = []
    for i, problem in enumerate(problems):
        if point.E[i] == 0:
            results.append(recovered_prediction(problem, 0.0, 0.0, point.steps))
            continue
        delta, s, E = float(point.delta[i]), float(point.s[i]), float(point.E[i])
        Q = problem.target.second_moment
        if batch.sides == 2:
            spectrum: Law = Rectified(FreeConvolution(problem.target.law, max(delta, least)), 0.0, s, sides=2)
        else:
            law = problem.target.law.scaled(s)
            spectrum = FreeConvolution(law, s * delta) if delta > least else law
        results.append(
            Prediction(
                problem=problem,
                **estimates(
                    problem,
                    E,
                    training_loss=float(train[i]),
                    overlap=s * Q,
                    norm=s * s * (Q + delta * delta),
                    rank_fraction=1.0,
                    **trace_or_nuclear_norm(problem, float(sums[i])),
                    noise_level=delta,
                ),
                shrinkage=s,
                spectrum=spectrum,
                outliers=find_outliers(problem.target, max(delta, least), None, s),
                **outcome_of(float(point.residual[i])),
                residual=float(point.residual[i]),
                steps=point.steps,
            )
        )
    return results


def _ridge_start(batch: ProblemBatch) -> tuple[Reals, Reals, Reals]:
    ridge = solve(batch)
    return ridge.E, (1 - ridge.s) * batch.target.second_moment, ridge.V


def _ridge_step(problem: Problem, averages: ChannelAverages) -> tuple[float, ...]:
    Q, a = problem.target.second_moment, noise_level(problem, averages)
    full = averages.Vhat + 4 * problem.weight_decay
    r, gap = averages.mhat / full, (full - averages.mhat) / full * Q
    E, q = gap * gap / Q + r * r * a * a, r * r * (Q + a * a)
    return E, angle(Q, E, gap), 1 / full, Q - gap, q, a, 0.0, r, 1.0, r * problem.target.mean


def _ridge_slope(problem: Problem, Vhat: float, a: float, b: float) -> float:
    return float((Vhat / (Vhat + 4 * problem.weight_decay)) ** 2)


RIDGE = StudentUpdate(_ridge_start, _ridge_step, _ridge_slope, cuts=False)


def through_softmax(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Predict problems with a softmax output. Each solution is the start of the next one."""
    return softmax.predictions(problems, RIDGE, report)


def train(problem: Problem, risk: Risk, rng: np.random.Generator, check: Check) -> Trained:
    """Train the direct student."""
    if problem.flow_time is not None:
        return solvers.train_flow(risk, problem.weight_decay, problem.flow_time, check)
    return solvers.train_direct(risk, problem.weight_decay, check)


def best_decay(problem: Problem) -> float | None:
    """Return the best weight decay `Delta/(2 Q*)`, or None if it is below the allowed range."""
    known = problem.noise / (2 * problem.target.second_moment)
    return known if known >= 1 / LARGEST else None


# A matrix has d^2 entries to fit and to recover, a symmetric one half as many. The error at interpolation has
# no bound.
UNTIED = Student(
    "direct",
    "direct (ridge)",
    colour=1,
    penalised=True,
    has_flow=True,
    theories={"linear": linear},
    trainer=train,
    interpolation=lambda target, noise: (1.0, None),
    recovery=lambda target: 1.0,
    best_decay={"linear": best_decay},
)
DIRECT = replace(
    UNTIED,
    theories={"linear": linear, "softmax": through_softmax},
    batched_outputs=frozenset({"linear"}),
    interpolation=lambda target, noise: (0.5, None),
    recovery=lambda target: 0.5,
    memory_checks={"softmax": softmax.check_size},
    untied=UNTIED,
)
