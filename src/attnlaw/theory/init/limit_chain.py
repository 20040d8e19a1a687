"""The layers of an untrained Transformer in the limit of infinite width.

Gains and the variances of embeddings stay the same as N -> infinity. LayerNorm becomes RMSNorm, because the
mean vanishes. Bartlett's factors become identities, and the output of a block is orthogonal to the stream.
There are three regimes:

| kept       | scores     | what stays random                                                          |
|------------|------------|----------------------------------------------------------------------------|
| heads      | 1/sqrt(d)  | the scores, Gaussian with Cov(p_ij, p_kl) = c^2 Sigma_ik Sigma_jl          |
| heads      | 1/d (muP)  | nothing: attention is uniform on the tokens that a token sees              |
| head width | either     | nothing (except a router): Sigma_R = g_V^2 H d std_O^2 E[A Sigma A^T], the |
|            |            | mean over one head at its finite width, here over `SAMPLED` heads          |

Here d is the head width, Sigma the Gram matrix of the tokens and A the attention weights. The first regime
is the limit of arXiv 2506.00846, with the rest of a Transformer around it. The other regimes, and the rest
of the Transformer, are extensions by attnlaw.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace

import numpy as np

from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.chain import Chain, capped, router_weights, unit_kernel
from attnlaw.theory.init.tokens import Tokens
from attnlaw.theory.limit.inputs import gram_of, side_by_side
from attnlaw.theory.limit.layer import softmax
from attnlaw.theory.limit.wishart import Array, compress, symmetric_root

SAMPLED = 1000  # heads that represent infinitely many


class LimitChain(Chain):
    """Random draws of a model in the limit of infinite width."""

    limit = True

    def __init__(
        self,
        model: Architecture,
        tokens: Tokens,
        draws: int,
        rng: np.random.Generator,
        random_scores: bool,
        uniform: bool = False,
    ) -> None:
        self.random_scores, self.uniform = random_scores, uniform
        super().__init__(replace(model, norm="rms"), tokens, draws, rng)

    def _frames(self, k: int) -> Array:
        return np.broadcast_to(np.eye(k), (self.draws, k, k)).copy()

    def attention(self, h: Array, layer: int) -> tuple[Array, Array, Array]:
        model, std = self.model, self.model.deviations
        t = compress(h)
        if self.random_scores:
            p = self._gaussian_scores(t) * (model.score_scales[layer] * math.sqrt(model.head_width))
            p *= 0.0 if self.uniform else 1.0
        else:
            sampled = copy(self)
            sampled.model = replace(model, heads=SAMPLED, key_value_heads=SAMPLED)
            p = sampled.head_scores(t) * model.score_scales[layer]
        p = capped(p, model.score_cap)
        weights = softmax(p, self.allowed, -1)
        mixed = side_by_side(weights @ t[:, None])
        scale = model.width * std.value**2 * std.residual**2 * model.head_width
        share = model.heads / weights.shape[1]
        return p, weights, symmetric_root(scale * share * gram_of(mixed))

    def _gaussian_scores(self, t: Array) -> Array:
        """Draw the scores q . k / sqrt(d) of infinitely wide heads, shape (draws, H, s, s)."""
        model, std = self.model, self.model.deviations
        gains = [math.sqrt(model.width) * deviation for deviation in (std.query, std.key)]
        q, k = (self._normalised(gain, t)[:, None] for gain in gains)
        shape = (self.draws, model.heads, t.shape[-1], t.shape[-1])
        pairs, planes = model.head_width // 2, len(model.frequencies)
        still = (pairs - planes) / pairs if planes else 1.0
        p: Array = math.sqrt(still) * (q @ self.rng.standard_normal(shape) @ np.swapaxes(k, -1, -2))
        # Each frequency has an equal share of the rotated pairs. A rotation is a cosine and a sine part.
        i, j = np.ogrid[: len(self.tokens), : len(self.tokens)]
        for theta in model.frequencies:
            for turn in (np.cos, np.sin):
                part = q @ self.rng.standard_normal(shape) @ np.swapaxes(k, -1, -2)
                p += math.sqrt((1 - still) / planes) * turn(theta * (j - i)) * part
        return p

    def _normalised(self, gain: float, t: Array) -> Array:
        """Return queries or keys divided by sqrt(d). If the model normalises them, they have length one."""
        if not self.model.query_key_norm:
            return gain * t
        lengths = gain**2 * (t * t).sum(axis=-1, keepdims=True)
        return np.asarray(gain * t / np.sqrt(lengths + self.model.epsilon))

    def mlp(self, h: Array) -> Array:
        model, t = self.model, compress(h)
        gram = model.hidden * unit_kernel(model, gram_of(t))
        if model.experts:
            weights = router_weights(model, t, self.rng)
            gram = gram * (weights @ np.swapaxes(weights, -1, -2))
        return symmetric_root(gram) * model.deviations.residual

    def add(self, r: Array) -> None:
        if self.model.norms.output:
            r = self.norm(r)
        rows, rank, k = *self.root.shape[1:], r.shape[-1]
        wide = np.zeros((self.draws, rows, rank + k))
        wide[..., :rank] = self.root
        wide[:, : len(self.tokens), rank:] = self.model.residual_scale * r
        self.root = compress(wide)
