"""What each head does on one input: how sharp it is, where it looks, how large its logits get.

| letter | meaning |
|---|---|
| n | tokens that a row may look at, the most of them under a mask |
| beta | root mean square over rows of the standard deviation of a row's allowed logits |
| beta_2, beta_c | marks of beta for n tokens (`laws/temperature.py`) |
| PR | participation number of centred attention (`laws/participation.py`) |

beta is measured on this input. It is not the `effective_beta` of `fits`, which has embeddings for inputs.

The participation number of a head's attention on real tokens under random weights.

Real tokens are far from orthogonal, which alone lowers the participation number (`laws/participation.py`)
below that of independent Gaussian queries and keys. Here the head's own inputs, positions and mask are kept,
and W_Q and W_K are redrawn.
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
    """The participation number with Gaussian weights on the same tokens: mean of draws and standard error.

    Each of W_Q and W_K keeps its Frobenius norm; biases, which are learned, are left out. The temperature is
    what these weights give on these tokens, not the head's own.
    """
    weights = scores.weights(head)
    samples = []
    for _ in range(draws):
        W_Q, W_K = (random_like(weight, rng) for weight in weights)
        attention = scores.attention(scores.scores_with(W_Q, W_K))
        samples.append(participation(centred(attention, scores.causal)))
    return mean_of(samples)


def random_like(weight: Reals, rng: np.random.Generator) -> Reals:
    """A Gaussian matrix with the shape and the Frobenius norm of a weight.

    >>> fresh = random_like(np.array([[3.0, 0.0], [0.0, 4.0]]), np.random.default_rng(0))
    >>> round(float(np.linalg.norm(fresh)), 12)
    5.0
    """
    fresh = rng.standard_normal(weight.shape)
    return np.asarray(fresh * (np.linalg.norm(weight) / np.linalg.norm(fresh)))


@dataclass(frozen=True)
class Participation:
    """A participation number beside two nulls, each the mean of 20 draws with its standard error.

    `null`: independent Gaussian queries and keys at the head's beta; `random`: random weights on its tokens.
    """

    value: float
    null: Estimate
    random: Estimate


@dataclass(frozen=True)
class Head:
    """One head on one input.

    `perplexity`: the exponential of the mean entropy of rows, in tokens. `sink` is the column of the
    `largest_column_mean`. `top_column` has the largest weight of most rows, `top_column_rows` of them;
    `top_offset` the same for the distance from the row's own token (-1: the token before).
    `largest_logit`: the largest |l| over the allowed pairs; `logit_bound` what it can be for any input, and
    `logit_typical` what beta would be for isotropic tokens, both from the weights alone (`bounds/logits.py`),
    None where they do not tell. `participation` is None under a mask that is not
    causal, for which there is no null, and where attention is uniform.
    """

    layer: int
    head: int
    beta: float
    beta_2: float
    beta_c: float
    perplexity: float
    participation: Participation | None
    largest_column_mean: float
    sink: int
    top_column: int
    top_column_rows: float
    top_offset: int
    top_offset_rows: float
    largest_logit: float
    logit_bound: float | None
    logit_typical: float | None

    @property
    def spread_over_typical(self) -> float | None:
        """beta over what isotropic tokens would give: how far the tokens line up with the head."""
        return self.beta / self.logit_typical if self.logit_typical else None


def measure_heads(
    blocks: Sequence[FrozenScores],
    bounds_by_head: Mapping[tuple[int, int], Logits],
    seed: int = 0,
    progress: Progress = no_progress,
) -> tuple[Head, ...]:
    """Every head of every attention block of a pass, layer by layer; none of a single token.

    `bounds_by_head` has what the weights tell of logits, by layer and head; `seed` draws the nulls.
    """
    places = [(layer, head) for layer, scores in enumerate(blocks) for head in range(scores.heads)]
    head_records = []
    for done, (layer, head) in enumerate(places if blocks[0].tokens > 1 else (), start=1):
        head_records.append(
            _measure_head(blocks[layer], (layer, head), bounds_by_head.get((layer, head), Logits()), seed)
        )
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
    """beta: root mean square over rows of the standard deviation of the allowed logits.

    Rows with one allowed pair (the first under a causal mask) have no spread and are left out.

    >>> row_spread(np.array([[0.0, 2.0], [1.0, 1.0]]), np.ones((2, 2), dtype=bool))
    0.7071067811865476
    """
    counts = allowed.sum(axis=1, keepdims=True)
    means = np.where(allowed, logits, 0.0).sum(axis=1, keepdims=True) / counts
    variances = np.where(allowed, (logits - means) ** 2, 0.0).sum(axis=1, keepdims=True) / counts
    return float(np.sqrt(variances[counts > 1].mean()))


def _most_frequent(values: NDArray[np.int64]) -> tuple[int, float]:
    """The most frequent value and its share."""
    unique_values, counts = np.unique(values, return_counts=True)
    return int(unique_values[counts.argmax()]), float(counts.max() / counts.sum())
