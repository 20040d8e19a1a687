"""A law made of finitely many eigenvalues with weights, such as a target spectrum given by the user."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.core.errors import InputError
from attnlaw.theory.laws.law import Law


@dataclass(frozen=True)
class Discrete(Law):
    """The law with finitely many values: `sum_i weights_i delta(x - values_i)`. The weights sum to 1.

    >>> law = Discrete((0.0, 2.0), (0.75, 0.25))
    >>> law.moment(2), law.quantile([0.5, 0.9]).tolist()
    (1.0, [0.0, 2.0])
    """

    values: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        positive = all(weight > 0 for weight in self.weights)
        if not positive or len(self.values) != len(self.weights) or not np.all(np.isfinite(self.values)):
            raise InputError("eigenvalues: expected finite values, each with a positive weight")
        if abs(sum(self.weights) - 1.0) > 1e-9:
            raise InputError(
                f"eigenvalues: the weights sum to {sum(self.weights):.6g}, expected 1; divide them by "
                "their sum"
            )

    def scaled(self, factor: float) -> Discrete:
        return Discrete(tuple(factor * value for value in self.values), self.weights)

    @cached_property
    def arrays(self) -> tuple[Reals, Reals]:
        """The distinct values in ascending order, and the total weight of each."""
        values, place = np.unique(np.array(self.values, dtype=float), return_inverse=True)
        return values, np.asarray(np.bincount(place, weights=self.weights), dtype=float)

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return ()

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        return tuple(sorted(zip(self.values, self.weights, strict=True)))

    def density(self, x: ArrayLike) -> Reals:
        """Return zero, because a discrete law has only atoms."""
        return np.zeros_like(np.asarray(x, dtype=float))

    def stieltjes(self, z: ArrayLike) -> Complexes:
        z = np.asarray(z, dtype=complex)
        return np.asarray((np.array(self.weights) / (z[..., None] - np.array(self.values))).sum(-1))

    def quantile(self, p: ArrayLike) -> Reals:
        """Return the smallest eigenvalue at which the distribution function reaches each level p."""
        order = np.argsort(self.values, kind="stable")
        steps = np.cumsum(np.array(self.weights)[order])
        place = np.searchsorted(steps, np.asarray(p, dtype=float) - 1e-12)
        return np.asarray(np.array(self.values)[order][np.minimum(place, steps.size - 1)])
