"""What can be learned from random attention features by a linear readout, from their spectral law alone.

Features F are n x d_O, the centred output of a random attention layer, targets `F theta + noise`, theta of
unit variance per coordinate (arXiv 2610.10033, section 5).

| letter | meaning |
|---|---|
| x | an eigenvalue of `F F^T` in units of the law's mean |
| ridge | the penalty lambda in the same units |
| s2 | `noise_variance` in the same units: that of a target times `n / (d_O mean)` |
| gO | `d_O / n`, the law's output ratio |
| w | `int x/(x + lambda)`, zeros of the spectrum included: degrees of freedom over n |
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
    """`coefficient_error` is `E |estimate - theta|^2 / d_O`, 1 where nothing is learned.

    `degrees_of_freedom` is w, over n.
    """

    coefficient_error: float
    degrees_of_freedom: float


def readout(law: OutputLaw, ridge: float, noise_variance: float = 0.0) -> Readout:
    """Ridge regression on attention features: `1 - w/gO + (lambda/gO - s2) w'(lambda)` (5.2, 5.4).

    `ridge` is in units of the law's mean, `noise_variance` is that of a target times `n/(d_O mean)`.

    >>> law = MultiHeadLaw(1.0, heads=16, key_ratio=1.0, value_ratio=1.0, output_ratio=2.0)
    >>> found = readout(law, ridge=0.01, noise_variance=0.1)
    >>> round(found.coefficient_error, 4), round(found.degrees_of_freedom, 4)
    (1.1536, 0.8567)
    """
    gO = law.output_ratio
    if gO is None:
        raise InputError("readout: found a law without an output; give its output_ratio, d_O / n")
    check_value("ridge", ridge, float, greater_than=0)
    check_value("noise_variance", noise_variance, float, minimum=0)
    x, weights = _spectrum(law)
    share = x / (x + ridge)
    w, slope = float(weights @ share), -float(weights @ (share / (x + ridge)))
    return Readout(1 - w / gO + (ridge / gO - noise_variance) * slope, w)


def training_loss(law: Law, times: ArrayLike) -> Reals:
    """Loss of a readout trained by gradient flow, over that at the start: `int e^(-2 t x)`, zeros included.

    Time is in units of 1 / mean; the loss is that of a target in general position, to which what the features
    cannot reach, the atom at zero, belongs.

    >>> law = MultiHeadLaw(1.0, heads=64, key_ratio=1.0, value_ratio=1.0, output_ratio=2.0)
    >>> training_loss(law, [0.0, 41.224]).round(4).tolist()
    [1.0, 0.1]
    """
    times = np.asarray(times, dtype=float)
    x, weights = _spectrum(law)
    return np.asarray(np.exp(-2 * times[..., None] * x) @ weights + law.mass_of_atoms)


def arrival_time(law: Law, loss: float = 0.1) -> float | None:
    """The time at which `training_loss` comes down to `loss`; None where it never does.

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
    """Nodes of the continuous part in units of the mean, and their weights."""
    x, weights = law.nodes()
    return x / law.mean, weights
