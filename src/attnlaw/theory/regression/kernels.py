"""Kernel ridge as linear ridge: what a kernel f(x . x'/p) learns from n ~ p samples under covariate shift.

| here | means |
|---|---|
| tau_g | Tr Sigma_g / p, the squared length of inputs of group g over p |
| slope | f'(0) |
| gamma_g | f(tau_g) - f(0) - f'(0) tau_g, the nonlinearity's own ridge |

With weights through `K + ridge W^-1` kernel ridge has the risk of linear ridge regression with ridge 1 and

    w_g -> (n/p) slope / (gamma_g + ridge/w_g)

(El Karoui 2010 for the linearisation; arXiv 2406.03171 studies the weights.) So weights act only where
ridge/w_g is not small against gamma_g, and not at all as the ridge vanishes; and longer inputs count less
even without weights. f(0) and f'' add finite ranks, which drop out for a teacher without intercept.
Corrections are of order 1/p, 3 to 20 per cent for p = 100 to 800.

Random features act(F x / sqrt(d)) and their Gaussian equivalents.

| here | means, g standard normal |
|---|---|
| kappa_1 | E g act(g), the linear part |
| kappa_*^2 | E act(g)^2 - kappa_1^2, the rest, which acts as noise (act is odd, so its mean is 0) |
| s | eigenvalues of F F^T/d: Marchenko-Pastur with p/d, an atom 1 - d/p at 0 where p > d |
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.lazy import resolve
from attnlaw.core.settings import check_value
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.limit.kernels import activation, linearised
from attnlaw.theory.regression.problem import FEATURES, KERNELS, Regression


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


def kernel_weights(problem: Regression, kernel: str) -> Reals:
    """The effective weights of the groups of a problem under a kernel of `KERNELS`."""
    chosen = KERNELS[check_value("kernel", kernel, str, choices=KERNELS)]
    lengths = [_trace(group.covariance) / problem.dimension for group in problem.groups]
    slopes, remainders = zip(
        *(resolve(chosen.parts)(tau, *chosen.parameters) for tau in lengths), strict=True
    )
    # All slopes are equal: (E psi'(g))^2 of these activations does not depend on the variance of g.
    return effective_weights(problem.weights, slopes[0], remainders, problem.ridge)


def linear_equivalent(problem: Regression, kernel: str) -> Regression:
    """The linear problem whose `ridge_risk` is that of kernel ridge on this one, with its ridge and weights.

    `kernel` is one of `KERNELS`: "exp", or an activation of `limit` whose kernel is known.

    >>> from attnlaw.theory.regression.problem import Group
    >>> problem = Regression((Group(1.0, np.ones(100)),), np.ones(100), samples=50, ridge=0.5)
    >>> linear_equivalent(problem, "identity").groups[0].weight  # (n/p)/ridge, with ridge 1
    1.0
    """
    weights = problem.samples / problem.dimension * kernel_weights(problem, kernel)
    pairs = zip(problem.groups, weights, strict=True)
    return replace(problem, groups=tuple(replace(group, weight=weight) for group, weight in pairs), ridge=1.0)


def kernel_matrix(kernel: str, X: Reals, Y: Reals) -> Reals:
    """The n x m matrix of a kernel of `KERNELS` between inputs X (n x p) and Y (m x p).

    >>> kernel_matrix("exp", np.zeros((1, 2)), np.ones((2, 2))).tolist()
    [[1.0, 1.0]]
    """
    chosen = KERNELS[check_value("kernel", kernel, str, choices=KERNELS)]
    matrix: Reals = resolve(chosen.matrix)(X, Y, *chosen.parameters)
    return matrix


def exponential_parts(tau: float) -> tuple[float, float]:
    return 1.0, math.expm1(tau) - tau


def exponential_matrix(X: Reals, Y: Reals) -> Reals:
    return np.asarray(np.exp(X @ Y.T / X.shape[1]))


def layer_parts(tau: float, name: str) -> tuple[float, float]:
    return linearised(name, tau)


def layer_matrix(X: Reals, Y: Reals, name: str) -> Reals:
    p = X.shape[1]
    a, b = np.broadcast_arrays((X**2).sum(1)[:, None] / p, (Y**2).sum(1) / p)
    kernel = activation(name).kernel
    assert kernel is not None, f"{name} has no kernel in closed form"
    return np.asarray(resolve(kernel)(a, b, X @ Y.T / p))


def _trace(covariance: ArrayLike) -> float:
    values = np.asarray(covariance)
    return float(values.sum() if values.ndim == 1 else np.trace(values))


FAR = 12.0  # standard deviations; the mass beyond is below the floats


def apply(name: str, x: Reals) -> Reals:
    """act(x), entry by entry.

    >>> apply("tanh:2", np.array([0.5])).round(6).tolist()
    [0.761594]
    """
    chosen = FEATURES[name]
    values: Reals = resolve(chosen.function)(x, *chosen.parameters)
    return values


def moments(name: str) -> tuple[float, float]:
    """kappa_1 and kappa_*^2.

    >>> [round(value, 6) for value in moments("sign")]
    [0.797885, 0.36338]
    """
    chosen = FEATURES[name]
    kappas: tuple[float, float] = resolve(chosen.moments)(*chosen.parameters)
    return kappas


def spectrum(features: int, inputs: int) -> tuple[Reals, Reals]:
    """Points and weights of the law of F F^T/d, F of shape features x inputs; its atom is among them."""
    law = MarchenkoPastur(inputs / features, scale=math.sqrt(features / inputs))
    points, weights = law.nodes()
    return np.append(points, [at for at, _ in law.atoms]), np.append(
        weights, [weight for _, weight in law.atoms]
    )


def sign(x: Reals) -> Reals:
    return np.sign(x)


def sign_moments() -> tuple[float, float]:
    return math.sqrt(2 / math.pi), 1 - 2 / math.pi


def tanh(x: Reals, gain: float) -> Reals:
    return np.tanh(gain * x)


def tanh_moments(gain: float) -> tuple[float, float]:
    """By quadrature, cut where tanh(G z) bends."""
    linear, second = (
        2
        * scipy.integrate.quad(
            _weighted, 0.0, FAR, (gain, power), points=[min(3 / gain, FAR / 2)], epsabs=1e-14, epsrel=1e-13
        )[0]
        for power in (1, 2)
    )
    return linear, second - linear**2


def _weighted(z: float, gain: float, power: int) -> float:
    """z tanh or tanh^2, under the density."""
    value = math.tanh(gain * z)
    return (z * value if power == 1 else value**2) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
