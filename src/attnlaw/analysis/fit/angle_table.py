"""A blurred law as a small table in the angle: quantiles, distribution function and density.

On each of at most two intervals `x = middle - half cos(theta)`. The table holds the mass up to equally spaced
angles and is linear between them, right to a few parts in 10000: enough for fits, where k values resolve 1/k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlaw.theory.laws.free_convolution import Truncated
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.symmetric_product import SymmetricProduct

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AngleTable:
    """Mass up to each angle and its slope: arrays of shape (intervals, angles) and (intervals, angles - 1).

    An empty second interval has `half = 0` and all the mass before it.
    """

    theta: Reals
    mass: Reals
    slope: Reals
    middle: Reals
    half: Reals

    @property
    def gap(self) -> tuple[float, float] | None:
        """Between two intervals; None where there is but one."""
        low, high = self.middle - self.half, self.middle + self.half
        return (float(high[0]), float(low[1])) if self.half[1:].any() else None

    def quantile(self, p: Reals) -> Reals:
        """The x that has mass p below it, 0 < p < 1."""
        place = np.searchsorted(self.mass[:-1, -1], p)
        angles = [np.interp(p, mass, self.theta) for mass in self.mass]
        return np.asarray(self.middle[place] - self.half[place] * np.cos(np.choose(place, angles)))

    def cdf(self, x: Reals) -> Reals:
        """The mass below x."""
        parts = [np.interp(self._angle(x, i), self.theta, mass - mass[0]) for i, mass in enumerate(self.mass)]
        return np.asarray(sum(parts))

    def density(self, x: Reals) -> Reals:
        """Zero outside the intervals."""
        total = np.zeros(x.shape)
        centres = 0.5 * (self.theta[1:] + self.theta[:-1])
        for i in range(self.half.size):
            inside = np.abs(x - self.middle[i]) < self.half[i]
            angle = self._angle(x[inside], i)
            height = np.interp(angle, centres, self.slope[i] / np.sin(centres) ** 2)
            total[inside] = height * np.sin(angle) / self.half[i]
        return total

    def _angle(self, x: Reals, i: int) -> Reals:
        if self.half[i] == 0:
            return np.zeros(x.shape)
        return np.asarray(np.arccos(np.clip((self.middle[i] - x) / self.half[i], -1.0, 1.0)))


def angle_tables(base: MarchenkoPastur | SymmetricProduct, noises: Reals) -> list[AngleTable]:
    """Tables of a law convolved with semicircles of these standard deviations.

    Of a product of two factors, whose law has both signs, those of the absolute values.

    >>> table = angle_tables(MarchenkoPastur(0.25), np.array([0.5]))[0]
    >>> bool(abs(table.cdf(table.quantile(np.array([0.9])))[0] - 0.9) < 1e-12)
    True
    """
    tables: dict[int, AngleTable] = {}
    sides = 2 if isinstance(base, SymmetricProduct) else 1
    for rows, (nodes,) in Truncated(base, noises, sides).node_groups():
        steps = nodes.x.shape[-1]
        theta = np.linspace(0.0, np.pi, steps + 1)
        slope = nodes.mass if sides == 1 else np.where(nodes.x > 0, 2 * nodes.mass, 0.0)
        mass = np.concatenate([np.zeros((*nodes.low.shape, 1)), slope.cumsum(axis=-1)], axis=-1)
        mass *= np.pi / steps
        mass[:, 1:] += mass[:, :1, -1:]
        middle, half = 0.5 * (nodes.low + nodes.high), 0.5 * (nodes.high - nodes.low)
        for place, row in enumerate(rows):
            tables[int(row)] = AngleTable(theta, mass[place], slope[place], middle[place], half[place])
    return [tables[row] for row in range(noises.size)]
