"""Gram matrices of tokens, (..., s, s): from their roots, as cosines, and what heads write side by side."""

from __future__ import annotations

import numpy as np

from attnlaw.theory.limit.wishart import Array


def gram_of(root: Array) -> Array:
    """`L L^T` of roots (..., s, r)."""
    gram: Array = root @ np.swapaxes(root, -1, -2)
    return gram


def cosine_matrix(gram: Array) -> Array:
    """Cosines between tokens; zero tokens count as orthogonal.

    >>> cosine_matrix(np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))[0].tolist()
    [1.0, 0.5, 0.0]
    """
    lengths = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    scale = lengths[..., :, None] * lengths[..., None, :]
    cosines: Array = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
    return cosines


def mean_cosine(cosines: Array) -> Array:
    """The mean over pairs of different tokens; zero of one token."""
    s = cosines.shape[-1]
    off = cosines.sum(axis=(-2, -1)) - np.trace(cosines, axis1=-2, axis2=-1)
    mean: Array = off / max(s * (s - 1), 1)
    return mean


def side_by_side(blocks: Array) -> Array:
    """What heads write, (draws, H, s, q), in one row for each token, (draws, s, H q)."""
    draws, heads, s, q = blocks.shape
    return np.swapaxes(blocks, 1, 2).reshape(draws, s, heads * q)
