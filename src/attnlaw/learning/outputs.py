"""What labels show of the scores, and how students see a matrix: two tables, a line for each variant.

An output's observations of S per sample: `T(T+1)/2` distinct entries of h for the linear one; a row softmax
does not change when a constant is added to all of h, so it shows one less, `(T^2+T-2)/2` logits.

Nothing here imports mathematics: settings and help are made of these tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnlaw.base.declare import table

Named = str | Callable[..., Any]
"""A function, or "module:function", which is imported when it is asked for."""


def _entries(tokens: int) -> float:
    return tokens * (tokens + 1) / 2


def _logits(tokens: int) -> float:
    return (tokens * tokens + tokens - 2) / 2


def _no_closed_form(tokens: int, E: float) -> float | None:
    return None


@dataclass(frozen=True)
class Output:
    """What labels show of the scores h.

    `observations(T)` counts what a sample of T tokens tells of S. `prediction_error(T, E)` is the error on
    fresh clean labels of a student of the estimation error E, None where it is an average that E alone does
    not tell. `loss(problem, weights)` is what a student is trained on, None where nothing is.
    `potential(problem)` is what moves a student in time, None where no dynamics is known.
    """

    name: str
    label: str
    observations: Callable[[int], float]
    prediction_error: Callable[[int, float], float | None] = _no_closed_form
    loss: Named | None = None
    potential: Named | None = None
    tempered: bool = False  # beta plays a part
    weighted: bool = False  # groups of observations may have weights and noises of their own
    revealing: bool = True  # clean labels tell the scores exactly: there are thresholds
    least_tokens: int = 1
    most_tokens: int | None = None
    settles: bool = True  # what is learned from n samples is known, not its dynamics alone


LINEAR = Output(
    "linear",
    "plain scores",
    _entries,
    lambda tokens, E: tokens * (tokens + 1) * E,
    loss="attnlaw.learning.risk:linear_loss",
    potential="attnlaw.learning.dynamics.potential:linear",
    weighted=True,
)
SOFTMAX = Output(
    "softmax",
    "a softmax of each row",
    _logits,
    loss="attnlaw.learning.risk:softmax_loss",
    potential="attnlaw.learning.dynamics.potential:softmax",
    tempered=True,
    least_tokens=2,
)
HARDMAX = Output(
    "hardmax", "the largest entry of each row", _logits, revealing=False, least_tokens=2, most_tokens=2
)
HERMITE2 = Output(
    "hermite2",
    "the second Hermite polynomial of a score",
    _entries,
    loss="attnlaw.learning.dynamics.losses:hermite2_loss",
    potential="attnlaw.learning.dynamics.potential:hermite2",
    most_tokens=1,
    settles=False,
)
HERMITE3 = Output(
    "hermite3",
    "the third Hermite polynomial of a score",
    _entries,
    loss="attnlaw.learning.dynamics.losses:hermite3_loss",
    potential="attnlaw.learning.dynamics.potential:hermite3",
    most_tokens=1,
    settles=False,
)
OUTPUTS = table(LINEAR, SOFTMAX, HARDMAX, HERMITE2, HERMITE3)
LEARNED = {name: one for name, one in OUTPUTS.items() if one.settles}
MOVING = {name: one for name, one in OUTPUTS.items() if one.potential is not None}


@dataclass(frozen=True)
class Sight:
    """How a student sees a symmetric matrix (`attnlaw.learning.sensing` has the formulas).

    `draw(samples, tokens, size, rng)` makes the training data; `fresh(name, matrix, target, tokens, rng)` the
    fields of student and target on new data. `dense(samples, tokens, size)` is the side and the width of the
    largest array, `remedy` what makes it smaller.
    """

    name: str
    label: str
    draw: Named
    fresh: Named
    dense: Callable[[int, int, int], tuple[int, int]]
    remedy: str


def _token_rows(samples: int, tokens: int, size: int) -> tuple[int, int]:
    return samples * tokens, size


def _matrix_rows(samples: int, tokens: int, size: int) -> tuple[int, int]:
    return samples * tokens * (tokens + 1) // 2, size * (size + 1) // 2


TOKENS = Sight(
    "tokens",
    "Gaussian tokens",
    "attnlaw.learning.sensing:draw_tokens",
    "attnlaw.learning.sensing:fresh_draws",
    _token_rows,
    "or alpha",
)
SIGNED = Sight(
    "signed",
    "Gaussian tokens, each sample with a random sign",
    "attnlaw.learning.sensing:draw_signed",
    "attnlaw.learning.sensing:fresh_draws",
    _token_rows,
    "or alpha",
)
GOE = Sight(
    "goe",
    "Gaussian matrices of the same covariance",
    "attnlaw.learning.sensing:draw_matrices",
    "attnlaw.learning.sensing:fresh_gaussian",
    _matrix_rows,
    "or token sensing",
)
SENSINGS = table(TOKENS, SIGNED, GOE)
