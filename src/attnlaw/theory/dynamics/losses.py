"""The losses of Hermite outputs, which only trajectories have: as `theory.learn.risk` has the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from attnlaw.theory.learn.sensing import Array

if TYPE_CHECKING:
    from attnlaw.theory.learn.problem import Problem


@dataclass(frozen=True)
class HermiteLoss:
    """`(h_k(h) - y)^2` of the one field of a token, h_2 = (x^2-1)/sqrt 2, h_3 = (x^3-3x)/sqrt 6."""

    order: int
    quadratic: ClassVar[bool] = False

    def labels(self, fields: Array, tokens: int) -> Array:
        """`h_k` of the fields."""
        if self.order == 2:
            return np.asarray((fields**2 - 1) / np.sqrt(2.0))
        return np.asarray((fields**3 - 3 * fields) / np.sqrt(6.0))

    def loss(self, fields: Array, labels: Array, tokens: int) -> tuple[float, Array]:
        """Sum over samples, and its gradient in the fields.

        >>> value, gradient = HermiteLoss(2).loss(np.array([[1.0]]), np.array([[1.0]]), 1)
        >>> value, gradient.round(6).tolist()  # h_2(1) = 0, its slope sqrt 2
        (1.0, [[-2.828427]])
        """
        rest = self.labels(fields, tokens) - labels
        slope = np.sqrt(2.0) * fields if self.order == 2 else np.sqrt(1.5) * (fields**2 - 1)
        return float(np.vdot(rest, rest)), 2 * rest * slope


def hermite2_loss(problem: Problem, weights: Array) -> HermiteLoss:
    """The loss of the second polynomial."""
    return HermiteLoss(2)


def hermite3_loss(problem: Problem, weights: Array) -> HermiteLoss:
    """The loss of the third polynomial."""
    return HermiteLoss(3)
