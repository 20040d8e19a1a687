"""What the error of a trained matrix is made of: our own definition, by modes of the target.

Out are the modes that stand out of the learned spectrum, each with the target's value s, the learned one s'
and the squared overlap o of their vectors; they carry `Q_out = sum s^2/d`, `m_out = sum s s' o/d`, `q_out =
sum s'^2/d`. In is the rest: `Q_in = Q* - Q_out`, `m_in = m - m_out`, `q_in = q - q_out`.

    approximation   sum_out (s^2 - 2 s s' o + s'^2)/d      modes that were found, but not exactly
    underfitting    (Q_in - m_in)^2 / Q_in                 what is missing along the target
    overfitting     q_in - m_in^2 / Q_in                   what was learned beside it

They sum to `E = Q* - 2 m + q`. Without outliers the last two are never negative (Cauchy-Schwarz). A spike
weighs nothing in the limit; a mode of a power law of dimension d weighs 1/d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnlaw.theory.learn.prediction import Prediction


@dataclass(frozen=True)
class ErrorSplit:
    """The three parts of E; None where the solver does not resolve E."""

    approximation: float | None
    underfitting: float | None
    overfitting: float | None


def split_error(prediction: Prediction) -> ErrorSplit:
    """The parts of a prediction's error.

    >>> from attnlaw.theory.learn.problem import Problem
    >>> from attnlaw.theory.learn.state_evolution import state_evolution
    >>> problem = Problem(alpha=0.5, noise=0.5, weight_decay=0.2, attention="untied")
    >>> parts = split_error(state_evolution(problem))
    >>> parts.approximation, round(parts.underfitting, 4), round(parts.overfitting, 4)
    (0.0, 0.2305, 0.4113)
    """
    if not prediction.is_resolved:
        return ErrorSplit(None, None, None)
    target = prediction.problem.target
    weight = 0.0 if target.dimension is None else 1 / target.dimension
    modes = [seen for seen in prediction.outliers if seen.target not in target.spikes]
    Q_out = weight * sum(seen.target**2 for seen in modes)
    m_out = weight * sum(seen.target * seen.location * seen.overlap for seen in modes)
    q_out = weight * sum(seen.location**2 for seen in modes)
    Q, m = target.second_moment - Q_out, prediction.overlap.value - m_out
    q = prediction.norm.value - q_out
    # With all of the target found there is nothing to miss: what is left of S was learned beside it.
    if 1e-12 * target.second_moment >= Q:
        return ErrorSplit(Q_out - 2 * m_out + q_out, 0.0, q)
    return ErrorSplit(Q_out - 2 * m_out + q_out, (Q - m) ** 2 / Q, q - m * m / Q)
