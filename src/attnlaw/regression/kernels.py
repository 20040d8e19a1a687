"""Kernel ridge as linear ridge: what a kernel f(x . x'/p) learns from n ~ p samples under covariate shift.

| here | means |
|---|---|
| tau_g | Tr Sigma_g / p, the squared length of inputs of group g over p |
| slope | f'(0) |
| gamma_g | f(tau_g) - f(0) - f'(0) tau_g, the nonlinearity's own ridge |

With weights through `K + ridge W^-1` kernel ridge has the risk of linear ridge regression with ridge 1 and

    w_g -> (n/p) slope / (gamma_g + ridge/w_g)

(El Karoui 2010 for the linearisation; arXiv 2406.03171 studies the weights.) So weights act only where
ridge/w_g is not small against gamma_g, and not at all as the ridge vanishes; and longer inputs count less even
without weights. f(0) and f'' add finite ranks, which drop out for a teacher without intercept. Corrections
are of order 1/p, 3 to 20 per cent for p = 100 to 800.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlaw.base.declare import table
from attnlaw.base.settings import require
from attnlaw.limits.kernels import activation, linearised
from attnlaw.base.declare import named
from attnlaw.regression.problem import Regression

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Kernel:
    """A kernel f(x . x'/p): `linearise(tau)` is its slope and remainder, `matrix(X, Y)` its n x m matrix."""

    name: str
    linearise: Callable[[float], tuple[float, float]]
    matrix: Callable[[Reals, Reals], Reals]


def _exponential(X: Reals, Y: Reals) -> Reals:
    return np.asarray(np.exp(X @ Y.T / X.shape[1]))


def _wide_layer(name: str) -> Kernel:
    """The kernel of an infinitely wide layer with an activation of `limit`."""

    def matrix(X: Reals, Y: Reals) -> Reals:
        p = X.shape[1]
        a, b = np.broadcast_arrays((X**2).sum(1)[:, None] / p, (Y**2).sum(1) / p)
        kernel = activation(name).kernel
        assert kernel is not None
        return np.asarray(named(kernel)(a, b, X @ Y.T / p))

    return Kernel(name, lambda tau: linearised(name, tau), matrix)


KERNELS = table(
    Kernel("exp", lambda tau: (1.0, math.expm1(tau) - tau), _exponential),
    _wide_layer("identity"),
    _wide_layer("relu"),
    _wide_layer("gelu"),
)


def effective_weights(weights: ArrayLike, slope: float, remainders: ArrayLike, ridge: float) -> Reals:
    """`slope / (gamma_g + ridge/w_g)`: what is left of the weights of groups in kernel ridge.

    >>> gamma = [math.exp(1) - 2, math.exp(2.2) - 3.2]
    >>> for ridge in (0.01, 1.0):
    ...     first, second = effective_weights([0.25, 4.0], 1.0, gamma, ridge)
    ...     print(round(second / first, 3))
    0.13
    0.777
    """
    w = np.asarray(weights, dtype=float)
    return np.asarray(slope / (np.asarray(remainders, dtype=float) + ridge / w))


def linear_equivalent(problem: Regression, kernel: str) -> Regression:
    """The linear problem whose `ridge_risk` is that of kernel ridge on this one.

    `kernel` is one of `KERNELS`: "exp", or an activation of `limit` whose kernel is known. The ridge and
    weights of the problem are those of kernel ridge.
    """
    chosen = KERNELS[require("kernel", kernel, str, choices=KERNELS)]
    n, p = problem.samples, problem.dimension
    parts = [chosen.linearise(float(_trace(group.covariance)) / p) for group in problem.groups]
    # All slopes are equal: (E psi'(g))^2 of these activations does not depend on the variance of g.
    weights = n / p * effective_weights(problem.weights, parts[0][0], [part[1] for part in parts], problem.ridge)
    groups = tuple(
        replace(group, weight=weight) for group, weight in zip(problem.groups, weights, strict=True)
    )
    return replace(problem, groups=groups, ridge=1.0)


def _trace(covariance: ArrayLike) -> float:
    values = np.asarray(covariance)
    return float(values.sum() if values.ndim == 1 else np.trace(values))
