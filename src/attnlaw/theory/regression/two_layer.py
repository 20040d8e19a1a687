"""Two-layer linear networks x -> x . (W^T v) that fit their labels exactly by gradient flow.

| here | meaning |
|---|---|
| w | the learned vector W^T v; w_0 at the start, w_mn the interpolator of least norm X^+ y |
| P | I - X^+ X, the projection on directions that the data do not see |
| kappa | the fixed point e of ridge regression without a ridge (see `risk`) |

From a balanced start (W W^T = v v^T) the flow is a mirror flow of |w|^(3/2) in warped time, so its limit is

    w = w_mn + (|w|/|w_0|)^(1/2) P w_0,   |w| = (a + (a^2 + 4 |w_mn|^2)^(1/2))/2,   a = |P w_0|^2/|w_0|

(ours; arXiv 2108.11489 bounds its risk). A start that is not balanced has no such formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals, require_shapes
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.core.settings import check_value
from attnlaw.numerics.draws import generators, mean_of
from attnlaw.theory.regression.problem import Regression
from attnlaw.theory.regression.risk import outcome_and_remark, solve
from attnlaw.theory.regression.simulate import draw, squared_norm


@dataclass(frozen=True, eq=False)
class Interpolator:
    """The learned vector w, its norm, and its distance to the interpolator of least norm."""

    weights: Reals
    norm: float
    distance_to_least_norm: float


@dataclass(frozen=True)
class TwoLayerRisk:
    """The excess risk, on noise-free labels, of a two-layer network that fits its labels exactly."""

    bias: float  # bias of the interpolator of least norm
    variance: float  # variance of the interpolator of least norm
    start: float  # risk that the start adds
    norm: float  # norm |w| of the learned vector
    least_norm: float  # root mean square of |w_mn|
    residual: float  # error that remains in the fixed-point equation
    outcome: Outcome = Outcome.DONE
    remark: str | None = None

    @property
    def excess(self) -> float:
        return self.bias + self.variance + self.start


def two_layer_limit(inputs: ArrayLike, labels: ArrayLike, start: ArrayLike) -> Interpolator:
    """Return the vector w that gradient flow on the squared loss learns from a balanced start.

    Args:
        labels: the n labels y. A vector w that fits them exactly must exist.
        start: the start vector w_0, with p numbers.

    >>> limit = two_layer_limit([[1.0, 0.0]], [2.0], start=[0.0, 1.0])
    >>> limit.weights.round(6).tolist()  # |w| = (1 + sqrt 17)/2, along the unseen direction sqrt |w|
    [2.0, 1.600485]
    """
    X, y, w_0 = (np.asarray(values, dtype=float) for values in (inputs, labels, start))
    fits = X.ndim == 2 and y.shape == X.shape[:1] and w_0.shape == X.shape[1:]
    require_shapes(fits, "two layers", "n x p, n and p", inputs=X, labels=y, start=w_0)
    start_norm = float(np.linalg.norm(w_0))
    if start_norm == 0:
        raise InputError(
            "two layers: the initial weights are zero, which gradient flow never leaves; give other "
            "initial weights"
        )
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    seen = s > np.finfo(float).eps * max(X.shape) * s[0]
    U, s, Vt = U[:, seen], s[seen], Vt[seen]
    least = Vt.T @ (U.T @ y / s)
    miss = float(np.linalg.norm(X @ least - y))
    if miss > 1e-8 * float(np.linalg.norm(y)):
        raise InputError(
            f"two layers: no map fits the labels (the best one misses them by {miss:.3g}); "
            "give fewer samples than directions"
        )
    unseen = w_0 - Vt.T @ (Vt @ w_0)
    norm = _norm(float(unseen @ unseen) / start_norm, float(least @ least))
    moved = np.sqrt(norm / start_norm) * unseen
    return Interpolator(least + moved, norm, float(np.linalg.norm(moved)))


def two_layer_risk(problem: Regression, scale: float) -> TwoLayerRisk:
    """Return the mean risk over random starts w_0 = scale^2 u with a random direction u.

    The risk is `bias + variance + |w| scale^2 q`, where q is the bias if the signal is a random direction.
    The formula for |w| uses the means of two squared lengths, where l are the eigenvalues of the covariance:

        E |P w_0|^2 = (scale^4/p) sum kappa/(l + kappa)
        E |w_mn|^2 = sum theta^2 l/(l + kappa) + sigma^2/kappa

    Args:
        problem: a problem with one group, without a ridge, and with fewer samples than directions.
        scale: scale of each layer at the start.
    """
    s = check_value("scale", scale, float, greater_than=0)
    if len(problem.groups) > 1 or problem.ridge > 0 or problem.samples >= problem.dimension:
        raise InputError(
            f"two layers: found {len(problem.groups)} groups, ridge {problem.ridge:g}, "
            f"{problem.samples} samples and {problem.dimension} dimensions; expected one group, no ridge, "
            "fewer samples than dimensions"
        )
    point = solve(problem)
    # Without a ridge R is kappa (Sigma + kappa)^-1.
    theta, R = np.asarray(problem.signal), point.R
    unseen, trace = (R * theta, R.sum()) if R.ndim == 1 else (R @ theta, np.trace(R))
    least = float(theta @ (theta - unseen) + problem.noises[0] / point.e[0])
    norm = _norm(s**2 * float(trace) / problem.dimension, least)
    start, root = norm * s**2 * point.bias_of(None), float(np.sqrt(least))
    numbers = point.bias_of(theta), point.variance, start, norm, root, point.residual
    return TwoLayerRisk(*numbers, *outcome_and_remark(point))


@dataclass(frozen=True)
class MeasuredTwoLayer:
    """Measured risk and norm: means over random data and starts, with their standard errors."""

    excess: Estimate
    norm: Estimate
    seeds: int


def simulate_two_layer(problem: Regression, scale: float, seeds: int = 8, seed: int = 0) -> MeasuredTwoLayer:
    """Draw data and starts, and compute the mean risk of the exact end points of the flow."""
    theta, target = np.asarray(problem.signal), problem.covariances[1]
    excess, norms = [], []
    for rng in generators(seed, seeds):
        X, y = draw(problem, rng)
        u = rng.standard_normal(problem.dimension)
        limit = two_layer_limit(X, y, scale**2 * u / np.linalg.norm(u))
        excess.append(squared_norm(limit.weights - theta, target))
        norms.append(limit.norm)
    return MeasuredTwoLayer(mean_of(excess), mean_of(norms), seeds)


def _norm(a: float, least: float) -> float:
    """Return the norm |w| of the limit, given a and `least` = |w_mn|^2."""
    return 0.5 * (a + float(np.sqrt(a * a + 4 * least)))
