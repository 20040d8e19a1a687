"""Exact draws of a layer at any width, at a cost that does not depend on the width.

Given the tokens, only s x s matrices matter (see `heads`). For many independent tokens, only the numbers that
one row needs are drawn. So a width of 1e9 costs as much as a width of 64. Only activations other than the
identity draw tokens of size s x n. An infinite width gives the limit.
"""

from __future__ import annotations

import numpy as np

from attnlaw.core.settings import check_value
from attnlaw.theory.limit.heads import can_draw_row, draw_row, score_row
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.mixture import OutputLaw
from attnlaw.theory.limit.wishart import Array, Streams, streams

MOST_DRAWS = 10**8
# Numbers of one kind that a chunk of draws holds: small enough for a core's cache. Chunks do not
# depend on the width, so that equal seeds share their normals across widths.
_CHUNK = 2**15


def chunk_size(draws: int, numbers_per_draw: int) -> int:
    """Return how many draws are computed at the same time."""
    return min(draws, max(1, _CHUNK // numbers_per_draw))


def chunks(draws: int, numbers_per_draw: int) -> list[int]:
    """Return the sizes of the chunks into which the draws are split."""
    check_value("draws", draws, int, minimum=1, maximum=MOST_DRAWS)
    size = chunk_size(draws, numbers_per_draw)
    return [min(size, draws - start) for start in range(0, draws, size)]


def token_roots(layer: AttentionLayer, draws: int, draw: Streams, m: int = 0) -> Array:
    """Return roots of the tokens' Gram matrix, of shape (draws or 1, s, columns)."""
    if layer.width == np.inf:
        return layer.inputs.limit_root()[None]
    return layer.inputs.roots(int(layer.width), draws, draw, m)


def output_law(
    layer: AttentionLayer, draws: int, seed: int, token: int = 0, normalise: bool = False
) -> OutputLaw:
    """Compute the distribution of one output coordinate of one token.

    It is an average of normals N(0, v), `v = (1/H) sum_a |A^a_i L|^2 chi2_{n_H} / n_H`. For infinite
    n_H the factor chi2_{n_H} / n_H is 1.
    """
    check_token(token, layer.tokens)
    alone = can_draw_row(layer, normalise)
    variances, score_variances = [], []
    for number, size in enumerate(chunks(draws, layer.heads * layer.tokens)):
        draw = streams(seed, number)
        if alone:
            lengths, squares = draw_row(layer, token, size, draw)
        else:
            lengths, squares = _row_of_all(layer, token, size, draw, normalise)
        if layer.narrow:
            n_h = int(layer.inner_width)
            lengths *= draw.widths.chisquare(n_h, lengths.shape) / n_h
        variances.append(lengths.sum(axis=-1) * layer.output_scale**2)
        score_variances.append(np.broadcast_to((layer.score_scale * squares) ** 2, size))
    return OutputLaw(np.concatenate(variances), None, np.concatenate(score_variances))


def _row_of_all(
    layer: AttentionLayer, token: int, draws: int, draw: Streams, normalise: bool
) -> tuple[Array, Array]:
    """Return the two arrays of `heads.draw_row`, computed from a root of all tokens."""
    root = token_roots(layer, draws, draw)
    if normalise:
        root = unit_rows(root)
    p = score_row(layer, root, token, draws, draw)
    weights = layer.scores.attention(p, layer.allowed[token][:, None], axis=1)
    mixed = np.swapaxes(root, -1, -2) @ weights
    return np.einsum("drh,drh->dh", mixed, mixed), squared_length(root, token)


def squared_length(root: Array, token: int) -> Array:
    """Return the squared length of a token divided by the width, of shape (draws or 1,)."""
    return np.asarray(np.einsum("dr,dr->d", root[:, token], root[:, token]))


def score_variance(layer: AttentionLayer, root: Array, token: int) -> Array:
    """Return the variance of a token's score with itself (p_ii), given the tokens."""
    return np.asarray((layer.score_scale * squared_length(root, token)) ** 2)


def unit_rows(root: Array) -> Array:
    """Divide each token by its root mean square (RMSNorm)."""
    lengths = np.linalg.norm(root, axis=-1, keepdims=True)
    return root / np.where(lengths > 0, lengths, 1.0)


def check_token(token: int, tokens: int) -> None:
    """Raise an `InputError` if there is no such token. The message counts tokens from 1."""
    check_value("token", token + 1, int, minimum=1, maximum=tokens)
