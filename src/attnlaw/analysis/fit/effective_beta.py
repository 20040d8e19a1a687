"""Effective beta of real heads: how far a head's logits spread if its inputs are the token embeddings.

In the theory of random attention, beta is the standard deviation of a row's logits. For a real head, take the
logits `s q_i . k_j` of all pairs of tokens, where s is the factor of the model (`Scores.scale`, mostly
1/sqrt(d_head)). Then beta_i is their standard deviation over j. attnlaw does not compute the logits, because
`beta_i^2 = s^2 q_i^T Cov(k) q_i`.

| letter | meaning |
|---|---|
| X | token embeddings; each row has its mean subtracted and is divided by its standard deviation |
| q_i, k_j | rows of `X W_Q` and `X W_K` of the head |

This is an extension: the theory has Gaussian queries and keys, a checkpoint has tokens. A `Model` holds only
matrices, so these are left out: the weights of the norm layer, norms of queries and keys (Qwen 3, Gemma 3)
and inside latent attention, caps on scores, biases of queries, and positions. The bias of a key shifts whole
rows and changes nothing. The inputs of deeper layers are not the embeddings: on real text, beta of rxnfp is
1.5 to 15 times this value. If you have a text, `lens` measures beta on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.checkpoints.model import Model
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError

EXTENSION = (
    "effective beta assumes that the inputs of every layer are the token embeddings, each scaled to unit "
    "size; it ignores positions, biases, and the weights of norm layers"
)


@dataclass(frozen=True)
class EffectiveBeta:
    """The effective beta of one head."""

    layer: int
    head: int
    value: float  # mean of beta_i over the tokens i
    spread: float  # standard deviation of beta_i over the tokens
    tokens: int  # number of tokens
    extension: str = EXTENSION


def effective_beta(model: Model, layer: int, head: int) -> EffectiveBeta:
    """Return the effective beta of one head of self-attention.

    Raises:
        InputError: if the model has no such head, or no token embedding that enters the layers unchanged.

    >>> from attnlaw.checkpoints.open import open_model
    >>> rng = np.random.default_rng(0)
    >>> block = {"in_proj_weight": rng.normal(size=(12, 4)), "out_proj.weight": np.eye(4)}
    >>> effective_beta(open_model(block, heads=2), 0, 0)
    Traceback (most recent call last):
    ...
    attnlaw.core.errors.InputError: ...attnlaw found no token embedding ...
    """
    places = {part.index: part.attention.heads for part in model.layers}
    if not 0 <= head < places.get(layer, 0):
        raise InputError(
            f"{model.name}: there is no head {head} in layer {layer}; the model has layers {min(places)} to "
            f"{max(places)} with heads from 0 to {model.layers[0].attention.heads - 1}"
        )
    X = _inputs(model)
    return _layer_betas(model, layer, (head,), X, _covariance(X))[0]


def effective_betas(model: Model) -> tuple[EffectiveBeta, ...]:
    """Return the effective beta of every head of self-attention, layer by layer."""
    X = _inputs(model)
    covariance = _covariance(X)
    betas: list[EffectiveBeta] = []
    for part in model.layers:
        betas += _layer_betas(model, part.index, tuple(range(part.attention.heads)), X, covariance)
    return tuple(betas)


def _inputs(model: Model) -> Reals:
    X = model.embedding()
    if X.shape[1] != model.hidden_size:
        widths = ", ".join(map(str, model.network.widths))
        raise InputError(
            f"{model.name}: the token embeddings have {X.shape[1]} entries, but the heads read {widths}; "
            "effective beta needs a model whose embeddings enter the layers directly"
        )
    X = X - X.mean(axis=1, keepdims=True)
    size = X.std(axis=1, keepdims=True)
    used = size[:, 0] > 0
    if used.sum() < 2:
        raise InputError(
            f"{model.name}: effective beta needs two or more token embeddings that are not "
            "constant; check the embedding matrix"
        )
    return np.asarray(X[used] / size[used])


def _covariance(X: Reals) -> Reals:
    return np.asarray(np.cov(X, rowvar=False, bias=True))


def _layer_betas(
    model: Model, layer: int, heads: tuple[int, ...], X: Reals, covariance: Reals
) -> list[EffectiveBeta]:
    part = model.layer(layer)
    betas = []
    for head, (W_Q, transposed) in enumerate(part.attention.factors(model, "qk")):
        if head not in heads:
            continue
        q, of_keys = X @ W_Q, transposed @ covariance @ transposed.T
        beta = part.attention.scores.scale * np.sqrt(np.maximum(np.einsum("ij,ij->i", q @ of_keys, q), 0.0))
        betas.append(EffectiveBeta(layer, head, float(beta.mean()), float(beta.std()), X.shape[0]))
    return betas
