"""The Bayes-optimal student: the least error that any method can reach (arXiv 2506.01582). It is not trained.

| letter | meaning |
|---|---|
| qhat | information about S* in the data; the posterior sees `S* + a Z`, `a^2 = 1/qhat` |
| E(a) | `Q* - int (x - 2 a^2 Re g)^2 dmu_a`, the error of the best rotation-invariant denoiser |
| k, r, Z | hardmax: standardised fields, their correlation `s1 s2/3`, the probability of the labels |

Because `int x Re g dmu_a = 1/2`, the error is `E = a^2 (1 - 4 a^2 int (Re g)^2 dmu_a)`, which does not cancel
if E is small. With the linear output `qhat = 2 alpha_T/(E + Delta/2)`, in general the sum over observation
groups. A softmax of any finite beta has the same equation with `(T^2+T-2)/2` observations per sample, because
labels reveal the logits. Letters are explained in `attnlaw.theory.learn.problem`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.core.arrays import Indices, Reals
from attnlaw.numerics.fixed_point import bracketed_roots
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.transformed import Folded, Shrunk
from attnlaw.theory.learn.outliers import shrunk_outliers
from attnlaw.theory.learn.prediction import Prediction, estimates, outcome_of, trace_or_nuclear_norm
from attnlaw.theory.learn.problem import Problem, ProblemBatch
from attnlaw.theory.learn.student import Student
from attnlaw.theory.learn.target import Target
from attnlaw.theory.learn.thresholds import bayes_recovery, untied_bayes_recovery

Information = Callable[[Reals, Indices], Reals]
SMALLEST = 1e-7


@dataclass(frozen=True, eq=False)
class BayesPoint:
    """The solution for several problems. `resolved` is False if the error is zero up to rounding."""

    a: Reals
    E: Reals
    residual: Reals
    resolved: NDArray[np.bool_]
    steps: int


def denoising_error(target: Target, a: Reals) -> Reals:
    """Return the error `E(a)` of the best denoiser, for several noise levels a."""
    squares = np.zeros(a.size)
    for rows, groups in Truncated(target.law, a).node_groups():
        for nodes in groups:
            total = (nodes.mass * nodes.re_g**2).sum(axis=(1, 2)) * (np.pi / nodes.x.shape[-1])
            squares[rows] += total
    return a**2 * (1 - 4 * a**2 * squares)


def solve(target: Target, information: Information, size: int) -> BayesPoint:
    """Solve `qhat = information(E(a))`, `a^2 = 1/qhat` for each problem. The largest root E is used."""
    Q = target.second_moment
    every = np.arange(size)

    def residual(log_a: Reals, which: Indices) -> Reals:
        a = np.exp(log_a)
        return np.log(information(denoising_error(target, a), which)) + 2 * log_a

    high = -0.5 * np.log(information(np.full(size, Q), every)) + 1e-9
    floor = high + np.log(SMALLEST)
    above = residual(high, every)
    low, below = high.copy(), above.copy()
    active = np.ones(size, dtype=bool)
    steps = 0
    while active.any():
        i = np.flatnonzero(active)
        high[i], above[i] = low[i], below[i]
        low[i] -= np.log(2.0)
        below[i] = residual(low[i], i)
        active[i] = below[i] > 0
        steps += 1
        if np.all(low[active] < floor[active]):
            break
    roots = bracketed_roots(residual, low, high, ends=(below, above), tolerance=1e-14, max_steps=60)
    a = np.exp(roots.x)
    return BayesPoint(a, denoising_error(target, a), np.abs(roots.residual), ~active, steps + roots.steps)


def round_off(terms: float, E: float) -> float:
    """Return the relative rounding error of E, which is a difference of two terms of a given size."""
    return float(np.finfo(float).eps) * terms / E if E > 0 else 0.0


def label_information(q: float, V: float) -> float:
    """Return the information `E sum_y Z g^T K g` in the two hardmax labels of a sample.

    The information times V depends only on `t = q/V`, as an average over k ~ N(0, t K/3). It differs from
    `f(k_1) + f(k_2)`, `f = phi^2/(Phi(k) Phi(-k))`, only near k = 0, so few points are enough.
    """
    t = max(q / V, 1e-12)
    spread = np.sqrt(t)
    # Four points for the narrower of weight and integrand. Both vanish within nine of their widths.
    step = min(spread, 1.0) / 4
    axis = np.arange(-36, 37) * step
    alone = np.exp(-(axis**2)) / (2 * np.pi * scipy.special.ndtr(axis) * scipy.special.ndtr(-axis))
    total = 2 * float((np.exp(-(axis**2) / (2 * t)) * alone).sum()) * step / (np.sqrt(2 * np.pi) * spread)
    first, second = axis[:, None], axis[None, :]
    together = -(alone[:, None] + alone[None, :])
    # The labels (-, -) and (-, +) repeat (+, +) and (+, -) under k -> -k, so each counts twice.
    for sign in (1.0, -1.0):
        k1, k2, r = first, sign * second, sign / 3
        Z = bivariate_normal_cdf(k1, k2, r)
        root = np.sqrt(1 - r * r)
        d1 = np.exp(-(k1**2) / 2) / np.sqrt(2 * np.pi) * scipy.special.ndtr((k2 - r * k1) / root)
        d2 = np.exp(-(k2**2) / 2) / np.sqrt(2 * np.pi) * scipy.special.ndtr((k1 - r * k2) / root)
        form = d1**2 + d2**2 + 2 * r * d1 * d2
        together = together + 2 * np.where(Z > 1e-13, form / np.maximum(Z, 1e-13), 0.0)
    # K/3 has the determinant 8/9 and the inverse [[9, -3], [-3, 9]] / 8.
    weight = np.exp(-(9 * first**2 - 6 * first * second + 9 * second**2) / (16 * t))
    total += float((weight * together).sum()) * step**2 / (2 * np.pi * t * np.sqrt(8 / 9))
    return float(total / V)


def bivariate_normal_cdf(h: Reals, k: Reals, r: float) -> Reals:
    """Return `P(X <= h, Y <= k)` for standard normals of correlation r, by Owen's T function (1956)."""
    h, k = np.broadcast_arrays(np.asarray(h, dtype=float), np.asarray(k, dtype=float))
    # The formula divides by h and k: move exact zeros by less than rounding of the result.
    h, k = np.where(h == 0, 1e-150, h), np.where(k == 0, 1e-150, k)
    root = np.sqrt(1 - r * r)
    apart = np.where(h * k < 0, 0.5, 0.0)
    value = (
        0.5 * (scipy.special.ndtr(h) + scipy.special.ndtr(k))
        - scipy.special.owens_t(h, (k / h - r) / root)
        - scipy.special.owens_t(k, (h / k - r) / root)
        - apart
    )
    return np.asarray(np.maximum(value, 0.0))


def scores(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Predict from labels that determine the scores: linear output, and softmax of any temperature."""
    batch = ProblemBatch.of(problems)

    def information(E: Reals, which: Indices) -> Reals:
        floor = np.maximum(E, 1e-300)[:, None]
        return np.asarray((2 * batch.alpha[which] / (floor + batch.noise[which])).sum(axis=1))

    return _predict(problems, information)


def signs(problems: list[Problem], report: Callable[[int], object]) -> list[Prediction]:
    """Predict from labels that name the larger of two entries (hardmax). Noise has not been tested.

    The information is `qhat = 2 alpha E sum_y Z g^T K g` with omega ~ N(0, q K), q = Q* - E and V = E +
    Delta/2. Labels are the signs `s_a = sign(h_aa - h_12)`. Their probability is `Z = Phi2(k_1, k_2; r)` with
    `k_a = s_a omega_a / sqrt(3 V)` and r = s1 s2/3, and `dZ/dk_1 = phi(k_1) Phi((k_2 - r k_1)/sqrt(1 -
    r^2))`.
    """
    alpha = np.array([problem.alpha for problem in problems])
    noise = np.array([problem.noise for problem in problems])
    Q = problems[0].target.second_moment

    def information(E: Reals, which: Indices) -> Reals:
        return np.array(
            [
                2 * a * label_information(Q - error, max(error, 1e-300) + spread / 2)
                for a, error, spread in zip(alpha[which], E, noise[which], strict=True)
            ]
        )

    return _predict(problems, information)


def _predict(problems: list[Problem], information: Information) -> list[Prediction]:
    target, sides = problems[0].target, problems[0].sides
    point = solve(target, information, len(problems))
    # The trace is kept; a nuclear norm is the mean of abs(x - 2 a^2 Re g), which has the sign of x.
    sums = np.full(len(problems), target.mean)
    if sides == 2:
        _, first, _, plain, _ = Truncated(target.law, point.a, sides).above(np.zeros(len(problems)))
        sums = first - 2 * point.a**2 * plain
    results = []
    for i, problem in enumerate(problems):
        E, a = float(max(point.E[i], 0.0)), float(point.a[i])
        residual = max(float(point.residual[i]), round_off(a * a, E))
        spectrum = Shrunk(FreeConvolution(target.law, a))
        results.append(
            Prediction(
                problem=problem,
                **estimates(
                    problem,
                    E,
                    overlap=target.second_moment - E,
                    norm=target.second_moment - E,
                    rank_fraction=1.0,
                    **trace_or_nuclear_norm(problem, float(sums[i])),
                    noise_level=a,
                ),
                shrinkage=1.0,
                spectrum=spectrum if sides == 1 else Folded(spectrum),
                outliers=shrunk_outliers(target, a),
                **outcome_of(residual, bool(point.resolved[i]), "add noise"),
                residual=residual,
                steps=point.steps,
            )
        )
    return results


def leading(gamma: float) -> float:
    return 1 / (2 * gamma - 1) + 2 - 1 / (1 + 2 * gamma)


UNTIED = Student(
    "bayes",
    "Bayes-optimal",
    colour=2,
    penalised=False,
    theories={"linear": scores},
    recovery=untied_bayes_recovery,
    leading={"linear": leading},
)
BAYES = replace(
    UNTIED,
    theories={"linear": scores, "softmax": scores, "hardmax": signs},
    batched_outputs=frozenset({"linear", "softmax", "hardmax"}),
    recovery=bayes_recovery,
    # A softmax has the same equations with (T^2+T-2)/2 observations per sample.
    leading={"linear": leading, "softmax": leading},
    untied=UNTIED,
)
