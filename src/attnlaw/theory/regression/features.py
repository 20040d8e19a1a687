"""Random features act(F x / sqrt(d)) and their Gaussian equivalents.

| here | means, g standard normal |
|---|---|
| kappa_1 | E g act(g), the linear part |
| kappa_*^2 | E act(g)^2 - kappa_1^2, the rest, which acts as noise (act is odd, so its mean is 0) |
| s | eigenvalues of F F^T/d: Marchenko-Pastur with p/d, an atom 1 - d/p at 0 where p > d |
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

from attnlaw.core.lazy import resolve
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.regression.variants import FEATURES

Reals = NDArray[np.float64]
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
        * quad(
            _weighted, 0.0, FAR, (gain, power), points=[min(3 / gain, FAR / 2)], epsabs=1e-14, epsrel=1e-13
        )[0]
        for power in (1, 2)
    )
    return linear, second - linear**2


def _weighted(z: float, gain: float, power: int) -> float:
    """z tanh or tanh^2, under the density."""
    value = math.tanh(gain * z)
    return (z * value if power == 1 else value**2) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
