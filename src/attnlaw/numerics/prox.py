"""Convex losses and their proximal operators, for many points at once.

    prox(y, omega, V) = argmin_z  l(y, z) + (z - omega)^2 / (2 V)

| loss | l(y, z) | labels |
|---|---|---|
| square | (y - z)^2 / 2 | numbers |
| logistic | ln(1 + exp(-y z)) | -1 and 1 |
| hinge | max(0, 1 - y z) | -1 and 1 |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from attnlaw.core.arrays import Reals

MOST_STEPS = 200


@dataclass(frozen=True)
class Loss:
    """A convex loss l(y, z) with its derivatives in z and its proximal operator.

    `corners(V)` returns the values of y omega at which the proximal operator has a corner. Integrals are
    split there.
    """

    name: str
    value: Callable[[Reals, Reals], Reals]  # l at (y, z)
    slope: Callable[[Reals, Reals], Reals]  # first derivative; a subgradient where the loss has a corner
    curvature: Callable[[Reals, Reals], Reals]  # second derivative
    proximal: Callable[[Reals, Reals, float], Reals]  # prox at (y, omega, V)
    corners: Callable[[float], tuple[float, ...]] = lambda V: ()
    smooth: bool = True  # false if the loss itself has a corner
    signs: bool = False  # true if labels are -1 and 1

    def pull(self, y: Reals, omega: Reals, V: float) -> tuple[Reals, Reals]:
        """Return g = (prox - omega)/V (or its limit for V = 0), and its derivative -dg/domega."""
        if V == 0:
            return -self.slope(y, omega), self.curvature(y, omega)
        z = self.proximal(y, omega, V)
        if not self.smooth:
            held = (y * z == 1.0) & (y * omega < 1.0)
            return (z - omega) / V, held / V
        bend = self.curvature(y, z)
        return -self.slope(y, z), bend / (1 + V * bend)


def _logistic_prox(y: Reals, omega: Reals, V: float) -> Reals:
    """Return y z, where z solves z = u + V/(1 + e^z) in [u, u + V] and u = y omega, by Newton's method.

    It starts at z = 0, because from other starts it falls into cycles of two for V above about 4. The
    equation is convex below 0 and concave above, so from 0 no step goes beyond the root.
    """
    u = y * omega
    z = np.clip(np.zeros_like(u), u, u + V)
    for _ in range(MOST_STEPS):
        tail = scipy.special.expit(-z)
        rise = 1 + V * tail * (1 - tail)
        step = (z - u - V * tail) / rise
        z = z - step
        if (np.abs(step) <= 4e-16 * (1 + np.abs(z) + np.abs(u) / rise)).all():  # round-off of a step
            break
    return y * z


SQUARE = Loss(
    "square",
    value=lambda y, z: 0.5 * (y - z) ** 2,
    slope=lambda y, z: z - y,
    curvature=lambda y, z: np.ones_like(z),
    proximal=lambda y, omega, V: (omega + V * y) / (1 + V),
)
LOGISTIC = Loss(
    "logistic",
    value=lambda y, z: np.logaddexp(0.0, -y * z),
    slope=lambda y, z: -y * scipy.special.expit(-y * z),
    curvature=lambda y, z: scipy.special.expit(z) * scipy.special.expit(-z),
    proximal=_logistic_prox,
    # Between -V and 0 it keeps z near 0; the bends at both ends are a few units wide.
    corners=lambda V: tuple(place + wide for place in (-V, 0.0) for wide in (-8.0, -3.0, 0.0, 3.0, 8.0)),
    signs=True,
)
HINGE = Loss(
    "hinge",
    value=lambda y, z: np.maximum(0.0, 1 - y * z),
    slope=lambda y, z: np.where(y * z < 1, -y, 0.0),
    curvature=lambda y, z: np.zeros_like(z),
    proximal=lambda y, omega, V: y * np.where(y * omega >= 1, y * omega, np.minimum(y * omega + V, 1.0)),
    corners=lambda V: (1 - V, 1.0),
    smooth=False,
    signs=True,
)
