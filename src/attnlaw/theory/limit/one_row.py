"""The row of one token among many random ones, without a matrix of the size of all pairs of tokens.

| here   | means                                                                                     |
|--------|-------------------------------------------------------------------------------------------|
| X      | s x n standard normal, tokens are rows of sqrt(r) X; L = X sqrt(r / n)                    |
| Z      | n x H standard normal: the row's scores are \\|L_i\\| L Z, a column for each head            |
| Q T^T  | QR factorisation of Z; T is Bartlett's factor of H rows and n degrees of freedom          |
| Y      | X Q, s x H standard normal, independent of T                                              |
| rho    | length of what token i has beside Q: rho^2 ~ chi2_{n-H}                                   |
| a, C   | attention weights of all heads, s x H; sum of a_j a_j^T over the tokens j other than i    |

L Z = Y T^T sqrt(r / n) and |X_i|^2 = |Y_i|^2 + rho^2 need no more of X than Y and rho, and so do the
weights. Given them what X has beside Q is, but for the length of row i, still standard normal:

    |X^T a_h|^2 = |Y^T a_h|^2 + (rho a_ih + (C^(1/2) g)_h)^2 + |row h of C^(1/2) Bart(H, n - H - 1)|^2

with g standard normal: exact for all heads together, in H s numbers a draw instead of s^2 / 2. At infinite
width L is the identity.
"""

from __future__ import annotations

import math

import numpy as np

from attnlaw.theory.limit.inputs import RandomInputs
from attnlaw.theory.limit.kernels import activation
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.wishart import Array, Streams, bartlett, symmetric_root

# Tokens from which rows are drawn so. Fewer keep the draws that their seeds have always had.
MANY = 64


def can_draw_row(layer: AttentionLayer, normalise: bool) -> bool:
    """Whether a layer's tokens are many (more than heads), independent normals, and read as they are."""
    inputs = layer.inputs
    return (
        isinstance(inputs, RandomInputs)
        and inputs.tokens >= max(MANY, layer.heads)
        and activation(inputs.activation).linear
        and layer.width > layer.heads + 1
        and not layer.scores.frequencies
        and not normalise
    )


def draw_row(layer: AttentionLayer, token: int, draws: int, draw: Streams) -> tuple[Array, Array]:
    """|L^T a_h|^2 of each head, (draws, H), and Sigma_ii, (draws,).

    >>> from attnlaw.theory.limit.wishart import streams
    >>> lengths, squares = draw_row(AttentionLayer(RandomInputs(100), heads=2, width=50), 0, 5, streams(0))
    >>> lengths.shape, squares.shape
    ((5, 2), (5,))
    """
    heads, inputs = layer.heads, layer.inputs
    y = draw.normals.standard_normal((draws, layer.tokens, heads))
    if layer.width == math.inf:
        weights = _weights(layer, token, y, np.ones(draws), draw)
        return np.einsum("dsh,dsh->dh", weights, weights), np.ones(draws)
    assert isinstance(inputs, RandomInputs)
    n = int(layer.width)
    r = draw.inputs.chisquare(n, draws) / n if inputs.shared else np.ones(draws)
    mixing = np.swapaxes(bartlett(heads, n, (draws,), draw.inputs), -1, -2)
    beside = draw.inputs.chisquare(n - heads, draws)
    squares = (np.einsum("dh,dh->d", y[:, token], y[:, token]) + beside) * r / n
    weights = _weights(layer, token, y @ (mixing * np.sqrt(r / n)[:, None, None]), squares, draw)
    inside = np.swapaxes(y, -1, -2) @ weights
    self_weight = weights[:, token].copy()
    weights[:, token] = 0.0
    root = symmetric_root(np.swapaxes(weights, -1, -2) @ weights)
    along = (root @ draw.inputs.standard_normal((draws, heads, 1)))[..., 0]
    across = root @ bartlett(heads, n - heads - 1, (draws,), draw.inputs)
    lengths = np.einsum("dkh,dkh->dh", inside, inside) + (np.sqrt(beside)[:, None] * self_weight + along) ** 2
    lengths += np.einsum("dhk,dhk->dh", across, across)
    return lengths * (r / n)[:, None], squares


def _weights(layer: AttentionLayer, token: int, keys: Array, squares: Array, draw: Streams) -> Array:
    """The attention weights of a token, (draws, s, H), from L Z and its squared length."""
    length = layer.score_scale * np.sqrt(squares)[:, None, None]
    if layer.narrow:
        n_h = int(layer.inner_width)
        length = length * np.sqrt(draw.widths.chisquare(n_h, (len(keys), 1, layer.heads)) / n_h)
    return layer.scores.attention(length * keys, layer.allowed[token][:, None], axis=1)
