"""Formulas for the covariances of scores and outputs at infinite width."""

from __future__ import annotations

import math

import numpy as np

from attnlaw.theory.limit.heads import score_matrices
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.sampler import chunks
from attnlaw.theory.limit.wishart import Array, streams


def score_covariance(layer: AttentionLayer) -> Array:
    """Return the covariance Cov(p_ij, p_kl) of scores in the limit, of shape (s, s, s, s).

    The covariance is `Sigma_ik Sigma_jl mean_f cos(theta_f ((j - i) - (l - k)))` times the query and key
    variances. The mean is over the rotary frequencies. The mean is 1 if there are no frequencies. If scores
    are scaled by 1/n, the covariance is zero.

    >>> from attnlaw.theory.limit.inputs import RandomInputs
    >>> cov = score_covariance(AttentionLayer(RandomInputs(2, "relu")))
    >>> float(cov[0, 0, 0, 0].round(12)), float((cov[0, 0, 0, 1] * 4 * math.pi).round(12))
    (0.25, 1.0)
    """
    limit = layer.at_width(math.inf)
    root = limit.inputs.limit_root()
    gram = root @ root.T
    covariance: Array = np.einsum("ik,jl->ijkl", gram, gram) * limit.score_scale**2
    if layer.scores.frequencies:
        i, j = np.indices((layer.tokens, layer.tokens))
        turns = (j - i)[:, :, None, None] - (j - i)[None, None, :, :]
        angles = np.multiply.outer(np.asarray(layer.scores.frequencies), turns)
        covariance *= np.cos(angles).mean(axis=0)
    return covariance


def conditional_covariance(layer: AttentionLayer, scores: Array) -> Array:
    """Return the covariance between tokens of one output coordinate, given the scores, in the limit.

    The covariance is `(sigma_V^2 sigma_O^2 / H) sum_a A^a Sigma A^aT`, where sigma_V^2 and sigma_O^2 are the
    variances of the value and output weights.

    Args:
        scores: the scores of all heads, of shape (draws, H, s, s).

    Returns:
        An array (draws, s, s).

    >>> from attnlaw.theory.limit.inputs import RandomInputs
    >>> conditional_covariance(AttentionLayer(RandomInputs(2)), np.zeros((1, 1, 2, 2))).tolist()
    [[[0.5, 0.5], [0.5, 0.5]]]
    """
    mixed = layer.scores.attention(scores, layer.allowed) @ layer.inputs.limit_root()
    return np.asarray(np.einsum("dhir,dhjr->dij", mixed, mixed) * layer.output_scale**2)


def gaussian_covariance(layer: AttentionLayer, draws: int, seed: int) -> tuple[Array, Array]:
    """Estimate the covariance E[A Sigma A^T] of the Gaussian limit H -> infinity.

    Args:
        draws: the number of draws. The number is at least 2, because a single draw has no standard error.

    Returns:
        The covariance and its standard errors, each of shape (s, s).

    >>> from attnlaw.theory.limit.inputs import RandomInputs
    >>> value, error = gaussian_covariance(AttentionLayer(RandomInputs(2)), 4000, seed=0)
    >>> bool(abs(value[0, 0] - 0.636838) < 5 * error[0, 0])
    True
    """
    one_head = AttentionLayer(layer.inputs, scores=layer.scores, variances=layer.variances)
    root = one_head.inputs.limit_root()[None]
    total = np.zeros((2, layer.tokens, layer.tokens))
    for number, size in enumerate(chunks(draws, layer.tokens**2)):
        p = score_matrices(one_head, root, size, streams(seed, number))
        covariance = conditional_covariance(one_head, p)
        total += covariance.sum(axis=0), (covariance**2).sum(axis=0)
    mean, square = total / draws
    return mean, np.sqrt(np.maximum(square - mean**2, 0.0) / (draws - 1))
