"""Measure each head on one input: how sharp it is, where it looks, and how large its logits get.

| symbol | meaning |
|---|---|
| n | number of tokens that a row may look at; under a mask, the largest number |
| beta | root mean square over rows of the standard deviation of a row's allowed logits |
| beta_2, beta_c | thresholds of beta for n tokens (`theory/laws/finite_size.py`) |
| PR | participation number of centred attention (`theory/laws/attention_matrix.py`) |

beta is measured on this input. It differs from `effective_beta` of `fits`, which takes embeddings as inputs.

Real tokens are far from orthogonal. This alone makes the participation number smaller than it is for
independent Gaussian queries and keys. So there is a second reference, which keeps the inputs, positions and
mask of the head, and draws W_Q and W_K at random.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.analysis.forward.scores import FrozenScores
from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate
from attnlaw.core.progress import Progress, no_progress
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.bounds.logits import Logits
from attnlaw.theory.laws.attention_matrix import centred, null_participation, participation
from attnlaw.theory.laws.finite_size import condensed_beta, few_rows_beta

DRAWS = 20


def random_weights_participation(
    scores: FrozenScores, head: int, rng: np.random.Generator, draws: int = DRAWS
) -> Estimate:
    """Return the mean participation number of Gaussian weights of the same norms on the same tokens."""
    weights = scores.weights(head)
    samples = []
    for _ in range(draws):
        W_Q, W_K = (random_like(weight, rng) for weight in weights)
        attention = scores.attention(scores.scores_with(W_Q, W_K))
        samples.append(participation(centred(attention, scores.causal)))
    return mean_of(samples)


def random_like(weight: Reals, rng: np.random.Generator) -> Reals:
    """Return a Gaussian matrix with the shape and the Frobenius norm of a weight matrix."""
    drawn = rng.standard_normal(weight.shape)
    return np.asarray(drawn * (np.linalg.norm(weight) / np.linalg.norm(drawn)))


@dataclass(frozen=True)
class Participation:
    """The participation number of a head, and two random references (each the mean of 20 draws)."""

    value: float
    null: Estimate  # independent Gaussian queries and keys at the beta of the head
    random: Estimate  # random weights on the tokens of the head


@dataclass(frozen=True)
class Head:
    layer: int
    head: int
    beta: float
    beta_2: float
    beta_c: float
    perplexity: float  # exponential of the mean entropy of rows, in tokens
    participation: Participation | None  # None if attention is uniform, or if its mask has no reference
    largest_column_mean: float  # the largest mean weight of a column; `sink` is that column
    sink: int
    top_column: int  # the column that has the largest weight of most rows; `top_column_rows` is their share
    top_column_rows: float
    top_offset: int  # the same for the distance from the row's token (-1: the token before)
    top_offset_rows: float
    largest_logit: float  # the largest |l| over the allowed pairs
    top_offset_mean: float  # mean weight of a row at that distance
    uniform_column: float  # the weight of the column `sink` if each row attends to its tokens uniformly
    uniform_offset: float  # the same for `top_offset_mean`
    logit_bound: float | None  # upper bound of |l| for any input, from the weights, if they give one
    logit_typical: float | None  # beta for isotropic tokens, from the weights; None if they do not give one

    @property
    def spread_over_typical(self) -> float | None:
        """Ratio of beta to that of isotropic tokens; large if tokens line up with what the head amplifies."""
        return self.beta / self.logit_typical if self.logit_typical else None


def measure_heads(
    blocks: Sequence[FrozenScores],
    bounds_by_head: Mapping[tuple[int, int], Logits],
    seed: int = 0,
    progress: Progress = no_progress,
) -> tuple[Head, ...]:
    """Measure every head of every attention block of a pass, layer by layer; none for a single token."""
    places = [(layer, head) for layer, scores in enumerate(blocks) for head in range(scores.heads)]
    head_records = []
    for done, (layer, head) in enumerate(places if blocks[0].tokens > 1 else (), start=1):
        bounds = bounds_by_head.get((layer, head), Logits())
        head_records.append(_measure_head(blocks[layer], (layer, head), bounds, seed))
        progress(done, len(places))
    return tuple(head_records)


def _measure_head(scores: FrozenScores, place: tuple[int, int], bounds: Logits, seed: int) -> Head:
    layer, head = place
    allowed = scores.allowed
    logits = scores.logits(head)
    attention = scores.attention(logits)
    beta = row_spread(logits, allowed)
    most = int(allowed.sum(axis=1).max())
    columns = attention.mean(axis=0)
    uniform = allowed / allowed.sum(axis=1, keepdims=True)
    tops = attention.argmax(axis=1)
    column, column_rows = _most_frequent(tops)
    offset, offset_rows = _most_frequent(tops - np.arange(len(tops)))
    return Head(
        layer=layer,
        head=head,
        beta=beta,
        beta_2=few_rows_beta(most),
        beta_c=condensed_beta(most),
        perplexity=float(np.exp(scipy.special.entr(attention).sum(axis=1).mean())),
        participation=_participation(scores, attention, place, beta, seed),
        largest_column_mean=float(columns.max()),
        sink=int(columns.argmax()),
        top_column=column,
        top_column_rows=column_rows,
        top_offset=offset,
        top_offset_rows=offset_rows,
        largest_logit=float(np.abs(logits[allowed]).max()),
        top_offset_mean=_mean_at(attention, offset),
        uniform_column=float(uniform[:, columns.argmax()].mean()),
        uniform_offset=_mean_at(uniform, offset),
        logit_bound=bounds.bound,
        logit_typical=bounds.typical,
    )


def _participation(
    scores: FrozenScores, attention: Reals, place: tuple[int, int], beta: float, seed: int
) -> Participation | None:
    if not (scores.unmasked or scores.causal):
        return None
    value = participation(centred(attention, scores.causal))
    if math.isnan(value):
        return None
    rng = np.random.default_rng([seed, *place])
    drawn = int(rng.integers(2**63))
    null = null_participation(scores.tokens, scores.head_size, beta, drawn, DRAWS, scores.causal)
    return Participation(value, null, random_weights_participation(scores, place[1], rng))


def row_spread(logits: Reals, allowed: NDArray[np.bool_]) -> float:
    """Return beta. Rows with only one allowed token have no spread and are left out."""
    counts = allowed.sum(axis=1, keepdims=True)
    means = np.where(allowed, logits, 0.0).sum(axis=1, keepdims=True) / counts
    variances = np.where(allowed, (logits - means) ** 2, 0.0).sum(axis=1, keepdims=True) / counts
    return float(np.sqrt(variances[counts > 1].mean()))


def _mean_at(attention: Reals, offset: int) -> float:
    """Return the mean weight of a row at a distance from its token. Rows without such a token have 0."""
    return float(np.trace(attention, offset) / len(attention))


def _most_frequent(values: NDArray[np.int64]) -> tuple[int, float]:
    unique_values, counts = np.unique(values, return_counts=True)
    return int(unique_values[counts.argmax()]), float(counts.max() / counts.sum())
