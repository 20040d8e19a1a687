"""Activations and their Gaussian kernels: E[psi(u) psi(v)] for jointly normal u, v.

| here         | means                                             |
|--------------|---------------------------------------------------|
| a, b, c      | Var u, Var v, Cov(u, v), all means zero           |
| K(a, b, c)   | E[psi(u) psi(v)]                                  |

An MLP block of infinite width maps the Gram matrix Sigma entry by entry through K; the paper's
input x = psi(W h) has Sigma_ii = K(1, 1, 1) and Sigma_ij = K(1, 1, 0) (independent pre-activations).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from attnlaw.base.errors import InputError
from attnlaw.limits.wishart import Array


@dataclass(frozen=True)
class Activation:
    """An activation with the Gram matrix entries of `psi(g)` for independent standard normals g.

    `second_moment` is E psi(g)^2 and `squared_mean` is (E psi(g))^2.
    """

    name: str
    function: Callable[[Array], Array]
    second_moment: float
    squared_mean: float

    @property
    def linear(self) -> bool:
        """Whether psi is the identity, so that tokens stay Gaussian."""
        return self.name == "identity"


def activation(name: str) -> Activation:
    """The activation called `identity`, `relu`, `gelu` or `clip:C` (clipped to [-C, C]).

    >>> activation("relu").second_moment, round(activation("relu").squared_mean * 2 * math.pi, 12)
    (0.5, 1.0)
    """
    if name == "identity":
        return Activation(name, lambda x: x, 1.0, 0.0)
    if name in ("relu", "gelu"):
        kernel = KERNELS[name]
        one = np.ones(1)
        moments = (float(kernel(one, one, one)[0]), float(kernel(one, one, 0 * one)[0]))
        return Activation(name, _relu if name == "relu" else _gelu, *moments)
    if name.startswith("clip:"):
        return _clip(name)
    raise InputError(
        f"activation {name!r} is unknown; choose identity, relu, gelu or clip:C, for example clip:2"
    )


def _clip(name: str) -> Activation:
    text = name.removeprefix("clip:")
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if not 0 < bound < math.inf:
        raise InputError(f"activation {name!r}: the bound {text!r} is not a positive number; write clip:2")
    # E min(g^2, C^2) = P(|g| < C) - 2 C phi(C) + C^2 P(|g| > C)
    tail = 2 * float(ndtr(-bound))
    density = math.exp(-bound * bound / 2) / math.sqrt(2 * math.pi)
    second_moment = (1 - tail) - 2 * bound * density + bound * bound * tail
    return Activation(name, lambda x: np.clip(x, -bound, bound), second_moment, 0.0)


def _relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def _gelu(x: Array) -> Array:
    result: Array = x * ndtr(x)
    return result


def relu_kernel(a: Array, b: Array, c: Array) -> Array:
    """E[relu(u) relu(v)], the arc-cosine kernel of order 1 (Cho and Saul, 2009).

    >>> two, half = np.array([2.0]), np.array([0.5])
    >>> float(relu_kernel(two, two, two)[0]), float(relu_kernel(two, half, 0 * two)[0].round(6))
    (1.0, 0.159155)
    """
    scale = np.sqrt(a * b)
    cosine = np.clip(np.divide(c, scale, out=np.zeros_like(scale), where=scale > 0), -1.0, 1.0)
    angle = np.arccos(cosine)
    # sin(angle) as sqrt((1-x)(1+x)) keeps its digits where the cosine is near 1.
    sine = np.sqrt((1 - cosine) * (1 + cosine))
    result: Array = scale * (sine + (math.pi - angle) * cosine) / (2 * math.pi)
    return result


def gelu_kernel(a: Array, b: Array, c: Array) -> Array:
    """E[gelu(u) gelu(v)] for the exact GELU x Phi(x), in closed form.

    `c (1/4 + asin(c/sqrt((1+a)(1+b)))/(2 pi))
    + (a b + c^2 (1/(1+a) + 1/(1+b) - 1)) / (2 pi sqrt((1+a)(1+b) - c^2))`.

    >>> one = np.ones(1)
    >>> round(float(gelu_kernel(one, one, 0 * one)[0]) * 4 * math.pi, 12)  # (E gelu)^2 = 1/(4 pi)
    1.0
    """
    product = (1 + a) * (1 + b)
    arc = np.arcsin(c / np.sqrt(product)) / (2 * math.pi)
    rest = (a * b + c * c * (1 / (1 + a) + 1 / (1 + b) - 1)) / (2 * math.pi * np.sqrt(product - c * c))
    result: Array = c * (0.25 + arc) + rest
    return result


KERNELS: dict[str, Callable[[Array, Array, Array], Array]] = {"relu": relu_kernel, "gelu": gelu_kernel}


def kernel_map(name: str, gram: Array) -> Array:
    """The Gram matrices (..., s, s) after an MLP block of infinite width with activation `name`.

    >>> kernel_map("relu", 2 * np.eye(2)).round(6).tolist()
    [[1.0, 0.31831], [0.31831, 1.0]]
    """
    variances = np.diagonal(gram, axis1=-2, axis2=-1)
    a, b = np.broadcast_arrays(variances[..., :, None], variances[..., None, :])
    return KERNELS[name](a, b, gram)
