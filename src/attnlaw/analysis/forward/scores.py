"""How an attention block of one forward pass makes its scores: `l_ij = s q_i . k_j` over the allowed pairs.

| symbol | here | shape |
|---|---|---|
| X | `inputs`, what queries and keys are made of | s x D |
| W_Q, b_Q of all heads side by side | `query, query_bias` | D x H d, H d |
| W_K, b_K of all key heads | `key, key_bias` | D x G d, G d |
| cos, sin of the positions' angles | `rotary` | s x d each |
| which pairs the mask lets through | `allowed` | s x s |

Query head h reads key head h G // H (grouped queries). Positions turn queries and keys after the biases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals


@dataclass(frozen=True, eq=False)
class FrozenScores:
    """The scores of one attention block, made head by head when they are asked for."""

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
        """Whether every token may look at every other."""
        return bool(self.allowed.all())

    @property
    def causal(self) -> bool:
        """Whether every token may look at itself and all before, and at nothing else."""
        return bool((self.allowed == np.tri(self.tokens, dtype=bool)).all())

    def weights(self, head: int) -> tuple[Reals, Reals]:
        """W_Q and W_K of a head, D x d each."""
        return self.query[:, self._columns(head)], self.key[:, self._columns(self._key_head(head))]

    def logits(self, head: int) -> Reals:
        """The scores of a head, s x s, those that the mask takes away included."""
        W_Q, W_K = self.weights(head)
        biases = self.query_bias[self._columns(head)], self.key_bias[self._columns(self._key_head(head))]
        return self.scores_with(W_Q, W_K, *biases)

    def scores_with(
        self, W_Q: Reals, W_K: Reals, b_Q: Reals | float = 0.0, b_K: Reals | float = 0.0
    ) -> Reals:
        """The scores of a head with these weights on the same inputs at the same positions."""
        queries, keys = self._rotate(self.inputs @ W_Q + b_Q), self._rotate(self.inputs @ W_K + b_K)
        return np.asarray(self.scale * (queries @ keys.T))

    def attention(self, logits: Reals) -> Reals:
        """The probabilities of scores, by rows over the allowed pairs."""
        return masked_softmax(logits, self.allowed)

    def _columns(self, head: int) -> slice:
        return slice(head * self.head_size, (head + 1) * self.head_size)

    def _key_head(self, head: int) -> int:
        """The key head that a query head reads."""
        return head * self.key_heads // self.heads

    def _rotate(self, x: Reals) -> Reals:
        """Rows turned with their position: number i goes with i + d/2."""
        if self.rotary is None:
            return x
        cos, sin = self.rotary
        half = x.shape[1] // 2
        return np.asarray(x * cos + np.concatenate([-x[:, half:], x[:, :half]], axis=1) * sin)


def masked_softmax(logits: Reals, allowed: NDArray[np.bool_]) -> Reals:
    """Softmax by rows over the allowed pairs, zero elsewhere.

    >>> masked_softmax(np.zeros((2, 2)), np.tri(2, dtype=bool))
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    return np.asarray(scipy.special.softmax(np.where(allowed, logits, -np.inf), axis=1))
