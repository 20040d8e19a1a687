"""The limit n -> infinity with H heads, in formulas: score covariance, conditional and Gaussian covariance.

| here    | means                                                                                   |
|---------|-----------------------------------------------------------------------------------------|
| Sigma   | limit of X X^T / n                                                                      |
| p       | scores, Gaussian: Cov(p_ij, p_kl) = Sigma_ik Sigma_jl, heads independent                |
| A       | attention weights, f(p)                                                                 |

arXiv 2506.00846: given the scores, output coordinates are independent N(0, (1/H) sum_a A^a Sigma A^aT):
a Gaussian scale mixture. Draws come from `sample(layer.at_width(inf), ...)`. As H grows the mixture
tends to the Gaussian with covariance E[A Sigma A^T].
"""

from __future__ import annotations

import math

import numpy as np

from attnlaw.core.settings import check_value
from attnlaw.theory.limit.finite import chunks
from attnlaw.theory.limit.heads import score_matrices
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.wishart import Array, streams


def score_covariance(layer: AttentionLayer) -> Array:
    """Cov(p_ij, p_kl) in the limit, as an array (s, s, s, s) over i, j, k, l.

    `Sigma_ik Sigma_jl mean_f cos(theta_f ((j - i) - (l - k)))`, the mean over the rotary frequencies (1
    without them), times the query and key variances; zero when scores are scaled by 1/n.

    >>> from attnlaw.theory.limit import RandomInputs
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
    """Covariance (draws, s, s) of one output coordinate given the scores (draws, H, s, s), in the limit.

    `(sigma_V^2 sigma_O^2 / H) sum_a A^a Sigma A^aT`.

    >>> from attnlaw.theory.limit import RandomInputs
    >>> conditional_covariance(AttentionLayer(RandomInputs(2)), np.zeros((1, 1, 2, 2))).tolist()
    [[[0.5, 0.5], [0.5, 0.5]]]
    """
    mixed = layer.scores.attention(scores, layer.allowed) @ layer.inputs.limit_root()
    covariance: Array = np.einsum("dhir,dhjr->dij", mixed, mixed) * layer.output_scale**2
    return covariance


def gaussian_covariance(layer: AttentionLayer, draws: int, seed: int) -> tuple[Array, Array]:
    """The covariance E[A Sigma A^T] (s, s) of the Gaussian limit H -> infinity, and its standard errors.

    Fails for fewer than 2 draws, which tell no error.

    >>> from attnlaw.theory.limit import RandomInputs
    >>> value, error = gaussian_covariance(AttentionLayer(RandomInputs(2)), 4000, seed=0)
    >>> bool(abs(value[0, 0] - 0.636838) < 5 * error[0, 0])
    True
    """
    check_value("draws", draws, int, minimum=2)
    one_head = AttentionLayer(layer.inputs, scores=layer.scores, variances=layer.variances)
    root = one_head.inputs.limit_root()[None]
    total = np.zeros((2, layer.tokens, layer.tokens))
    for number, size in enumerate(chunks(draws, layer.tokens**2)):
        p = score_matrices(one_head, root, size, streams(seed, number))
        covariance = conditional_covariance(one_head, p)
        total += covariance.sum(axis=0), (covariance**2).sum(axis=0)
    mean, square = total / draws
    return mean, np.sqrt(np.maximum(square - mean**2, 0.0) / (draws - 1))
