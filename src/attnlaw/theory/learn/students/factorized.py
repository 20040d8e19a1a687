"""The factorized student: weights W with weight decay, `S = W W^T / sqrt(m d)` (arXiv 2509.24914).

Training W with weight decay lt is the same as fitting a positive semidefinite S with a nuclear-norm penalty.
Observation group k has `alpha_k d^2` observations of weight w_k and noise D_k. Other letters are explained in
`attnlaw.theory.learn.problem`.

| letter | meaning |
|---|---|
| delta | noise level: the trained matrix is a rectified `S* + delta Z` |
| b, eps | threshold `b = lt eps`, `eps = 2 / Vhat` |
| V, Vhat, c_k | `V = chi/Vhat`, `Vhat = sum 2 alpha_k c_k`, `c_k = 2 w_k / (1 + 2 w_k V)` |
| qhat | `delta^2 Vhat^2 = qhat = sum 2 alpha_k c_k^2 (E + D_k)`, the equation for delta |
| J, M1, chi | integrals of `(x - b)_+` against mu_delta (`attnlaw.theory.laws.transformed`) |
| E | `|S_hat - S*|_F^2 / d = Q* - 2m + q`, `q = J`, `m = J + b M1 - delta^2 chi` |

For one group of weight 2 and noise Delta/2: `4 alpha_T = 1/eps + 2 chi`, `E = 2 alpha_T delta^2 - Delta/2`.

Untied factors, `S = W_Q W_K^T / sqrt(m d)`, have singular values with both signs in place of eigenvalues, and
`f(x) = sign(x) (abs(x) - b)_+`. An untied S has twice as many unknowns, so `Vhat = sum alpha_k
c_k`, `qhat = sum alpha_k c_k^2 (E + D_k)` and `b = lt/Vhat`. These are the same equations at alpha_k/2 and
lt/2, with integrals over both sides. `ProblemBatch.of` halves both, so the code below has the tied form.

Narrow factors have a width kappa below the rank that they would learn. They keep only the share kappa of the
values, those beyond a cut t > b. Then `f(x) = (x - b) 1(x > t)` with `mu_delta(x > t) = kappa`, and all
equations stay the same. The loss is no longer convex in S, and `attnlaw.theory.learn.stability` indicates how
far to trust them. Both extensions are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.arrays import Indices, Reals
from attnlaw.numerics.fixed_point import bracketed_roots
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.transformed import SMALL, Rectification, Rectified, rectify
from attnlaw.theory.learn import attended_key, softmax, solvers, thresholds
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
from attnlaw.theory.learn.softmax import ChannelAverages, StudentUpdate, angle, noise_level
from attnlaw.theory.learn.stability import SIZE, mean_square_slope
from attnlaw.theory.learn.student import Student
from attnlaw.theory.learn.target import Target
from attnlaw.theory.learn.training import Check, Trained

# The scan takes small steps first, because roots may be close together there, and then larger ones.
SMALL_STEP, SMALL_STEPS, LARGE_STEP = 0.75, 10, 0.5
MAX_DOUBLINGS = 40
MOST_NEWTON, NEWTON = 100, 1e-9
SMALL_WEIGHT_DECAY = 0.02


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """The solution of the equations for several problems. `steps` is the number of steps for all."""

    delta: Reals
    eps: Reals
    b: Reals
    cut: Reals  # t of narrow factors; zero if their width is not limited. It has an effect only above b.
    V: Reals
    E: Reals
    integrals: Rectification
    residual: Reals  # what the equation for delta misses, relative to its left side
    resolved: NDArray[np.bool_]  # whether the scan found a root; if not, delta and E are bounds
    steps: int


def solve(batch: ProblemBatch) -> FixedPoint:
    """Find the solution with the largest delta: scan downwards, then bracket the root in log delta."""
    Q = batch.target.second_moment
    start = 3.0 * np.sqrt((Q + batch.noise.max(axis=1) + 1.0) / (2 * batch.alpha.sum(axis=1)))

    every = np.arange(batch.lt.size)
    warm = np.full(batch.lt.size, np.nan)  # eps of the last delta, which starts the next search

    def residual(log_delta: Reals, which: Indices) -> Reals:
        miss, warm[which], *_ = _outer(batch.rows(which), np.exp(log_delta), warm[which])
        return miss

    # Beyond every root the residual is negative. A tall peak at interpolation may be above the first guess.
    at_low = residual(np.log(start), every)
    steps = 1
    while np.any(at_low > 0) and steps < MAX_DOUBLINGS:
        i = np.flatnonzero(at_low > 0)
        start[i] *= 2.0
        at_low[i] = residual(np.log(start[i]), i)
        steps += 1
    low, high, at_high, sign = np.log(start), np.log(start), at_low.copy(), np.sign(at_low)
    active = sign != 0
    scanned = 0
    # Clean labels without a penalty have no root: the target itself is the solution.
    exact = (batch.lt == 0) & ~batch.noise.any(axis=1)
    least = np.where(exact, np.inf, np.log(batch.target.least_noise_level))
    while (active & (low > least)).any():
        i = np.flatnonzero(active & (low > least))
        high[i], at_high[i] = low[i], at_low[i]
        low[i] += np.log(SMALL_STEP if scanned < SMALL_STEPS else LARGE_STEP)
        at_low[i] = residual(low[i], i)
        active[i] = np.sign(at_low[i]) == sign[i]
        scanned += 1
    roots = bracketed_roots(residual, low, high, ends=(at_low, at_high), tolerance=1e-13, max_steps=60)
    delta = np.exp(roots.x)
    miss, eps, cut, integrals, V, seen = _outer(batch, delta, warm)
    # Both expressions equal E. If delta is large, `integrals.E` is a difference of large terms, unless the
    # student is cut entirely.
    is_large = (delta**2 > SMALL * Q) & (integrals.mass > 0)
    E = np.where(is_large, integrals.E - miss, integrals.E)
    return FixedPoint(
        delta,
        eps,
        batch.lt * eps,
        cut,
        V,
        E,
        integrals,
        np.abs(miss) / seen,
        ~active,
        steps + scanned + roots.steps,
    )


def _outer(
    batch: ProblemBatch, delta: Reals, guess: Reals
) -> tuple[Reals, Reals, Reals, Rectification, Reals, Reals]:
    """Return by how much the equation for delta is missed, and the quantities at this delta."""
    table = Truncated(batch.target.law, delta, batch.sides)
    cut = _cut(batch, table)
    eps = _threshold_scale(batch, table, cut, guess)
    b = batch.lt * eps
    parts = rectify(table, b, cut=cut)
    V = parts.chi * eps / 2
    c = 2 * batch.weight / (1 + 2 * batch.weight * V[:, None])
    share = batch.alpha * c * c / (batch.alpha * c * c).sum(axis=1, keepdims=True)
    noise = (share * batch.noise).sum(axis=1)
    Vhat = (2 * batch.alpha * c).sum(axis=1)
    seen = delta**2 * Vhat**2 / (2 * batch.alpha * c * c).sum(axis=1)
    return parts.E + noise - seen, eps, cut, parts, V, seen


def _cut(batch: ProblemBatch, table: Truncated) -> Reals:
    """Return t with `mu_delta(x > t) = kappa` (untied: `abs(x) > t`), or 0 if the width cuts nothing."""
    cut = np.zeros(table.a.size)
    if batch.width is None or np.isinf(batch.width).all():
        return cut
    width = batch.width
    i = np.flatnonzero(table.above(cut)[0] > width)

    def miss(t: Reals, which: Indices) -> Reals:
        return np.asarray(width[i[which]] - table.above(t, i[which])[0])

    cut[i] = bracketed_roots(miss, cut[i], table.top[i], tolerance=1e-14).x
    return cut


def _threshold_scale(batch: ProblemBatch, table: Truncated, cut: Reals, guess: Reals) -> Reals:
    """Return eps at given delta.

    It is the root of `sum t_k - 1`, `t_k = 2 alpha_k w_k eps / (1 + w_k chi(lt eps) eps)`. Newton's method
    solves for log eps inside a bracket; it starts at `guess`, unless that is nan.
    """
    gain = (2 * batch.alpha * batch.weight).sum(axis=1)
    low = np.log(1.0 / gain)
    reach = np.where(batch.lt > 0, table.top / np.where(batch.lt > 0, batch.lt, 1.0), 1e14 / gain)
    high = np.maximum(np.log(np.maximum(reach, 1e-300)), low)
    x = np.clip(np.where(np.isnan(guess), low, np.log(guess)), low, high)
    going = np.flatnonzero(high > low)
    for _ in range(MOST_NEWTON):
        if not going.size:
            break
        at, weight, eps, lt = x[going], batch.weight[going], np.exp(x[going]), batch.lt[going]
        parts = rectify(table, lt * eps, going, cut[going])
        below = 1 + weight * (parts.chi * eps)[:, None]
        terms = 2 * batch.alpha[going] * weight * eps[:, None] / below
        total = terms.sum(axis=1)
        bend = weight * (eps * (parts.chi + parts.slope * lt * eps))[:, None] / below
        step = np.log(total) * total / np.maximum((terms * (1 - bend)).sum(axis=1), 1e-300)
        low[going], high[going] = np.where(total < 1, at, low[going]), np.where(total > 1, at, high[going])
        following = at - step
        inside = (following >= low[going]) & (following <= high[going])
        x[going] = np.where(inside, following, 0.5 * (low[going] + high[going]))
        # Newton's method has converged: the next step would be the square of this one.
        settled = (inside & (np.abs(step) < NEWTON)) | (high[going] - low[going] <= 1e-15 * np.abs(at))
        going = going[~settled]
    return np.asarray(np.exp(x))


def instability(batch: ProblemBatch, point: FixedPoint, member: int, size: int = SIZE) -> float | None:
    """Return the stability indicator of one problem (unstable above 1), or None without a cut."""
    b, cut = float(point.b[member]), float(point.cut[member])
    if not cut > b:
        return None
    K = mean_square_slope(batch.target.law, float(point.delta[member]), b, cut, batch.sides, size)
    weight, alpha, V = batch.weight[member], batch.alpha[member], point.V[member]
    c = 2 * weight / (1 + 2 * weight * V)
    noise = float((2 * alpha * c * c).sum() / (2 * alpha * c).sum() ** 2)
    return K * noise


def linear(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Predict several problems at once. The learned spectrum is that of `S* + delta Z`, rectified."""
    batch = ProblemBatch.of(problems)
    point = solve(batch)
    train = batch.training_loss(problems, point.V, point.E)
    results = []
    for i, problem in enumerate(problems):
        if not point.resolved[i]:
            is_exact = problem.weight_decay == 0 and not batch.noise[i].any()
            bound, miss = (0.0, 0.0) if is_exact else (float(point.E[i]), float(point.residual[i]))
            results.append(recovered_prediction(problem, bound, miss, point.steps, threshold=0.0))
            continue
        delta, b, E = float(point.delta[i]), float(point.b[i]), float(max(point.E[i], 0.0))
        cut = float(point.cut[i]) if point.cut[i] > b else None
        J, M1, chi, mass = (float(getattr(point.integrals, name)[i]) for name in ("J", "M1", "chi", "mass"))
        blurred = FreeConvolution(problem.target.law, delta)
        residual, unstable = float(point.residual[i]), instability(batch, point, i)
        results.append(
            Prediction(
                problem=problem,
                **estimates(
                    problem,
                    E,
                    training_loss=float(train[i]),
                    overlap=J + b * M1 - delta**2 * chi,
                    norm=J,
                    rank_fraction=mass,
                    **trace_or_nuclear_norm(problem, M1),
                    noise_level=delta,
                    threshold=b,
                    cut=cut,
                ),
                stability=unstable,
                shrinkage=1.0,
                spectrum=Rectified(blurred, b, sides=batch.sides, cut=cut, kept=mass),
                outliers=find_outliers(problem.target, delta, b, 1.0, cut),
                **outcome_of(residual, instability=unstable),
                residual=residual,
                steps=point.steps,
            )
        )
    return results


def _factors_start(batch: ProblemBatch) -> tuple[Reals, Reals, Reals]:
    point = solve(batch)
    return point.E, (batch.target.second_moment - point.integrals.J + point.E) / 2, point.V


def _factors_step(problem: Problem, averages: ChannelAverages) -> tuple[float, ...]:
    Q, a = problem.target.second_moment, noise_level(problem, averages)
    # An untied S has twice as many unknowns, so b = lt/mhat.
    b, r = 2 / problem.sides * problem.weight_decay / averages.mhat, averages.mhat / averages.Vhat
    parts = rectify(Truncated(problem.target.law, np.array([a]), problem.sides), np.array([b]))
    J, M1, chi, mass, near = (float(v[0]) for v in (parts.J, parts.M1, parts.chi, parts.mass, parts.E))
    # E follows from `near`, the distance of (X - b)_+ from the target, without a difference of large terms.
    lost = (averages.Vhat - averages.mhat) / averages.Vhat
    E, gap = r * near + lost * (Q - r * J), lost * Q + r * (Q - J + near) / 2
    return E, angle(Q, E, gap), chi / averages.Vhat, Q - gap, r * r * J, a, b, r, mass, r * M1


def _factors_slope(problem: Problem, Vhat: float, a: float, b: float) -> float:
    return mean_square_slope(problem.target.law, a, b, sides=problem.sides)


FACTORS = StudentUpdate(_factors_start, _factors_step, _factors_slope, cuts=True)


def through_softmax(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    return softmax.predictions(problems, FACTORS, report)


def through_attended_key(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Predict the problems one after the other."""
    return softmax.predictions(problems, FACTORS, report, attended_key.solve)


def train(problem: Problem, risk: Risk, rng: np.random.Generator, check: Check) -> Trained:
    """Train the factors by L-BFGS, or solve the convex problem for S if decay and data are small.

    Both have the same minimum, but the number of steps of L-BFGS grows like 1/sqrt(lt). The method for S
    (splitting) does not converge if there are too many data to fit, where L-BFGS is fast again. Narrow
    factors are always trained by L-BFGS.
    """
    form = solvers.TIED_FACTORS if problem.sides == 1 else solvers.PAIR_FACTORS
    size, decay = risk.sensing.shape[2], problem.weight_decay
    m = size if problem.width is None else min(round(problem.width * size), size)
    if m < size:
        return solvers.train_narrow(risk, decay, m, rng, check, form)
    is_few = risk.output.quadratic and risk.labels.size < form.unknowns(size)
    if 0 < decay < SMALL_WEIGHT_DECAY and is_few:
        split = solvers.train_splitting(risk, decay, check, form.shrink)
        if split.converged:
            return split
    return solvers.train_factors(risk, decay, rng, check, form)


def interpolation(target: Target, noise: float) -> tuple[float, float | None]:
    """Return how many observations per d^2 some S >= 0 can fit exactly, and the error there."""
    if noise > 0:
        return thresholds.interpolation_peak(target, noise)
    return thresholds.feasibility(target.rank_fraction), None


def leading(gamma: float) -> float:
    return 1 / (2 * gamma - 1) + 6 - 8 / (1 + gamma) + 3 / (1 + 2 * gamma)


UNTIED = Student(
    "factorized",
    "factorized",
    colour=0,
    penalised=True,
    has_factors=True,
    theories={"linear": linear, "cross-entropy": through_attended_key},
    trainer=train,
    # Any matrix fits all labels up to 1. The error there grows without bound as the decay vanishes.
    interpolation=lambda target, noise: (1.0, None),
    recovery=lambda target: thresholds.recovery(min(target.rank_fraction, 1.0), sides=2),
    leading={"linear": leading},
)
FACTORIZED = replace(
    UNTIED,
    theories={"linear": linear, "softmax": through_softmax},
    batched_outputs=frozenset({"linear"}),
    interpolation=interpolation,
    recovery=lambda target: thresholds.recovery(min(target.rank_fraction, 1.0)),
    memory_checks={"softmax": softmax.check_size},
    untied=UNTIED,
)
