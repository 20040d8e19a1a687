"""The chain: layer after layer of a Transformer, on Gram matrices of its tokens alone.

| order    | a layer                                                                      |
|----------|------------------------------------------------------------------------------|
| pre      | x + attention(norm x), then x + mlp(norm x)                                  |
| post     | norm(x + attention(x)), then norm(x + mlp(x))                                |
| parallel | x + attention(norm x) + mlp(norm x)                                          |
| sandwich | x + norm(attention(norm x)), then x + norm(mlp(norm x))                      |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attnlaw.theory.init.finite import Finite
from attnlaw.theory.limit.grams import gram_of
from attnlaw.theory.limit.wishart import Array


@dataclass(frozen=True, eq=False)
class LayerState:
    """A layer that was passed: Gram matrices over N after it, and its heads' scores and weights.

    Shapes (draws, s, s) and (draws, H, s, s). The embeddings are the layer before the first: no scores.
    """

    gram: Array
    scores: Array | None = None
    weights: Array | None = None


def run_layers(state: Finite) -> Iterator[LayerState]:
    """The embeddings and every layer in order; the state is the chunk of draws as it goes along."""
    if state.model.first_norm:
        state.replace(state.norm(state.x))
    yield LayerState(gram_of(state.x))
    for layer in range(state.model.depth):
        scores, weights = _layer(state, layer)
        yield LayerState(gram_of(state.x), scores, weights)


def _layer(state: Finite, layer: int) -> tuple[Array, Array]:
    norms = state.model.norms
    h = state.norm(state.x) if norms.before else state.x
    scores, weights, r = state.attention(h, layer)
    if norms.parallel:
        state.add(np.concatenate([r, state.mlp(h)], axis=-1))
        return scores, weights
    state.add(r)
    if norms.after:
        state.replace(state.norm(state.x))
    state.add(state.mlp(state.norm(state.x) if norms.before else state.x))
    if norms.after:
        state.replace(state.norm(state.x))
    return scores, weights
