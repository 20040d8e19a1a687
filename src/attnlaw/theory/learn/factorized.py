"""State evolution of the factorized student with the linear output, for a batch of problems at once.

Training factors W with weight decay is nuclear-norm-regularised sensing of `S = W W^T / sqrt(m d)`, positive
semidefinite (arXiv 2509.24914). Observation groups k: `alpha_k d^2` observations of weight w_k and noise D_k.

| letter | meaning |
|---|---|
| delta | noise level: the trained matrix is a rectified `S* + delta Z` |
| b, eps | threshold `b = lt eps`, `eps = 2 / Vhat` |
| V, Vhat, c_k | `V = chi/Vhat`, `Vhat = sum 2 alpha_k c_k`, `c_k = 2 w_k / (1 + 2 w_k V)` |
| J, M1, chi | integrals of `(x - b)_+` against mu_delta (`attnlaw.theory.laws.transformed`) |
| E | `|S_hat - S*|_F^2 / d = Q* - 2m + q`, `q = J`, `m = J + b M1 - delta^2 chi` |

For one group of weight 2 and noise Delta/2: `4 alpha_T = 1/eps + 2 chi`, `E = 2 alpha_T delta^2 - Delta/2`.

Untied factors, `S = W_Q W_K^T / sqrt(m d)`, have the singular values with both signs in place of eigenvalues
and `f(x) = sign(x) (abs(x) - b)_+`; each observation tells of twice as many unknowns, so `Vhat = sum alpha_k
c_k`, `qhat = sum alpha_k c_k^2 (E + D_k)`, `b = lt/Vhat`: the same equations at alpha_k/2 and lt/2, integrals
over both sides.

Factors of width kappa below the rank that they would learn keep the share kappa of values beyond a cut t > b
only: `f(x) = (x - b) 1(x > t)`, `mu_delta(x > t) = kappa`, and all equations stand
(`attnlaw.theory.laws.transformed`). The loss is then not convex in S, and `attnlaw.theory.learn.stability`
says how far to trust them. Both extensions are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.arrays import Indices, Reals
from attnlaw.numerics.fixed_point import bracketed_roots
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import Truncated
from attnlaw.theory.laws.transformed import SMALL, Rectification, rectify
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.target import Target

LEAST_STEPS = 1e5
# The scan goes in small steps where roots may lie close together, then faster.
SMALL_STEP, SMALL_STEPS, LARGE_STEP = 0.75, 10, 0.5
MAX_DOUBLINGS = 40
MOST_NEWTON, NEWTON = 100, 1e-9


@dataclass(frozen=True)
class ProblemBatch:
    """Problems that share a target: channels of shape (batch, groups) and penalties lt of shape (batch,).

    With two `sides` (untied) `alpha` and `lt` hold half of what the problems have. `width` kappa of shape
    (batch,) is infinite where it is not limited; None: nowhere.
    """

    target: Target
    alpha: Reals
    weight: Reals
    noise: Reals
    lt: Reals
    sides: int = 1
    width: Reals | None = None

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> ProblemBatch:
        channels = [problem.channels for problem in problems]
        sides = problems[0].sides
        return cls(
            problems[0].target,
            np.array([[channel.alpha / sides for channel in row] for row in channels]),
            np.array([[channel.weight for channel in row] for row in channels]),
            np.array([[channel.noise for channel in row] for row in channels]),
            np.array([problem.weight_decay / sides for problem in problems]),
            sides,
            np.array([np.inf if problem.width is None else problem.width for problem in problems]),
        )

    def training_loss(self, problems: Sequence[Problem], V: Reals, E: Reals) -> Reals:
        """Per sample, over all (a, b): `sum_k (alpha_k/alpha) w_k (E + D_k) / (1 + 2 w_k V)^2`."""
        alpha = np.array([problem.alpha for problem in problems])
        terms = self.sides * self.alpha * self.weight * (E[:, None] + self.noise)
        terms = terms / (1 + 2 * self.weight * V[:, None]) ** 2
        return np.asarray(terms.sum(axis=1) / alpha)

    def rows(self, which: Indices) -> ProblemBatch:
        return replace(
            self,
            alpha=self.alpha[which],
            weight=self.weight[which],
            noise=self.noise[which],
            lt=self.lt[which],
            width=None if self.width is None else self.width[which],
        )


@dataclass(frozen=True)
class FixedPoint:
    """Solution of a batch; `resolved` is False if the scan ended without a root: delta and E are bounds."""

    delta: Reals
    eps: Reals
    b: Reals
    cut: Reals
    V: Reals
    E: Reals
    integrals: Rectification
    residual: Reals
    resolved: NDArray[np.bool_]
    steps: int


def solve(batch: ProblemBatch) -> FixedPoint:
    """The fixed point with the largest delta, by a downward scan and then bracketed roots in log delta.

    >>> one = np.ones((1, 1))
    >>> batch = ProblemBatch(Target.marchenko_pastur(0.5), 0.2 * one, 2 * one, 0.25 * one, np.array([0.1]))
    >>> point = solve(batch)
    >>> point.delta.round(5).tolist(), point.E.round(6).tolist()
    ([1.62175], [0.802029])
    """
    Q = batch.target.second_moment
    start = 3.0 * np.sqrt((Q + batch.noise.max(axis=1) + 1.0) / (2 * batch.alpha.sum(axis=1)))

    every = np.arange(batch.lt.size)
    warm = np.full(batch.lt.size, np.nan)  # eps of the delta before, where the search for the next starts

    def residual(log_delta: Reals, which: Indices) -> Reals:
        miss, warm[which], *_ = _outer(batch.rows(which), np.exp(log_delta), warm[which])
        return miss

    # Beyond every root the residual is negative. A tall peak at interpolation may lie above the first guess.
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
    least = np.where(exact, np.inf, np.log(least_noise_level(batch.target)))
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
    # Of the two equal values of E the one without a difference of large terms: `integrals.E` is one where
    # delta is large, but for a student that is cut entirely.
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


def least_noise_level(target: Target) -> float:
    """The least delta that rounding does not hide.

    It is the round-off of the largest eigenvalue. In a discrete law an eigenvalue s of weight p has the width
    `delta sqrt(p)`, which must be `LEAST_STEPS` round-offs of s.
    """
    law = target.law
    least = float(np.finfo(float).eps) * law.support[1]
    return least * LEAST_STEPS / float(np.sqrt(law.arrays[1].min())) if isinstance(law, Discrete) else least


def _outer(
    batch: ProblemBatch, delta: Reals, guess: Reals
) -> tuple[Reals, Reals, Reals, Rectification, Reals, Reals]:
    """What `delta^2 Vhat^2 = sum 2 alpha_k c_k^2 (E + D_k)` misses, divided by `sum 2 alpha_k c_k^2`."""
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
    """t with `mu_delta(x > t) = kappa` (two sides: `abs(x) > t`), zero where no more values are there."""
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
    """eps at given delta: the root of `sum t_k - 1`, `t_k = 2 alpha_k w_k eps / (1 + w_k chi(lt eps) eps)`.

    Newton's method for the logarithm of the sum in log eps, from the guess (nan: none), inside a bracket.
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
        # The next step would be the square of this one.
        settled = (inside & (np.abs(step) < NEWTON)) | (high[going] - low[going] <= 1e-15 * np.abs(at))
        going = going[~settled]
    return np.asarray(np.exp(x))
