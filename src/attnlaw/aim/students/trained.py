"""What training hands back: the matrix, how well it solves its optimality condition, and in how many steps.

The penalised problem over positive semidefinite S is `min R(S) + lt d Tr S`. Its solutions are the fixed
points of the proximal step `S -> (S - t (R'(S) + lt d I))_+`, where `(.)_+` drops the negative eigenvalues,
for every t > 0: the relative move of one such step, t = 1/curvature, is the residual that gradient solvers
report; splitting reports the gap between its two half-steps, which vanishes at the same points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.aim.risk import Risk
from attnlaw.aim.sensing import Array

RESIDUAL = 1e-6
"""A training run with a larger residual is reported as not converged."""


@dataclass(frozen=True)
class Trained:
    """A trained matrix S (d, d), the residual of its optimality condition, steps and the solver's name."""

    matrix: Array
    residual: float
    steps: int
    solver: str

    @property
    def converged(self) -> bool:
        """Whether the residual is below 1e-6."""
        return self.residual <= RESIDUAL


def positive_part(matrix: Array) -> Array:
    """The symmetric matrix with its negative eigenvalues set to zero, the nearest positive semidefinite one.

    >>> positive_part(np.diag([2.0, -1.0])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 0
    return np.asarray((vectors[:, kept] * values[kept]) @ vectors[:, kept].T)


def relative_move(after: Array, before: Array) -> float:
    """|after - before|_F over the larger norm, 0 if both vanish."""
    scale = max(float(np.linalg.norm(after)), float(np.linalg.norm(before)))
    return float(np.linalg.norm(after - before)) / scale if scale else 0.0


def proximal_step(risk: Risk, matrix: Array, shift: float, step: float) -> tuple[Array, float]:
    """`(S - t (R'(S) + shift I))_+` with `shift = lt d`, and its move relative to |S|_F or |t R'(S)|_F.

    The larger scale counts, so that the residual vanishes too where the solution is the zero matrix.
    Directions outside the solution become exactly zero.
    """
    move = step * risk(matrix)[1]
    after = positive_part(matrix - move - step * shift * np.eye(len(matrix)))
    scale = max(float(np.linalg.norm(each)) for each in (matrix, after, move))
    return after, float(np.linalg.norm(after - matrix)) / scale if scale else 0.0
