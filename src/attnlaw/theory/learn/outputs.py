"""Outputs of attention, from which labels are made, and the losses that students are trained on.

With the linear output, the labels of a sample of T tokens determine `T(T+1)/2` distinct scores h. A row
softmax does not change if a constant is added to all of h. So its labels determine one number less,
`(T^2+T-2)/2` logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from attnlaw.core.arrays import Reals
from attnlaw.core.variants import by_name
from attnlaw.theory.learn.risk import Attended, HermiteLoss, Linear, Softmax


def _entries(tokens: int) -> float:
    return tokens * (tokens + 1) / 2


def _logits(tokens: int) -> float:
    return (tokens * tokens + tokens - 2) / 2


@dataclass(frozen=True)
class Output:
    """An output of attention: a function of the scores h, from which the labels are made."""

    name: str
    label: str
    observations: Callable[[int], float]  # returns the number of observations of S in a sample of T tokens
    # Returns the error on new clean labels for (T, E), or None if E alone does not determine it.
    prediction_error: Callable[[int, float], float | None] = lambda tokens, E: None
    # Makes the loss for a `Problem` and the weights of its observations; None if no student is trained on it.
    loss: Callable[[Any, Reals], Any] | None = None
    uses_temperature: bool = False  # whether the output depends on beta
    weighted: bool = False  # whether groups of observations may differ in weight and noise
    identifies_target: bool = True  # whether clean labels determine the scores; if not, no thresholds
    least_tokens: int = 1
    most_tokens: int | None = None
    beyond: str = ""  # what the message about too many tokens suggests
    queries: int | None = None  # number of queries that an untied sample uses; None for all
    selects_key: bool = False  # whether a row has a most attended key, which a loss may use as label
    has_static_theory: bool = True  # whether the theory of n samples is known, not only the dynamics


LINEAR = Output(
    "linear",
    "plain scores",
    _entries,
    lambda tokens, E: tokens * (tokens + 1) * E,
    loss=lambda problem, weights: Linear(weights, ordered=problem.sides == 2),
    weighted=True,
)
SOFTMAX = Output(
    "softmax",
    "a softmax of each row",
    _logits,
    loss=lambda problem, weights: Softmax(problem.beta),
    uses_temperature=True,
    least_tokens=2,
    selects_key=True,
)
HARDMAX = Output(
    "hardmax",
    "the largest entry of each row",
    _logits,
    identifies_target=False,
    least_tokens=2,
    most_tokens=2,
    beyond="; or use the softmax with a large {beta}",
)
HERMITE2 = Output(
    "hermite2",
    "the second Hermite polynomial of a score",
    _entries,
    loss=lambda problem, weights: HermiteLoss(2),
    most_tokens=1,
    has_static_theory=False,
)
HERMITE3 = replace(
    HERMITE2,
    name="hermite3",
    label="the third Hermite polynomial of a score",
    loss=lambda problem, weights: HermiteLoss(3),
)
OUTPUTS = by_name(LINEAR, SOFTMAX, HARDMAX, HERMITE2, HERMITE3)
STATIC_OUTPUTS = {name: output for name, output in OUTPUTS.items() if output.has_static_theory}


@dataclass(frozen=True)
class LabelLoss:
    """A loss that students may minimise, and the output from which it makes labels."""

    name: str
    label: str
    observed_output: Output | None = None  # output from which labels are made, if not the setting `output`

    @property
    def draws_labels(self) -> bool:
        return self.observed_output is not None


LOSSES = by_name(
    LabelLoss("squared", "squared errors of the output"),
    LabelLoss(
        "cross-entropy",
        "cross-entropy of the attended key",
        Output(
            "cross-entropy",
            "the key to which a query attends most",
            lambda tokens: tokens - 1.0,
            loss=lambda problem, weights: Attended(problem.beta, drawn=not problem.soft_labels),
            uses_temperature=True,
            identifies_target=False,
            least_tokens=2,
            most_tokens=2,
            queries=1,
        ),
    ),
)
