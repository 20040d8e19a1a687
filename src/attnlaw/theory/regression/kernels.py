"""Kernel ridge regression as linear ridge regression, and how a kernel changes the weights of groups.

A kernel f(x . x'/p) on n samples of dimension p, with n of the order of p, learns a linear function. The rest
of the kernel acts as a ridge.

| here | meaning |
|---|---|
| tau_g | Tr Sigma_g / p, the mean squared length of the inputs of group g over p |
| slope | f'(0) |
| gamma_g | f(tau_g) - f(0) - f'(0) tau_g, the ridge that the nonlinearity adds for group g |

If the weights w_g enter through `K + ridge W^-1`, kernel ridge has the risk of linear ridge regression with
ridge 1 and the weights

    w_g -> (n/p) slope / (gamma_g + ridge/w_g)

(El Karoui 2010 for the linearisation; arXiv 2406.03171 studies the weights.) So weights have no effect as the
ridge vanishes. Corrections are of order 1/p: 3 to 20 per cent for p = 100 to 800.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.settings import check_value
from attnlaw.core.variants import by_name
from attnlaw.theory.limit.kernels import activation, linearised
from attnlaw.theory.regression.problem import Regression


@dataclass(frozen=True)
class Kernel:
    """A kernel function f(x . x'/p) of two inputs."""

    name: str
    label: str
    parts: Callable[[float], tuple[float, float]]  # slope and ridge gamma_g for a squared length tau_g
    matrix: Callable[[Reals, Reals], Reals]  # n x m between inputs X (n x p) and Y (m x p)


def _wide_layer(name: str, label: str) -> Kernel:
    """Return the kernel of an infinitely wide layer with an activation of `theory.limit`."""
    return Kernel(name, label, partial(linearised, name), partial(_wide_layer_matrix, name))


def _wide_layer_matrix(name: str, X: Reals, Y: Reals) -> Reals:
    p = X.shape[1]
    a, b = np.broadcast_arrays((X**2).sum(1)[:, None] / p, (Y**2).sum(1) / p)
    kernel = activation(name).kernel
    assert kernel is not None, f"{name} has no kernel in closed form"
    return np.asarray(kernel(a, b, X @ Y.T / p))


KERNELS = by_name(
    Kernel(
        "exp",
        "exp(x·x'/p)",
        lambda tau: (1.0, math.expm1(tau) - tau),
        lambda X, Y: np.asarray(np.exp(X @ Y.T / X.shape[1])),
    ),
    _wide_layer("identity", "linear"),
    _wide_layer("relu", "a wide ReLU layer"),
    _wide_layer("gelu", "a wide GELU layer"),
)


def effective_weights(weights: ArrayLike, slope: float, remainders: ArrayLike, ridge: float) -> Reals:
    """Return the weights `slope / (gamma_g + ridge/w_g)` that groups have in kernel ridge regression.

    Args:
        remainders: for each group, the ridge gamma_g that the nonlinear part of the kernel adds.

    >>> gamma = [math.exp(1) - 2, math.exp(2.2) - 3.2]
    >>> for ridge in (0.01, 1.0):
    ...     first, second = effective_weights([0.25, 4.0], 1.0, gamma, ridge)
    ...     print(round(second / first, 3))
    0.13
    0.777
    """
    w = np.asarray(weights, dtype=float)
    return np.asarray(slope / (np.asarray(remainders, dtype=float) + ridge / w))


def kernel_weights(problem: Regression, kernel: str) -> Reals:
    """Return the effective weights of a problem's groups under a kernel from `KERNELS`."""
    lengths = [_trace(group.covariance) / problem.dimension for group in problem.groups]
    slopes, remainders = zip(*map(_kernel(kernel).parts, lengths), strict=True)
    # All slopes are equal: (E psi'(g))^2 of these activations does not depend on the variance of g.
    return effective_weights(problem.weights, slopes[0], remainders, problem.ridge)


def linear_equivalent(problem: Regression, kernel: str) -> Regression:
    """Return the linear problem whose risk equals that of kernel ridge regression on `problem`.

    >>> from attnlaw.theory.regression.problem import Group
    >>> problem = Regression((Group(1.0, np.ones(100)),), np.ones(100), samples=50, ridge=0.5)
    >>> linear_equivalent(problem, "identity").groups[0].weight  # (n/p)/ridge, with ridge 1
    1.0
    """
    weights = problem.samples / problem.dimension * kernel_weights(problem, kernel)
    pairs = zip(problem.groups, weights, strict=True)
    return replace(problem, groups=tuple(replace(group, weight=weight) for group, weight in pairs), ridge=1.0)


def kernel_matrix(kernel: str, X: Reals, Y: Reals) -> Reals:
    """Return the n x m kernel values between the rows of X (n x p) and Y (m x p)."""
    return _kernel(kernel).matrix(X, Y)


def _kernel(name: str) -> Kernel:
    return KERNELS[check_value("kernel", name, str, choices=KERNELS)]


def _trace(covariance: ArrayLike) -> float:
    values = np.asarray(covariance)
    return float(values.sum() if values.ndim == 1 else np.trace(values))
