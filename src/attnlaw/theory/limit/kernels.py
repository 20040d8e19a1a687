"""Activations and their Gaussian kernels, the means E[psi(u) psi(v)] over jointly normal u and v.

| here    | means                                                    |
|---------|----------------------------------------------------------|
| psi     | an activation, applied entry by entry                    |
| a, b, c | Var u, Var v, Cov(u, v); all means are zero              |
| K       | the kernel, K(a, b, c) = E[psi(u) psi(v)]                |
| rho     | c / sqrt(a b)                                            |
| c_k(a)  | E[psi(sqrt(a) g) He_k(g)] / sqrt(k!), g standard normal  |

An MLP block of infinite width applies K to each entry of the Gram matrix Sigma. The random tokens x = psi(W
h) of arXiv 2506.00846 have Sigma_ii = K(1, 1, 1) and Sigma_ij = K(1, 1, 0), because their pre-activations are
independent.

An activation without a closed form uses Mehler's series, `K = sum_k c_k(a) c_k(b) rho^k`. With 64 terms and a
rule of 200 points, the diagonal of GELU has a relative error of 1e-15 at variance 1, 1e-13 at 2, 1e-10 at 3
and 1e-5 at 9. Off the diagonal, the error also falls like rho^64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from attnlaw.core.errors import BadSetting
from attnlaw.core.settings import check_value
from attnlaw.core.variants import Variants, parse_positive, with_parameter
from attnlaw.theory.limit.wishart import Array

TERMS, POINTS = 64, 200


@dataclass(frozen=True)
class Activation:
    """An activation function psi, and its Gaussian kernel if it has a closed form."""

    name: str
    function: Callable[..., Array]  # psi(x, *parameters), entry by entry
    # Returns E[psi(u) psi(v)] of Var u, Var v and Cov(u, v); None without a closed form.
    kernel: Callable[[Array, Array, Array], Array] | None = None
    # Returns E psi(g)^2 and (E psi(g))^2 of the parameters, if Mehler's series converges too slowly.
    moments: Callable[..., tuple[float, float]] | None = None
    linear: bool = False  # whether Gaussian tokens stay Gaussian
    example: str | None = None  # a name with a parameter, such as `clip:2`
    parameters: tuple[float, ...] = ()

    def at(self, parameter: str) -> Activation:
        return with_parameter(self, parameter, parse_positive(parameter))


def gelu(x: Array) -> Array:
    """Return the exact GELU, x times the standard normal distribution function of x."""
    return np.asarray(x * scipy.special.ndtr(x))


def gelu_new(x: Array) -> Array:
    """Return the tanh approximation of GELU (GPT-2, Gemma). It differs by less than 5e-4 from GELU."""
    inner = math.sqrt(2 / math.pi) * (x * (1 + 0.044715 * (x * x)))
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


def clip(x: Array, bound: float) -> Array:
    return np.clip(x, -bound, bound)


def clip_moments(bound: float) -> tuple[float, float]:
    """Return E psi(g)^2 and (E psi(g))^2 = 0 if psi clips a standard normal g to [-C, C], C = `bound`."""
    tail = 2 * float(scipy.special.ndtr(-bound))
    density = math.exp(-bound * bound / 2) / math.sqrt(2 * math.pi)
    return (1 - tail) - 2 * bound * density + bound * bound * tail, 0.0


def relu_kernel(a: Array, b: Array, c: Array) -> Array:
    """Return E[relu(u) relu(v)], the arc-cosine kernel of order 1 (Cho and Saul, 2009)."""
    scale = np.sqrt(a * b)
    cosine = np.clip(np.divide(c, scale, out=np.zeros_like(scale), where=scale > 0), -1.0, 1.0)
    angle = np.arccos(cosine)
    # sin(angle) as sqrt((1-x)(1+x)) keeps its digits if the cosine is near 1.
    sine = np.sqrt((1 - cosine) * (1 + cosine))
    return np.asarray(scale * (sine + (math.pi - angle) * cosine) / (2 * math.pi))


def gelu_kernel(a: Array, b: Array, c: Array) -> Array:
    """Return E[gelu(u) gelu(v)] for the exact GELU x Phi(x)."""
    product = (1 + a) * (1 + b)
    arc = np.arcsin(c / np.sqrt(product)) / (2 * math.pi)
    rest = (a * b + c * c * (1 / (1 + a) + 1 / (1 + b) - 1)) / (2 * math.pi * np.sqrt(product - c * c))
    return np.asarray(c * (0.25 + arc) + rest)


ACTIVATIONS = Variants(
    Activation("identity", lambda x: x, lambda a, b, c: c, linear=True),
    Activation("relu", lambda x: np.maximum(x, 0.0), relu_kernel),
    Activation("gelu", gelu, gelu_kernel),
    Activation("gelu_new", gelu_new),
    Activation("silu", lambda x: np.asarray(x * scipy.special.expit(x))),
    # Clipped to [-C, C].
    Activation("clip:C", clip, moments=clip_moments, example="clip:2"),
)


def activation(name: str) -> Activation:
    """Return the activation with this name, such as `relu` or `clip:2`."""
    return ACTIVATIONS[check_value("activation", name, str, choices=ACTIVATIONS)]


def apply(name: str, x: Array) -> Array:
    """Apply the activation with this name to each entry of x."""
    psi = activation(name)
    return psi.function(x, *psi.parameters)


def moments(name: str) -> tuple[float, float]:
    """Return E psi(g)^2 and (E psi(g))^2 for an activation psi and a standard normal g."""
    psi, ones = activation(name), np.ones(1)
    if psi.moments is not None:
        return psi.moments(*psi.parameters)
    if psi.kernel is None:
        independent = mehler_kernel(psi.function, np.eye(2))
        return float(independent[0, 0]), float(independent[0, 1])
    return float(psi.kernel(ones, ones, ones)[0]), float(psi.kernel(ones, ones, 0 * ones)[0])


@lru_cache(maxsize=1)
def _rule() -> tuple[Array, Array]:
    """Return quadrature nodes, and weights times the normalised Hermite polynomials (points, terms)."""
    nodes, weights = scipy.special.roots_hermitenorm(POINTS)
    weights = weights / weights.sum()
    rows = [np.ones(POINTS), nodes]
    for k in range(1, TERMS - 1):  # He_{k+1} = x He_k - k He_{k-1}, each over sqrt(k!)
        rows.append((nodes * rows[k] - np.sqrt(k) * rows[k - 1]) / np.sqrt(k + 1))
    return nodes, weights[:, None] * np.stack(rows, axis=1)


def coefficients(psi: Callable[[Array], Array], variances: Array) -> Array:
    """Return the Hermite coefficients c_k(a) of psi for variances a, with k along the last axis."""
    nodes, weights = _rule()
    distinct, back = np.unique(variances, return_inverse=True)
    table = psi(np.sqrt(distinct)[:, None] * nodes) @ weights
    return np.asarray(table[back.reshape(variances.shape)])


def mehler_kernel(psi: Callable[[Array], Array], gram: Array) -> Array:
    """Return E[psi(u_i) psi(u_j)] for normals u with covariance `gram` (..., s, s), by Mehler's series."""
    variances = np.diagonal(gram, axis1=-2, axis2=-1)
    c = coefficients(psi, variances)
    scale = np.sqrt(variances[..., :, None] * variances[..., None, :])
    rho = np.clip(np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0), -1.0, 1.0)
    total = np.zeros_like(gram)
    for k in reversed(range(TERMS)):  # Horner's scheme
        total = total * rho + c[..., :, None, k] * c[..., None, :, k]
    return total


def kernel_map(name: str, gram: Array) -> Array:
    """Return the Gram matrices after an MLP block of infinite width with this activation."""
    psi = activation(name)
    if psi.kernel is None and not psi.parameters:
        return mehler_kernel(psi.function, gram)
    variances = np.diagonal(gram, axis1=-2, axis2=-1)
    a, b = np.broadcast_arrays(variances[..., :, None], variances[..., None, :])
    assert psi.kernel is not None, f"{name} has no kernel"
    return psi.kernel(a, b, gram)


def linearised(name: str, variance: float) -> tuple[float, float]:
    """Return the slope and the remainder of an activation's kernel for inputs of a given variance.

    With K of the module and the variance v, `K(v, v, c) = K(v, v, 0) + slope c + ...` and `remainder = K(v,
    v, v) - K(v, v, 0) - slope v`. If the number of samples is proportional to the dimension, the kernel acts
    like a linear one with a ridge of size `remainder` (El Karoui, 2010).
    """
    v = check_value("variance", variance, float, greater_than=0)
    kernel = activation(name).kernel
    if kernel is None:
        raise BadSetting("activation", "expected an activation whose kernel is known in closed form", name)
    step = 1e-3 * v
    places = np.array([0.0, v, -2 * step, -step, step, 2 * step])
    at_zero, at_one, *near = kernel(np.full(6, v), np.full(6, v), places).tolist()
    # By Price's theorem the slope is (E psi'(g))^2, here by a finite difference of order four.
    slope = (near[0] - 8 * near[1] + 8 * near[2] - near[3]) / (12 * step)
    return slope, at_one - at_zero - slope * v
