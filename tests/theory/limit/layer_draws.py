"""Joint draws of the scores and outputs of a layer, and of all Gram matrices of a stack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.theory.limit.depth import Depth, _State
from attnlaw.theory.limit.heads import attention_root, score_matrices
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.sampler import chunks, token_roots
from attnlaw.theory.limit.wishart import Array, streams


@dataclass(frozen=True, eq=False)
class StackSample:
    """Joint draws of a stack."""

    grams: Array  # gram matrices over n after 0, 1, ..., depth layers, (draws, depth + 1, s, s)
    scores: Array  # scores of the last attention block with H heads, (draws, H, s, s)
    outputs: Array  # m output coordinates of each token, (draws, s, m)


def sample_stack(stack: Depth, draws: int, seed: int, coordinates: int = 1) -> StackSample:
    """Draw the Gram matrices, the last scores and some output coordinates of a stack jointly.

    Args:
        coordinates: the number m of output coordinates, at most the width.

    >>> from attnlaw.theory.limit.inputs import RandomInputs
    >>> drawn = sample_stack(Depth(AttentionLayer(RandomInputs(3), width=10**9), depth=2), 5, seed=0)
    >>> drawn.grams.shape, drawn.scores.shape, drawn.outputs.shape
    ((5, 3, 3, 3), (5, 1, 3, 3), (5, 3, 1))
    """
    grams, scores, outputs = [], [], []
    for number, size in enumerate(chunks(draws, stack.layer.heads * stack.layer.tokens**2)):
        state = _State(stack, size, streams(seed, number), coordinates)
        grams.append(state.pass_blocks())
        scores.append(state.scores)
        outputs.append(state.coordinates())
    return StackSample(np.concatenate(grams), np.concatenate(scores), np.concatenate(outputs))


@dataclass(frozen=True, eq=False)
class Sample:
    """Joint draws of a layer."""

    scores: Array  # the scores of all heads, (draws, H, s, s)
    outputs: Array  # m output coordinates of each token, (draws, s, m)


def sample(layer: AttentionLayer, draws: int, seed: int, coordinates: int = 1) -> Sample:
    """Draw all scores and some output coordinates of every token jointly.

    Coordinates share the scores and the lengths of the values. Therefore the coordinates are uncorrelated but
    not independent.
    """
    scores, outputs = [], []
    for number, size in enumerate(chunks(draws, layer.heads * layer.tokens**2)):
        draw = streams(seed, number)
        root = token_roots(layer, size, draw)
        p = score_matrices(layer, root, size, draw)
        r = attention_root(layer, root, p, draw)
        outputs.append(r @ draw.normals.standard_normal((size, r.shape[-1], coordinates)))
        scores.append(p)
    return Sample(np.concatenate(scores), np.concatenate(outputs))
