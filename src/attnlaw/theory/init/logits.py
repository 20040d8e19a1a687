"""The logits and the loss of an untrained model, from its last tokens.

| here  | means                                                                                         |
|-------|-----------------------------------------------------------------------------------------------|
| V     | the size of the vocabulary                                                                    |
| u     | different ids among the tokens; their logits are drawn one by one                             |
| C     | (draws, s, s): covariance over tokens of the logits of an id that is not among them           |
| Z     | sum over these V - u ids of exp(logit)                                                        |

A vocabulary of more than `MOST_DRAWN` ids is not drawn. Z is then taken as normal over tokens (the central
limit theorem in V, an approximation). Its mean and covariance are those of a sum of V - u independent
log-normal vectors, `V e^(C_ii/2)` and `V e^((C_ii + C_jj)/2) (e^(C_ij) - 1)`. If logits are capped, Mehler's
series gives them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.chain import Chain, capped
from attnlaw.theory.limit.inputs import gram_of
from attnlaw.theory.limit.kernels import activation, apply, coefficients, kernel_map, mehler_kernel
from attnlaw.theory.limit.wishart import Array, bartlett, symmetric_root

MOST_DRAWN = 4096


@dataclass(frozen=True, eq=False)
class InitialLogits:
    """The distribution of the logits of an untrained model at every token."""

    token_logits: Array | None  # of the u different ids, (draws, s, u); None without a limit
    covariance: Array  # covariance C of the logits of each other id, (draws, s, s)
    others: int  # number of other ids, without padding
    zeros: int  # ids whose logit is always 0: the padding of a tied head, if no token has it
    cap: float | None  # cap of the logits; None is no cap

    def deviation(self) -> Array:
        """Return the standard deviation of the logit of an id that is not among the tokens, in each draw."""
        variances = np.diagonal(self.covariance, axis1=-2, axis2=-1)
        if self.cap is not None:
            variances = np.diagonal(mehler_kernel(self._capped, self.covariance), axis1=-2, axis2=-1)
        return np.asarray(np.sqrt(variances.mean(axis=-1)))

    def _capped(self, z: Array) -> Array:
        return capped(z, self.cap)

    def log_sums(self, rng: np.random.Generator) -> Array:
        """Return log sum exp(logit) over the vocabulary, (draws, s). It may be infinite for large logits."""
        assert self.token_logits is not None
        draws, s = self.covariance.shape[:2]
        if self.others <= MOST_DRAWN:
            z = symmetric_root(self.covariance) @ rng.standard_normal((draws, s, self.others))
            zeros = np.zeros((draws, s, self.zeros))
            every = np.concatenate([capped(z, self.cap), self.token_logits, zeros], axis=-1)
            return np.asarray(scipy.special.logsumexp(every, axis=-1))
        with np.errstate(over="ignore", invalid="ignore"):
            mean, second = self._moments()
            products = self.others * (second - mean[..., :, None] * mean[..., None, :])
            if not np.isfinite(products).all():
                return np.full((draws, s), np.inf)
            rest = (
                self.others * mean + (symmetric_root(products) @ rng.standard_normal((draws, s, 1)))[..., 0]
            )
            return np.asarray(np.log(rest + self.zeros + np.exp(self.token_logits).sum(axis=-1)))

    def _moments(self) -> tuple[Array, Array]:
        """Return E e^(z_i) and E e^(z_i + z_j) for the logits z of one id at the tokens i and j."""
        if self.cap is None:
            halves = np.diagonal(self.covariance, axis1=-2, axis2=-1) / 2
            together = self.covariance + halves[..., :, None] + halves[..., None, :]
            return np.exp(halves), np.exp(together)
        variances = np.diagonal(self.covariance, axis1=-2, axis2=-1)
        return (
            coefficients(lambda z: np.exp(self._capped(z)), variances)[..., 0],
            mehler_kernel(lambda z: np.exp(self._capped(z)), self.covariance),
        )


def logits_of(state: Chain) -> InitialLogits:
    """Return the logits of a model after its last layer."""
    model = state.model
    h = state.norm(state.x) if model.last_norm else state.x
    if model.head == "masked":
        gram, logits = _masked_head(state, h)
    else:
        gram = gram_of(h)
        logits = model.width * h @ np.swapaxes(state.embeddings, -1, -2) if model.tied else None
    std = model.deviations.embedding if model.tied else model.deviations.head
    covariance = model.logit_scale**2 * model.width * std**2 * gram
    if not model.tied:
        fresh = state.rng.standard_normal((state.draws, len(state.tokens), len(state.tokens.distinct)))
        logits = symmetric_root(covariance) @ fresh
    elif state.limit:
        logits = None
    else:
        assert logits is not None
        logits = model.logit_scale * logits
    apart = model.tied and model.padding is not None and model.padding not in state.tokens.ids
    others = model.vocabulary - len(state.tokens.distinct) - apart
    logits = None if logits is None else capped(logits, model.logit_cap)
    return InitialLogits(logits, covariance, others, int(apart), model.logit_cap)


def own_cosine(state: Chain) -> Array | None:
    """Return the mean cosine between the last tokens and their embeddings in each draw, or None."""
    model, tokens = state.model, state.tokens
    if not model.tied or model.head == "masked":
        return None
    h = (state.norm(state.x) if model.last_norm else state.x)[:, : tokens.seen]
    embeddings = state.embeddings[:, [tokens.distinct.index(token) for token in tokens.ids[: tokens.seen]]]
    lengths = np.linalg.norm(h, axis=-1) * np.linalg.norm(embeddings, axis=-1)
    dots = (h * embeddings).sum(axis=-1)
    return np.asarray(np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0).mean(axis=-1))


def _masked_head(state: Chain, h: Array) -> tuple[Array, Array | None]:
    """Return the Gram matrix over N of BERT's transform t = LN(psi(W h)), and the logits of the tokens' ids.

    The logits are None if the head is not tied or the width is infinite. Relative to t, the embeddings are
    rotated uniformly: the frame in the span of t is `C^-1 G`, with C C^T the Gram matrix of G and Bartlett's
    factor.
    """
    model, draws, n = state.model, state.draws, state.model.width
    gain = math.sqrt(n) * model.deviations.head
    gram = gram_of(h)
    if state.limit:
        return _limit_transform(model, gain, gram), None
    real = apply(
        model.activation, gain * symmetric_root(gram) @ state.rng.standard_normal((draws, h.shape[1], n))
    )
    real -= real.mean(axis=-1, keepdims=True)
    real /= np.sqrt((real * real).mean(axis=-1, keepdims=True) + model.epsilon)
    ones = np.full((draws, 1, n), 1 / math.sqrt(n))
    t = _without_first(np.concatenate([ones, real / math.sqrt(n)], axis=1))
    gram = gram_of(t)
    if not model.tied:
        return gram, None
    e = _without_first(np.concatenate([state.ones, state.embeddings], axis=1))
    rows, m = e.shape[-1], t.shape[-1]
    # Relative to t, the embeddings are rotated uniformly, orthogonal to the all-ones vector.
    g = state.rng.standard_normal((draws, rows, m))
    rest = bartlett(rows, n - 1 - m, (draws,), state.rng)
    lower = np.linalg.cholesky(gram_of(g) + gram_of(rest))
    return gram, n * t @ np.swapaxes(e @ np.linalg.solve(lower, g), -1, -2)


def _limit_transform(model: Architecture, gain: float, gram: Array) -> Array:
    inner = gain**2 * gram
    psi = activation(model.activation)
    means = coefficients(psi.function, np.diagonal(inner, axis1=-2, axis2=-1))[..., 0]
    kernel = kernel_map(model.activation, inner) - means[..., :, None] * means[..., None, :]
    lengths = np.sqrt(np.diagonal(kernel, axis1=-2, axis2=-1) + model.epsilon)
    return np.asarray(kernel / (lengths[..., :, None] * lengths[..., None, :]))


def _without_first(rows: Array) -> Array:
    """Return all rows except the first, in coordinates without the direction of the first."""
    upper = np.linalg.qr(np.swapaxes(rows, -1, -2), mode="r")
    return np.asarray(np.swapaxes(upper, -1, -2)[:, 1:, 1:])
