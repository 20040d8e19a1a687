"""What training hands back: the matrix, how well it solves its optimality condition, and in how many steps.

The penalised problem over positive semidefinite S is `min F(S) = R(S) + lt d Tr S`, its gradient
`G = R'(S) + lt d I`. A minimiser has `Tr(G S) = 0` and `G >= 0`, and for convex R and every tau >= Tr S_min

    F(S) - F(S_min) <= Tr(G S) + tau max(0, -least eigenvalue of G),

whose right side over F(S) is the residual of the gradient solvers, tau = 2 Tr S. A small move per step would
not do: at a tiny lt the steps are tiny far from the minimiser. Splitting reports the relative gap between its
two half-steps, whose penalty moves S by order one however small lt is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnlaw.learning.risk import Risk
from attnlaw.learning.sensing import Array

Check = Callable[[], None]
"""Called in every step of a solver; raises where training is to end."""

RESIDUAL = 1e-4
"""A training run with a larger residual is reported as not converged."""


def go_on() -> None:
    """The check of a training run that nobody ends."""


@dataclass(frozen=True)
class Trained:
    """A trained matrix S (d, d), the residual of its optimality condition, steps and the solver's name."""

    matrix: Array
    residual: float
    steps: int
    solver: str

    @property
    def converged(self) -> bool:
        """Whether the residual is at most 1e-4."""
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


def proximal_step(risk: Risk, matrix: Array, shift: float, step: float) -> Array:
    """`(S - t (R'(S) + shift I))_+` with `shift = lt d`: directions outside the solution become zero."""
    return positive_part(matrix - step * (risk(matrix)[1] + shift * np.eye(len(matrix))))


def optimality_gap(risk: Risk, matrix: Array, shift: float) -> float:
    """The bound above on what F(S) can still lose, relative to F(S), with `shift = lt d`.

    >>> from attnlaw.learning.risk import Linear
    >>> from attnlaw.learning.sensing import TokenSensing
    >>> tokens = TokenSensing(np.array([[[1.0, 0.0]]]))
    >>> risk = Risk(tokens, Linear(np.ones((1, 1))), tokens.fields(np.diag([0.0, 1.0])))
    >>> optimality_gap(risk, np.diag([0.0, 0.9]), shift=0.1) < 1e-12  # (1 - s)^2/2 + s/10 at its minimum
    True
    """
    value, gradient = risk(matrix)
    slack = gradient + shift * np.eye(len(matrix))
    trace = float(np.trace(matrix))
    total = value + shift * trace
    bound = 2.0 * trace if trace > 0 or not shift else total / shift
    gap = abs(float(np.vdot(slack, matrix))) + bound * max(0.0, -float(np.linalg.eigvalsh(slack)[0]))
    return gap / total if total else 0.0
