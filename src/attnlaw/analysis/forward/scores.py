"""The scores of an attention block in one forward pass: `l_ij = s q_i . k_j` over the allowed pairs.

| symbol | here | shape |
|---|---|---|
| X | `inputs`, what queries and keys are made of | s x D |
| W_Q, b_Q of all heads side by side | `query, query_bias` | D x H d, H d |
| W_K, b_K of all key heads | `key, key_bias` | D x G d, G d |
| cos, sin of the angles of positions | `rotary` | s x d each |
| which pairs the mask allows | `allowed` | s x s |

Query head h reads key head h G // H (grouped queries). Positions rotate queries and keys after the biases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals


@dataclass(frozen=True, eq=False)
class FrozenScores:
    """The scores of one attention block. The scores are computed for one head at a time, on request."""

    inputs: Reals
    query: Reals
    query_bias: Reals
    key: Reals
    key_bias: Reals
    heads: int
    key_heads: int
    scale: float
    allowed: NDArray[np.bool_]
    rotary: tuple[Reals, Reals] | None = None

    @property
    def head_size(self) -> int:
        return int(self.query.shape[1]) // self.heads

    @property
    def tokens(self) -> int:
        return len(self.inputs)

    @property
    def unmasked(self) -> bool:
        return bool(self.allowed.all())

    @property
    def causal(self) -> bool:
        """Whether the mask is causal, so that every token may look only at itself and at earlier tokens."""
        return bool((self.allowed == np.tri(self.tokens, dtype=bool)).all())

    def weights(self, head: int) -> tuple[Reals, Reals]:
        """Return W_Q and W_K of a head, each of shape D x d."""
        return self.query[:, self._columns(head)], self.key[:, self._columns(self._key_head(head))]

    def logits(self, head: int) -> Reals:
        """Return the scores of a head (s x s), including scores of pairs that the mask does not allow."""
        W_Q, W_K = self.weights(head)
        biases = self.query_bias[self._columns(head)], self.key_bias[self._columns(self._key_head(head))]
        return self.scores_with(W_Q, W_K, *biases)

    def scores_with(
        self, W_Q: Reals, W_K: Reals, b_Q: Reals | float = 0.0, b_K: Reals | float = 0.0
    ) -> Reals:
        queries, keys = self._rotate(self.inputs @ W_Q + b_Q), self._rotate(self.inputs @ W_K + b_K)
        return np.asarray(self.scale * (queries @ keys.T))

    def attention(self, logits: Reals) -> Reals:
        """Return the softmax of each row of logits over the allowed pairs."""
        return np.asarray(scipy.special.softmax(np.where(self.allowed, logits, -np.inf), axis=1))

    def _columns(self, head: int) -> slice:
        return slice(head * self.head_size, (head + 1) * self.head_size)

    def _key_head(self, head: int) -> int:
        return head * self.key_heads // self.heads

    def _rotate(self, x: Reals) -> Reals:
        """Apply rotary positions to rows: rotate coordinates i and i + d/2 by the angle of the position."""
        if self.rotary is None:
            return x
        cos, sin = self.rotary
        half = x.shape[1] // 2
        return np.asarray(x * cos + np.concatenate([-x[:, half:], x[:, :half]], axis=1) * sin)
