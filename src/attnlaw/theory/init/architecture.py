"""The architecture of an untrained Transformer: its sizes, its norms and the deviations of its weights.

All matrices have independent normal entries, biases are 0, gains of norms are 1, and dropout is off. The
constants below list the possible placements of norms, limits of infinite width, and scalings of scores.

| here          | means                                                                    |
|---------------|--------------------------------------------------------------------------|
| N, L, V       | `width`, `depth`, `vocabulary`                                           |
| H, d          | `heads` of `head_width` each (d H need not be N), `key_value_heads` <= H |
| F             | `hidden` units of an MLP, or of each expert                              |
| std_M         | deviation of the entries of a matrix M                                   |
| gain of M     | sqrt(fan in) std_M                                                       |
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from attnlaw.checkpoints.blocks import LAYER
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class NormPlacement:
    """Where the norms of a layer are: before, after or around its blocks."""

    name: str
    before: bool = False  # blocks read normalised tokens
    output: bool = False  # the output of a block is normalised before it is added to the residual stream
    after: bool = False  # the residual stream is normalised after each addition
    parallel: bool = False  # attention and the MLP read the same tokens, and their outputs are added together


ORDERS = by_name(
    NormPlacement("pre", before=True),
    NormPlacement("post", after=True),
    NormPlacement("parallel", before=True, parallel=True),
    NormPlacement("sandwich", before=True, output=True),
)
# What stays fixed while the width grows, and whether scores stay random in the limit: heads become wider.
KEPT = {"heads": True, "head-width": False}
SCORE_SCALINGS = {
    "1/sqrt(d)": 0.0,
    "1/d": -0.5,
}  # power of d that multiplies scores over sqrt(d); muP has 1/d
PARAMETRISATIONS = {"SP": 0, "muP": 1}  # deviations and rates depend on (width / base)^this
HEADS = ("plain", "masked")  # logits read the last tokens directly, or through BERT's transform
# Names of activations in config.json, and their names in `attnlaw.theory.limit.kernels`.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class Deviations:
    """Standard deviations of the initial entries of each kind of matrix.

    Args:
        inner: standard deviation of matrices that read the residual stream in an MLP or a router.
        residual: standard deviation of matrices that write to the residual stream.
        head: standard deviation of the dense layer before BERT's logits, and of an output head that is not
            the embedding.
    """

    embedding: float
    position: float
    query: float
    key: float
    value: float
    inner: float
    residual: float
    head: float

    @classmethod
    def all_equal(cls, std: float, residual: float | None = None) -> Deviations:
        return cls(std, std, std, std, std, std, std if residual is None else residual, std)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """All properties of an untrained Transformer that its distribution at the start depends on.

    Args:
        experts: number of experts in a layer. The value 0 means a plain MLP.
        norm: type of the norms, `layer` or `rms`. The small constant `epsilon` is added under the root.
        order: where the norms are, a name from `ORDERS`.
        first_norm: whether a norm follows the embeddings.
        last_norm: whether a norm precedes the output head.
        positions: whether the model learns a vector for each position.
        frequencies: frequencies of rotary positions. They rotate the first 2 len(frequencies) entries of each
            query and key.
        query_key_norm: whether every query and key is scaled to root mean square 1.
        score_scales: for each layer, the factor that multiplies the product q . k of query and key.
        score_cap, logit_cap: cap of scores and of logits, `cap tanh(x / cap)`. None means no cap.
        head: type of the output head: `plain`, or `masked` for a dense layer and a norm before the logits, as
            in BERT.
        tied: whether the output head shares its weights with the embedding.
        padding: token id whose embedding is zero.
        longest: largest number of tokens that attnlaw can treat, because of learned positions or a sliding
            window. None means no limit.
        read_from: where attnlaw found the standard deviations, such as a config.

    >>> small = Architecture.from_config({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4})
    >>> small.head_width, small.hidden, small.deviations.residual
    (16, 256, 0.01)
    """

    name: str
    width: int
    depth: int
    heads: int
    key_value_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    deviations: Deviations
    activation: str = "gelu"
    gated: bool = False
    experts: int = 0
    experts_per_token: int = 0
    norm: str = LAYER
    epsilon: float = 1e-5
    order: str = "pre"
    first_norm: bool = False
    last_norm: bool = True
    causal: bool = True
    positions: bool = False
    segments: bool = False
    frequencies: tuple[float, ...] = ()
    query_key_norm: bool = False
    score_scales: tuple[float, ...] = ()
    score_cap: float | None = None
    logit_cap: float | None = None
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    head: str = "plain"
    tied: bool = True
    padding: int | None = None
    longest: int | None = None
    read_from: str = ""

    def __post_init__(self) -> None:
        if self.heads % self.key_value_heads:
            raise InputError(
                f"{self.name}: {self.heads} heads cannot be divided evenly among {self.key_value_heads} "
                "key-value heads"
            )
        if len(self.score_scales) != self.depth:
            raise InputError(f"{self.name}: expected one score scale for each of {self.depth} layers")
        if 2 * len(self.frequencies) > self.head_width:
            raise InputError(
                f"{self.name}: too many rotary frequencies for heads of {self.head_width} entries"
            )
        assert self.order in ORDERS, self.order
        assert self.head in HEADS, self.head

    @property
    def norms(self) -> NormPlacement:
        return ORDERS[self.order]

    @property
    def centred(self) -> bool:
        """Whether norms subtract the mean, as LayerNorm does."""
        return self.norm == LAYER

    @classmethod
    def from_config(
        cls, source: str | os.PathLike[str] | Mapping[str, Any], std: float | None = None, depth: int = 0
    ) -> Architecture:
        """Return the architecture that a config.json describes.

        Args:
            source: the file, its folder, a hub id, a name of a shipped config, or the values themselves.
            std: standard deviation of the weights, which replaces the value of the config.
            depth: number of layers, which replaces the value of the config. The value

        Raises:
            InputError: if attnlaw does not know how this model type is initialised, or cannot treat a part of
                the model.
        """
        from attnlaw.theory.init.configuration import architecture_of, config_of

        return architecture_of(config_of(source), std, depth)


def at_width(model: Architecture, width: int, keep: str) -> Architecture:
    """Return the model at another width, with the same gains and the same embedding variances."""
    grown = ("head_width",) if KEPT[keep] else ("heads", "key_value_heads")
    sizes = {name: getattr(model, name) for name in grown}
    step = model.width // math.gcd(model.width, *sizes.values())
    if width % step:
        raise BadSetting(
            "width", f"expected a multiple of {step}, so that every head has a whole number of entries", width
        )
    sizes = {name: size * width // model.width for name, size in sizes.items()}
    share, head_width = width / model.width, sizes.get("head_width", model.head_width)
    scale = math.sqrt(model.head_width / head_width)
    known = model.frequencies
    planes = len(known) * head_width // model.head_width
    names = ("query", "key", "value", "inner", "residual", "head")
    smaller = {name: getattr(model.deviations, name) / math.sqrt(share) for name in names}
    return replace(
        model,
        width=width,
        **sizes,
        frequencies=tuple(known[i * len(known) // planes] for i in range(planes)),
        hidden=max(1, round(model.hidden * share)),
        deviations=replace(model.deviations, **smaller),
        score_scales=tuple(scale * score_scale for score_scale in model.score_scales),
    )
