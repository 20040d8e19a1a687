"""What each head does on one input: how sharp it is, where it looks, how large its logits get.

| letter | meaning |
|---|---|
| n | tokens, or the largest number that a mask allows a row |
| beta | root mean square over rows of the standard deviation of a row's allowed logits |
| beta_2 | `sqrt(ln n / 2)`: above it few rows carry |A|_F^2, and the law of random heads is lost |
| beta_c | `sqrt(2 ln n)`: above it Gaussian logits condense attention on a few tokens |

The marks are those of Gaussian logits (arXiv 2610.10033 has beta fixed; the scales are our own reading of its
corrections). Below beta_c the perplexity of Gaussian rows is n e^(-beta^2 / 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from attnlaw.base.declare import Progress, silent
from attnlaw.base.estimate import Estimate
from attnlaw.forward.blocks import Array
from attnlaw.forward.nulls import gaussian_participation, participation, random_weights_participation
from attnlaw.forward.scores import Scores


@dataclass(frozen=True)
class Head:
    """One head on one input.

    `top_column` is the token that most rows give their largest weight, `top_column_rows` the share of rows
    that do; `top_offset` and `top_offset_rows` the same for the distance to the row's own token (-1: the
    token before). `largest_logit` is the largest |l| over the allowed pairs.
    """

    layer: int
    head: int
    beta: float
    beta_2: float
    beta_c: float
    perplexity: float
    participation: float
    null_participation: Estimate
    random_participation: Estimate
    largest_column_mean: float
    sink: int
    top_column: int
    top_column_rows: float
    top_offset: int
    top_offset_rows: float
    largest_logit: float

    @property
    def over_null(self) -> float:
        """The participation number over the Gaussian null's."""
        return self.participation / self.null_participation.value


def temperature_marks(tokens: int) -> tuple[float, float]:
    """beta_2 and beta_c of rows of so many tokens.

    >>> tuple(round(mark, 2) for mark in temperature_marks(512))
    (1.77, 3.53)
    """
    return math.sqrt(math.log(tokens) / 2), math.sqrt(2 * math.log(tokens))


def heads(blocks: Sequence[Scores], seed: int = 0, progress: Progress = silent) -> tuple[Head, ...]:
    """Every head of every attention block of a pass, layer by layer; `seed` draws the nulls."""
    places = [(layer, head) for layer, scores in enumerate(blocks) for head in range(scores.heads)]
    found = []
    for done, (layer, head) in enumerate(places, start=1):
        rng = np.random.default_rng([seed, layer, head])
        found.append(_head(blocks[layer], layer, head, rng))
        progress(done, len(places))
    return tuple(found)


def _head(scores: Scores, layer: int, head: int, rng: np.random.Generator) -> Head:
    allowed = scores.allowed
    logits = scores.logits(head)
    attention = scores.attention(logits)
    beta = row_spread(logits, allowed)
    beta_2, beta_c = temperature_marks(int(allowed.sum(axis=1).max()))
    columns = attention.mean(axis=0)
    tops = attention.argmax(axis=1)
    column, column_rows = _most(tops)
    offset, offset_rows = _most(tops - np.arange(len(tops)))
    return Head(
        layer=layer,
        head=head,
        beta=beta,
        beta_2=beta_2,
        beta_c=beta_c,
        perplexity=float(np.exp(entr(attention).sum(axis=1).mean())),
        participation=participation(attention, allowed),
        null_participation=gaussian_participation(scores, beta, rng),
        random_participation=random_weights_participation(scores, head, rng),
        largest_column_mean=float(columns.max()),
        sink=int(columns.argmax()),
        top_column=column,
        top_column_rows=column_rows,
        top_offset=offset,
        top_offset_rows=offset_rows,
        largest_logit=float(np.abs(logits[allowed]).max()),
    )


def row_spread(logits: Array, allowed: NDArray[np.bool_]) -> float:
    """beta: root mean square over rows of the standard deviation of the allowed logits.

    Rows with one allowed pair (the first under a causal mask) have no spread and are left out.

    >>> row_spread(np.array([[0.0, 2.0], [1.0, 1.0]]), np.ones((2, 2), dtype=bool))
    0.7071067811865476
    """
    counts = allowed.sum(axis=1, keepdims=True)
    means = np.where(allowed, logits, 0.0).sum(axis=1, keepdims=True) / counts
    squares = np.where(allowed, (logits - means) ** 2, 0.0).sum(axis=1, keepdims=True) / counts
    spread = squares[counts > 1]
    return float(np.sqrt(spread.mean())) if spread.size else 0.0


def _most(values: NDArray[np.int64]) -> tuple[int, float]:
    """The most frequent value and its share."""
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()]), float(counts.max() / counts.sum())
