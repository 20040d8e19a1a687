r"""Draws of a layer's heads, given a root L of the tokens' Gram matrix, at any head width.

| here     | means                                                                                |
|----------|--------------------------------------------------------------------------------------|
| L        | root of X X^T / n, (draws or 1, s, r)                                                |
| n_H      | head width; infinity gives the limit, where `Bart(r, n_H) / sqrt(n_H)` is the identity |
| N        | standard normal                                                                      |
| F        | number of rotary frequencies                                                         |

The queries of one head are `L Z_q`, Z_q standard normal r x n_H. So `p = L Bart(r, n_H) N L^T / sqrt(n_H)`
holds exactly at every n_H, and one row of it is `p_i. = |L_i| chi_{n_H} N_row L^T / sqrt(n_H)`. With rotary
positions the same holds in the k = n_H / (2 F) complex planes of each frequency f:
`p_ij = 2 / sqrt(n_H) sum_f Re(e^(i theta_f (j - i)) (L C_f M_f L^T)_ij)`. Here C_f is the complex Bartlett
factor with k degrees of freedom, and M_f is complex standard normal.

| here   | means                                                                                     |
|--------|-------------------------------------------------------------------------------------------|
| X      | s x n standard normal; tokens are rows of sqrt(r) X, and L = X sqrt(r / n)                |
| Z      | n x H standard normal: the row's scores are \|L_i\| L Z, a column for each head            |
| Q T^T  | QR factorisation of Z; T is Bartlett's factor of H rows and n degrees of freedom          |
| Y      | X Q, s x H standard normal, independent of T                                              |
| rho    | length of the part of token i that is orthogonal to Q: rho^2 ~ chi2_{n-H}                  |
| a, C   | attention weights of all heads, s x H; sum of a_j a_j^T over the tokens j other than i    |

L Z = Y T^T sqrt(r / n) and |X_i|^2 = |Y_i|^2 + rho^2 need only Y and rho, and so do the weights. Given these,
the part of X orthogonal to Q is still standard normal, except for the length of row i:

    |X^T a_h|^2 = |Y^T a_h|^2 + (rho a_ih + (C^(1/2) g)_h)^2 + |row h of C^(1/2) Bart(H, n - H - 1)|^2

with g standard normal. This is exact for all heads together and needs H s numbers a draw instead of s^2 / 2.
At infinite width, L is the identity.
"""

from __future__ import annotations

import math

import numpy as np

from attnlaw.theory.limit.inputs import RandomInputs, side_by_side
from attnlaw.theory.limit.kernels import activation
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.wishart import (
    Array,
    ComplexArray,
    Streams,
    bartlett,
    complex_bartlett,
    complex_normals,
    symmetric_root,
)


def score_matrices(layer: AttentionLayer, root: Array, draws: int, draw: Streams) -> Array:
    """Draw the attention scores of all tokens in all H heads, of shape (draws, H, s, s)."""
    r = root.shape[-1]
    left = root[:, None]
    if layer.scores.frequencies:
        return _rotary_matrices(layer, root, draws, draw)
    if layer.narrow:
        n_h = int(layer.inner_width)
        factor = bartlett(r, n_h, (draws, layer.heads), draw.widths)
        core = factor @ draw.normals.standard_normal((draws, layer.heads, min(r, n_h), r))
        core /= math.sqrt(n_h)
    else:
        core = draw.normals.standard_normal((draws, layer.heads, r, r))
    p: Array = (left @ core) @ np.swapaxes(left, -1, -2)
    p *= layer.score_scale
    return p


def _rotary_matrices(layer: AttentionLayer, root: Array, draws: int, draw: Streams) -> Array:
    r, planes = root.shape[-1], len(layer.scores.frequencies)
    shape = (draws, layer.heads, planes)
    core: ComplexArray
    if layer.narrow:
        n_h = int(layer.inner_width)
        k = n_h // (2 * planes)
        core = complex_bartlett(r, k, shape, draw.widths) @ complex_normals(
            (*shape, min(r, k), r), draw.normals
        )
        core *= 2 / math.sqrt(n_h)
    else:
        core = complex_normals((*shape, r, r), draw.normals) * math.sqrt(2 / planes)
    left = root[:, None, None]
    turned = _phases(layer) * (left @ core @ np.swapaxes(left, -1, -2))
    return np.asarray(turned.real.sum(axis=2) * layer.score_scale)


def _phases(layer: AttentionLayer) -> ComplexArray:
    """Return the rotary phases e^(i theta_f (j - i)), (F, s, s)."""
    i, j = np.indices((layer.tokens, layer.tokens))
    angles = np.asarray(layer.scores.frequencies)[:, None, None] * (j - i)
    return np.asarray(np.exp(1j * angles))


def score_row(layer: AttentionLayer, root: Array, token: int, draws: int, draw: Streams) -> Array:
    """Draw the attention scores of one token's query in all H heads, of shape (draws, s, H)."""
    r = root.shape[-1]
    length = layer.score_scale * np.linalg.norm(root[:, token], axis=-1)[:, None, None]
    if layer.scores.frequencies:
        return np.asarray(length * _rotary_row(layer, root, token, draws, draw))
    row: Array = root @ draw.normals.standard_normal((draws, r, layer.heads))
    if layer.narrow:
        n_h = int(layer.inner_width)
        length = length * np.sqrt(draw.widths.chisquare(n_h, (draws, 1, layer.heads)) / n_h)
    row *= length
    return row


def _rotary_row(layer: AttentionLayer, root: Array, token: int, draws: int, draw: Streams) -> Array:
    r, planes = root.shape[-1], len(layer.scores.frequencies)
    row = root[:, None] @ complex_normals((draws, planes, r, layer.heads), draw.normals)
    row *= _phases(layer)[:, token, :, None]
    if layer.narrow:
        n_h = int(layer.inner_width)
        gammas = draw.widths.standard_gamma(n_h // (2 * planes), (draws, planes, 1, layer.heads))
        row *= np.sqrt(gammas) * (2 / math.sqrt(n_h))
    else:
        row *= math.sqrt(2 / planes)
    return np.asarray(row.real.sum(axis=1))


def value_roots(layer: AttentionLayer, r: int, draws: int, draw: Streams) -> Array:
    """Draw a square root of `W_V^T W_V` for each head, projected on the space of the tokens."""
    if not layer.narrow:
        return np.eye(r)[None, None]
    n_h = int(layer.inner_width)
    return bartlett(r, n_h, (draws, layer.heads), draw.widths) / math.sqrt(n_h)


def attention_root(layer: AttentionLayer, root: Array, scores: Array, draw: Streams) -> Array:
    """Return the root R of the covariance of the attention output, of shape (draws, s, H q).

    With the value roots V_a, `R = H^(-1/2) [A_1 L V_1, ..., A_H L V_H]`.
    """
    draws = len(scores)
    weights = layer.scores.attention(scores, layer.allowed)
    blocks = weights @ (root[:, None] @ value_roots(layer, root.shape[-1], draws, draw))
    return side_by_side(blocks) * layer.output_scale


# `draw_row` starts at this number of tokens. Fewer tokens keep the draws that each seed had before it.
MANY = 64


def can_draw_row(layer: AttentionLayer, normalise: bool) -> bool:
    """Return whether the fast function `draw_row` can be used for a layer."""
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
    """Draw the squared lengths of what each head reads for a token, and of the token itself."""
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
    """Return a token's attention weights (draws, s, H) for products L Z and its squared lengths."""
    length = layer.score_scale * np.sqrt(squares)[:, None, None]
    if layer.narrow:
        n_h = int(layer.inner_width)
        length = length * np.sqrt(draw.widths.chisquare(n_h, (len(keys), 1, layer.heads)) / n_h)
    return layer.scores.attention(length * keys, layer.allowed[token][:, None], axis=1)
