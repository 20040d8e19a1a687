"""Gradient flow on beta = w.w - v.v from small w = v = a, which acts as a hard threshold if it stops early.

The parametrisation is that of arXiv 2007.08322.

| letter | meaning |
|---|---|
| phi | target of the loss `|beta|^2 - 2 <beta, phi>`: coefficients, or eigenvalues of a matrix |
| a | `init`, the start of every w and v |
| r | w^2; the flow conserves w v = a^2, so beta = r - a^4/r for phi > 0 |
| tau | `threshold`: a coefficient phi = tau is half-way at the time of stopping |

Coordinates decouple, and r is logistic (ours, exact):

    R = (phi^2 + 4 a^4)^(1/2),   r+ = (|phi| + R)/2,   r- = -a^4/r+
    r(t) = r- + R expit(8 R t + ln((a^2 - r-)/(r+ - a^2))),   beta = sign(phi) (r - a^4/r)

Matrices W W^T - V V^T from W = V = a I have the same flow on their eigenvalues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value
from attnlaw.core.variants import by_name


def stopping_time(threshold: ArrayLike, init: float) -> Reals:
    """Return the time at which a coefficient of size tau is half learned, `ln(tau/a^2)/(8 tau)`.

    The formula is correct to leading order in the start a. The time decreases with tau only above e a^2.

    >>> float(stopping_time(0.5, 1e-4).round(6))
    4.431883
    """
    a = check_value("init", init, float, greater_than=0)
    tau = np.asarray(threshold, dtype=float)
    if tau.size and not tau.min() > np.e * a * a:
        raise InputError(
            f"early stopping: found a threshold {tau.min():g} for a start of {a:g}, expected a threshold "
            f"above {np.e * a * a:.3g}; choose a smaller initialisation scale"
        )
    return np.asarray(np.log(tau / a**2) / (8 * tau))


def flow_at_time(phi: ArrayLike, init: float, time: ArrayLike) -> Reals:
    """Return the exact coefficients beta at a time of the flow, for the targets phi.

    >>> flow_at_time(0.7, 1e-3, [1.0, 2.0, 2.5, 3.0]).round(12).tolist()
    [0.000270319047, 0.066213201459, 0.44245873451, 0.676070081449]
    """
    a2 = check_value("init", init, float, greater_than=0) ** 2
    signed, t = np.asarray(phi, dtype=float), np.asarray(time, dtype=float)
    size = np.abs(signed)
    R = np.hypot(size, 2 * a2)
    # r+ - a^2, in a form that does not cancel if phi is small against a^2.
    ahead = 0.5 * (size + size**2 / (R + 2 * a2))
    low = -(a2**2) / (a2 + ahead)
    with np.errstate(divide="ignore"):  # a zero coefficient stays zero
        place = 8 * R * t + np.log(a2 - low) - np.log(ahead)
    r = low + R * scipy.special.expit(place)
    return np.asarray(np.sign(signed) * (r - a2**2 / r))


def flow_at_threshold(phi: ArrayLike, threshold: ArrayLike, init: float) -> Reals:
    """Return the flow at the stopping time of a threshold. If `init` goes to 0, it becomes `hard`."""
    return flow_at_time(phi, init, stopping_time(threshold, init))


def hard(phi: ArrayLike, threshold: ArrayLike, init: float = 0.0) -> Reals:
    """Return phi if |phi| is above the threshold, and 0 otherwise. The argument `init` has no effect."""
    values = np.asarray(phi, dtype=float)
    return np.where(np.abs(values) > threshold, values, 0.0)


def soft(phi: ArrayLike, threshold: ArrayLike, init: float = 0.0) -> Reals:
    """Return the soft threshold sign(phi) (|phi| - threshold)_+, which an L1 penalty causes."""
    values = np.asarray(phi, dtype=float)
    return np.asarray(np.sign(values) * np.maximum(np.abs(values) - threshold, 0.0))


@dataclass(frozen=True)
class Rule:
    """A rule that keeps large coefficients. It is called as `function(phi, threshold, init)`."""

    name: str
    label: str
    function: Callable[[ArrayLike, ArrayLike, float], Reals]
    starts: bool = False  # whether the rule is a flow, which has a start of scale `init`


RULES = by_name(
    Rule("flow", "gradient flow, stopped", flow_at_threshold, starts=True),
    Rule("hard", "hard threshold", hard),
    Rule("soft", "soft threshold", soft),
)


def descend(phi: Reals, init: float, time: ArrayLike, step: float = 0.02) -> Reals:
    """Return beta after gradient descent. It differs from the exact flow by terms of order `step`."""
    t = np.asarray(time, dtype=float)
    steps = int(np.ceil(t.max() / check_value("step", step, float, greater_than=0)))
    rate = np.broadcast_to(4 * t / steps, phi.shape)
    w = np.full(phi.shape, float(init))
    v, slope, part = w.copy(), np.empty_like(w), np.empty_like(w)
    # Without new arrays: slope = 4 step (phi - w^2 + v^2), w += slope w, v -= slope v.
    for _ in range(steps):
        np.multiply(v, v, out=slope)
        slope += phi
        slope -= np.multiply(w, w, out=part)
        slope *= rate
        w += np.multiply(slope, w, out=part)
        v -= np.multiply(slope, v, out=part)
    return np.asarray(w * w - v * v)
