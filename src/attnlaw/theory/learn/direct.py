"""The direct student, linear output: a symmetric S with a ridge penalty, free to have negative eigenvalues.

`Vhat = sum 2 alpha_k c_k`, `c_k = 2 w_k/(1 + 2 w_k V)`, `V = 1/(Vhat + 4 lambda)`, `s = Vhat/(Vhat + 4
lambda)`; `delta^2 = qhat/Vhat^2`, `qhat = sum 2 alpha_k c_k^2 (E + D_k)`; `m = s Q*`, `q = s^2 (Q* +
delta^2)`, so that E solves the linear equation `E = (1-s)^2 Q* + s^2 delta^2(E)`. The trained matrix is `s
(S* + delta Z)`: it has negative eigenvalues and no atom at zero. What it lacks against the factorized
student is the inductive bias of factors (arXiv 2509.24914).

Untied, any S: the same at half of alpha_k and lambda (`Batch.of`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.core.arrays import Indices, Reals
from attnlaw.numerics.fixed_point import bracketed_roots
from attnlaw.theory.learn.factorized import ProblemBatch
from attnlaw.theory.learn.problem import Channel
from attnlaw.theory.learn.target import Target


@dataclass(frozen=True)
class RidgePoint:
    """Solution of a batch: noise level delta, shrinkage s, V, error E, and what the equation for V misses."""

    delta: Reals
    s: Reals
    V: Reals
    E: Reals
    residual: Reals
    steps: int


def solve(batch: ProblemBatch) -> RidgePoint:
    """The fixed point of each problem; `batch.lt` holds lambda.

    >>> one = np.ones((1, 1))
    >>> batch = ProblemBatch(Target.marchenko_pastur(0.5), 0.2 * one, 2 * one, 0.25 * one, np.array([0.1]))
    >>> solve(batch).E.round(6).tolist()
    [1.022695]
    """
    lam = batch.lt

    def c(V: Reals, which: Indices) -> Reals:
        return np.asarray(2 * batch.weight[which] / (1 + 2 * batch.weight[which] * V[:, None]))

    def miss(log_V: Reals, which: Indices) -> Reals:
        V = np.exp(log_V)
        Vhat = (2 * batch.alpha[which] * c(V, which)).sum(axis=1)
        return np.asarray(V * (Vhat + 4 * lam[which]) - 1.0)

    every = np.arange(lam.size)
    gain = (4 * batch.alpha * batch.weight).sum(axis=1) + 4 * lam
    # V Vhat grows with V up to sum 2 alpha_k: without a penalty there is a root only beyond 1/2.
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


@dataclass(frozen=True)
class PartsPoint:
    """Errors of the symmetric and the antisymmetric part of S, which sum to E, and the training loss."""

    symmetric: float
    antisymmetric: float
    training_loss: float


def all_pairs(
    alpha: float, tokens: int, noise: float, weight_decay: float, target: Target, symmetric_share: float = 0.5
) -> PartsPoint:
    """The untied direct student that sees all T^2 ordered pairs of a sequence, self pairs too.

    Self pairs (noise Delta, centred by Tr S/sqrt(d)) show the symmetric part alone, the sum and the
    difference of a pair's two orders (noise Delta/2 each) one part each. So the parts are two ridges on d^2/2
    unknowns: channels (alpha T, 2, Delta/2) and (alpha T (T-1)/2, 2, Delta/4), the antisymmetric part the
    second alone. `symmetric_share` of Q* is in the symmetric part, 1/2 for a generic target. A factorised
    student has no such theory: the map of its penalty is none of singular values.

    >>> point = all_pairs(0.08, 4, 0.5, 0.1, Target.product(0.5))
    >>> round(point.symmetric, 5), round(point.antisymmetric, 5), round(point.training_loss, 5)
    (0.17722, 0.22792, 1.71508)
    """
    self_channel = Channel(alpha * tokens, 2.0, noise / 2)
    mixed = Channel(alpha * tokens * (tokens - 1) / 2, 2.0, noise / 4)
    errors, loss = [], 0.0
    for channels, share in (((self_channel, mixed), symmetric_share), ((mixed,), 1 - symmetric_share)):
        part = Target.discrete([float(np.sqrt(share * target.second_moment))])
        alphas, weights, noises = np.array(
            [[channel.alpha, channel.weight, channel.noise] for channel in channels]
        ).T
        batch = ProblemBatch(part, alphas[None], weights[None], noises[None], np.array([weight_decay]))
        point = solve(batch)
        errors.append(float(point.E[0]))
        terms = batch.alpha * batch.weight * (point.E[:, None] + batch.noise)
        loss += float((terms / (1 + 2 * batch.weight * point.V[:, None]) ** 2).sum() / alpha)
    return PartsPoint(errors[0], errors[1], loss)
