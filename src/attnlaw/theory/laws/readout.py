"""The error of a linear readout of random attention features, computed from their spectral law alone.

Features F are n x d_O, the centred output of a random attention layer. Targets are `F theta + noise`, theta
with unit variance in each coordinate (arXiv 2610.10033, section 5).

| letter | meaning |
|---|---|
| x | an eigenvalue of `F F^T` in units of the law's mean |
| lambda | the ridge penalty in the same units |
| s2 | `noise_variance` in the same units: the variance of a target's noise times `n / (d_O mean)` |
| gO | `d_O / n`, the law's output ratio |
| w | `int x/(x + lambda)` over the spectrum with its zeros: degrees of freedom over n |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value
from attnlaw.theory.laws.law import Law
from attnlaw.theory.laws.multi_head import MultiHeadLaw
from attnlaw.theory.laws.tied_values import TiedValuesLaw

OutputLaw = MultiHeadLaw | TiedValuesLaw


@dataclass(frozen=True)
class Readout:
    """The error of ridge regression on the features of a random attention layer.

    Args:
        coefficient_error: `E |estimate - theta|^2 / d_O`, which is 1 if nothing is learned.
        degrees_of_freedom: the degrees of freedom divided by n (w).
    """

    coefficient_error: float
    degrees_of_freedom: float


def readout(law: OutputLaw, ridge: float, noise_variance: float = 0.0) -> Readout:
    """Compute the error of ridge regression on random attention features.

    The error of the coefficients is `1 - w/gO + (lambda/gO - s2) w'(lambda)` (equations 5.2 and 5.4).

    Args:
        law: the law of a layer's output, with an output ratio.
        ridge: the penalty lambda, in units of the law's mean.
        noise_variance: the variance of a target's noise times `n/(d_O mean)` (s2).

    >>> law = MultiHeadLaw(1.0, heads=16, key_ratio=1.0, value_ratio=1.0, output_ratio=2.0)
    >>> result = readout(law, ridge=0.01, noise_variance=0.1)
    >>> round(result.coefficient_error, 4), round(result.degrees_of_freedom, 4)
    (1.1536, 0.8567)
    """
    gO = law.output_ratio
    if gO is None:
        raise InputError("readout: the law has no output; give output_ratio, which is d_O / n")
    check_value("ridge", ridge, float, greater_than=0)
    check_value("noise_variance", noise_variance, float, minimum=0)
    x, weights = _spectrum(law)
    share = x / (x + ridge)
    w, slope = float(weights @ share), -float(weights @ (share / (x + ridge)))
    return Readout(1 - w / gO + (ridge / gO - noise_variance) * slope, w)


def training_loss(law: Law, times: ArrayLike) -> Reals:
    """Return the loss of a readout during gradient flow, relative to the loss at the start.

    It is `int e^(-2 t x)` over the spectrum, including zeros. A part of a random target is in directions of
    eigenvalue zero, and is never learned.

    Args:
        times: the times t, in units of 1 / mean of the law (any shape).

    >>> law = MultiHeadLaw(1.0, heads=64, key_ratio=1.0, value_ratio=1.0, output_ratio=2.0)
    >>> training_loss(law, [0.0, 41.224]).round(4).tolist()
    [1.0, 0.1]
    """
    times = np.asarray(times, dtype=float)
    x, weights = _spectrum(law)
    return np.asarray(np.exp(-2 * times[..., None] * x) @ weights + law.mass_of_atoms)


def arrival_time(law: Law, loss: float = 0.1) -> float | None:
    """Return the time at which the `training_loss` falls to `loss`, or None if it never does.

    >>> law = MultiHeadLaw(1.0, heads=64, key_ratio=1.0, value_ratio=1.0, output_ratio=2.0)
    >>> round(arrival_time(law), 2)
    41.22
    """
    check_value("loss", loss, float, greater_than=0, maximum=1)
    if loss <= law.mass_of_atoms:
        return None

    def gap(log_time: float) -> float:
        return float(np.log(training_loss(law, np.exp(log_time)) / loss))

    late = 0.0
    while gap(late) > 0:
        late += 2.0
    return float(np.exp(scipy.optimize.brentq(gap, -60.0, late, xtol=1e-13)))


def _spectrum(law: Law) -> tuple[Reals, Reals]:
    """Return the nodes and weights of the law's continuous part, with nodes in units of the mean."""
    x, weights = law.nodes()
    return x / law.mean, weights
