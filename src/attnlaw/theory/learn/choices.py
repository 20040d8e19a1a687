"""How attention is made, what labels show of it, how students see it: tables, a line for each variant.

An output's observations of S per sample: `T(T+1)/2` distinct entries of h for the linear one; a row softmax
does not change when a constant is added to all of h, so it shows one less, `(T^2+T-2)/2` logits.

Nothing here imports mathematics: settings and help are made of these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from attnlaw.core.variants import by_name

Named = str | Callable[..., Any]
"""A function, or "module:function", which is imported when it is asked for."""


def _entries(tokens: int) -> float:
    return tokens * (tokens + 1) / 2


def _logits(tokens: int) -> float:
    return (tokens * tokens + tokens - 2) / 2


def _no_closed_form(tokens: int, E: float) -> float | None:
    return None


@dataclass(frozen=True)
class AttentionChoice:
    """Whether queries and keys share their factor.

    Tied: S = W W^T / sqrt(m d), symmetric and positive semidefinite, fields of all pairs a <= b. Untied: S =
    W_Q W_K^T / sqrt(m d), any matrix, fields of the ordered pairs that `pairs` names. `sides`: of the
    spectrum with both signs that singular values have, one that eigenvalues of a positive semidefinite S
    have. `gaussian`: the sensing by Gaussian matrices that the theory solves.
    """

    name: str
    label: str
    sides: int
    paired: bool
    gaussian: str


TIED = AttentionChoice("tied", "tied", 1, False, "goe")
UNTIED = AttentionChoice("untied", "untied", 2, True, "ginibre")
ATTENTIONS = by_name(TIED, UNTIED)


@dataclass(frozen=True)
class Pairs:
    """Which ordered pairs (query a, key b) a sample shows.

    `crossed`: keys are another sequence's tokens. `mirrored`: all places of the square, so that a pair is
    seen in both orders and a token with itself.
    """

    name: str
    label: str
    places: Callable[[int], list[tuple[int, int]]]
    least_tokens: int = 1
    crossed: bool = False
    mirrored: bool = False

    def visible_pairs(self, tokens: int, queries: int | None = None) -> tuple[tuple[int, int], ...]:
        """The pairs of a sample of T tokens; those of its first `queries` alone where that is given."""
        return tuple((a, b) for a, b in self.places(tokens) if queries is None or a < queries)

    def count(self, tokens: int, queries: int | None = None) -> int:
        """P, how many they are."""
        return len(self.visible_pairs(tokens, queries))


def _square(tokens: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(tokens) for b in range(tokens)]


PAIRS = by_name(
    Pairs("all", "all pairs", _square, mirrored=True),
    Pairs("distinct", "distinct tokens, both orders", lambda T: [(a, b) for a, b in _square(T) if a != b], 2),
    Pairs("causal", "causal", lambda T: [(a, b) for a, b in _square(T) if a > b], 2),
    Pairs("cross", "across sequences", _square, crossed=True),
)


@dataclass(frozen=True)
class Output:
    """What labels show of the scores h.

    `observations(T)` counts what a sample of T tokens tells of S. `prediction_error(T, E)` is the error on
    fresh clean labels of a student of the estimation error E, None where it is an average that E alone does
    not tell. `loss(problem, weights)` is what a student is trained on, None where nothing is. `queries` of an
    untied sample are shown, None: all of its pairs.
    """

    name: str
    label: str
    observations: Callable[[int], float]
    prediction_error: Callable[[int, float], float | None] = _no_closed_form
    loss: Named | None = None
    uses_temperature: bool = False  # beta plays a part
    weighted: bool = False  # groups of observations may have weights and noises of their own
    identifies_target: bool = True  # clean labels tell the scores exactly: there are thresholds
    least_tokens: int = 1
    most_tokens: int | None = None
    beyond: str = ""  # what to do about more tokens
    queries: int | None = None
    selects_key: bool = False  # a row tells which key is attended: a loss may ask for that key
    has_static_theory: bool = True  # what is learned from n samples is known, not its dynamics alone


LINEAR = Output(
    "linear",
    "plain scores",
    _entries,
    lambda tokens, E: tokens * (tokens + 1) * E,
    loss="attnlaw.theory.learn.risk:linear_loss",
    weighted=True,
)
SOFTMAX = Output(
    "softmax",
    "a softmax of each row",
    _logits,
    loss="attnlaw.theory.learn.risk:softmax_loss",
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
    beyond="; or take the softmax with a large {beta}",
)
HERMITE2 = Output(
    "hermite2",
    "the second Hermite polynomial of a score",
    _entries,
    loss="attnlaw.theory.learn.risk:hermite2_loss",
    most_tokens=1,
    has_static_theory=False,
)
HERMITE3 = Output(
    "hermite3",
    "the third Hermite polynomial of a score",
    _entries,
    loss="attnlaw.theory.learn.risk:hermite3_loss",
    most_tokens=1,
    has_static_theory=False,
)
OUTPUTS = by_name(LINEAR, SOFTMAX, HARDMAX, HERMITE2, HERMITE3)
STATIC_OUTPUTS = {name: output for name, output in OUTPUTS.items() if output.has_static_theory}
ATTENDED = Output(
    "cross-entropy",
    "the key that a query attends to",
    lambda tokens: tokens - 1.0,
    loss="attnlaw.theory.learn.risk:attended_loss",
    uses_temperature=True,
    identifies_target=False,
    least_tokens=2,
    most_tokens=2,
    queries=1,
)


@dataclass(frozen=True)
class LabelLoss:
    """What a student is trained on. `observed_output`: what labels show if that is not the output itself."""

    name: str
    label: str
    observed_output: Output | None = None

    @property
    def draws_labels(self) -> bool:
        """Whether labels are drawn, by the probabilities of the output."""
        return self.observed_output is not None


LOSSES = by_name(
    LabelLoss("squared", "squared errors of the output"),
    LabelLoss("cross-entropy", "cross-entropy of the attended key", ATTENDED),
)


@dataclass(frozen=True)
class SensingChoice:
    """How a student sees a matrix (`attnlaw.theory.learn.sensing` and `untied_sensing` have the formulas).

    `draws` by attention make the training data: `draw(samples, tokens, size, rng)` if tied,
    `draw(samples, tokens, pairs, size, rng, queries)` if untied; an attention that is not here is refused.
    `fresh` by attention gives the fields of student and target on new data: `fresh(name, matrix, target,
    tokens, rng)` with the target's eigenvalues if tied, `fresh(matrix, target, tokens, pairs, rng, queries)`
    with its matrix if untied.
    `dense(samples, tokens, entries, size)`, with the observed entries of a sample, is the side and the width
    of the largest array, `remedy` what makes it smaller.
    """

    name: str
    label: str
    draws: Mapping[str, Named]
    dense: Callable[[int, int, int, int], tuple[int, int]]
    remedy: str
    fresh: Mapping[str, Named]


def _token_rows(samples: int, tokens: int, entries: int, size: int) -> tuple[int, int]:
    return samples * tokens, size


def _matrix_rows(samples: int, tokens: int, entries: int, size: int) -> tuple[int, int]:
    return samples * entries, size * (size + 1) // 2


def _square_rows(samples: int, tokens: int, entries: int, size: int) -> tuple[int, int]:
    return samples * entries, size * size


TOKENS = SensingChoice(
    "tokens",
    "Gaussian tokens",
    {
        "tied": "attnlaw.theory.learn.sensing:draw_tokens",
        "untied": "attnlaw.theory.learn.sensing:draw_pairs",
    },
    _token_rows,
    " or {samples}",
    {
        "tied": "attnlaw.theory.learn.sensing:fresh_draws",
        "untied": "attnlaw.theory.learn.sensing:fresh_pairs",
    },
)
SIGNED = SensingChoice(
    "signed",
    "Gaussian tokens, each sample with a random sign",
    {"tied": "attnlaw.theory.learn.sensing:draw_signed"},
    _token_rows,
    " or {samples}",
    {"tied": "attnlaw.theory.learn.sensing:fresh_draws"},
)
GOE = SensingChoice(
    "goe",
    "symmetric Gaussian matrices of the same covariance",
    {"tied": "attnlaw.theory.learn.sensing:draw_matrices"},
    _matrix_rows,
    ", or {sensing} tokens",
    {"tied": "attnlaw.theory.learn.sensing:fresh_gaussian"},
)
GINIBRE = SensingChoice(
    "ginibre",
    "Gaussian matrices with independent entries",
    {"untied": "attnlaw.theory.learn.sensing:draw_squares"},
    _square_rows,
    ", or {sensing} tokens",
    {"untied": "attnlaw.theory.learn.sensing:fresh_squares"},
)
SENSINGS = by_name(TOKENS, SIGNED, GOE, GINIBRE)
