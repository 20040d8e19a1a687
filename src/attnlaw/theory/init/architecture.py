"""A Transformer before training: its sizes, its norms and the deviations that its weights are drawn with.

| here          | means                                                                    |
|---------------|--------------------------------------------------------------------------|
| N, L, V       | `width`, `depth`, `vocabulary`                                           |
| H, d          | `heads` of `head_width` each (d H need not be N), `key_value_heads` <= H |
| F             | `hidden` units of an MLP, or of each expert                              |
| std_M         | deviation of the entries of a matrix M                                   |
| gain of M     | sqrt(fan in) std_M                                                       |

Every matrix has independent normal entries, biases are 0, gains of norms 1; dropout is off.

Where a Transformer's blocks are normalised, how a limit of infinite width is taken. A new one is a line.

The tables are known before any mathematics is imported.
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
    """Where norms stand: `before` a block, on its `output`, `after` its sum with the stream.

    With `parallel`, attention and the MLP read the same tokens and are added together.
    """

    name: str
    before: bool = False
    output: bool = False
    after: bool = False
    parallel: bool = False


@dataclass(frozen=True)
class WidthLimit:
    """What stays while the width grows: the `heads`, which widen, or their width, and more heads come.

    `random`: the scores of a head stay random and the law of the layers with them.
    """

    name: str
    random: bool


@dataclass(frozen=True)
class ScoreScaling:
    """The power of the head width that scores are multiplied by: -1/2, or -1 (muP)."""

    name: str
    power: float


@dataclass(frozen=True)
class Parametrisation:
    """How deviations and rates go with the width: muP follows it, the standard one (power 0) does not."""

    name: str
    power: int


ORDERS = by_name(
    NormPlacement("pre", before=True),
    NormPlacement("post", after=True),
    NormPlacement("parallel", before=True, parallel=True),
    NormPlacement("sandwich", before=True, output=True),
)
KEPT = by_name(WidthLimit("heads", random=True), WidthLimit("head-width", random=False))
SCORE_SCALINGS = by_name(ScoreScaling("1/sqrt(d)", -0.5), ScoreScaling("1/d", -1.0))
PARAMETRISATIONS = by_name(Parametrisation("SP", 0), Parametrisation("muP", 1))
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
    """std_M of every kind of matrix: `inner` maps read the stream, `residual` ones write to it.

    `head` is that of a head which is not the embedding, and of BERT's transform.
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
        """One deviation for every matrix but those that write to the stream."""
        return cls(std, std, std, std, std, std, std if residual is None else residual, std)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What the law of a freshly initialised Transformer depends on.

    `norm` is `layer` or `rms` with `epsilon` under its root, `order` one of `variants.ORDERS`. `frequencies`
    are those of rotary positions, for the first 2 F numbers of a head; without them and with `positions`,
    these are learned. `query_key_norm`: the root mean square of every query and key is made 1.
    `score_scales` has the factor of q . k for each layer. `experts` is 0 for a plain MLP.
    `tied`: the head is the embedding. `padding` is the id whose embedding is zero. Tokens beyond `longest`
    (learned positions, a sliding window) are outside of this law.

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
                f"{self.name}: {self.heads} heads cannot share {self.key_value_heads} key-value heads evenly"
            )
        if len(self.score_scales) != self.depth:
            raise InputError(f"{self.name}: expected one score scale for each of {self.depth} layers")
        if 2 * len(self.frequencies) > self.head_width:
            raise InputError(f"{self.name}: more rotary planes than heads of {self.head_width} numbers have")
        assert self.order in ORDERS, self.order
        assert self.head in HEADS, self.head

    @property
    def norms(self) -> NormPlacement:
        """Where norms stand."""
        return ORDERS[self.order]

    @property
    def centred(self) -> bool:
        """Whether norms take the mean off: LayerNorm."""
        return self.norm == LAYER

    @classmethod
    def from_config(
        cls, source: str | os.PathLike[str] | Mapping[str, Any], std: float | None = None, depth: int = 0
    ) -> Architecture:
        """The architecture of a config.json (a file, its folder, an id on a hub, or its values).

        `std` takes the place of the config's deviation, `depth` (0: the config's) of its number of layers.
        Model types whose initialiser is not known are refused by name.
        """
        from attnlaw.theory.init.configuration import architecture_of, config_of

        return architecture_of(config_of(source), std, depth)


def at_width(model: Architecture, width: int, keep: str) -> Architecture:
    """The model at another width: the same gains, the same variances of embeddings.

    >>> model = Architecture.from_config({"model_type": "gpt2"})
    >>> wide = at_width(model, 3072, "head-width")
    >>> wide.heads, wide.head_width, wide.hidden, wide.deviations.query, wide.deviations.embedding
    (48, 64, 12288, 0.01, 0.02)
    """
    grown = ("head_width",) if KEPT[keep].random else ("heads", "key_value_heads")
    sizes = {name: getattr(model, name) for name in grown}
    step = model.width // math.gcd(model.width, *sizes.values())
    if width % step:
        raise BadSetting("width", f"expected a multiple of {step}, at which heads come out whole", width)
    sizes = {name: size * width // model.width for name, size in sizes.items()}
    share, head_width = width / model.width, sizes.get("head_width", model.head_width)
    scale = math.sqrt(model.head_width / head_width)
    names = ("query", "key", "value", "inner", "residual", "head")
    smaller = {name: getattr(model.deviations, name) / math.sqrt(share) for name in names}
    return replace(
        model,
        width=width,
        **sizes,
        frequencies=_spread_frequencies(model, head_width),
        hidden=max(1, round(model.hidden * share)),
        deviations=replace(model.deviations, **smaller),
        score_scales=tuple(scale * score_scale for score_scale in model.score_scales),
    )


def _spread_frequencies(model: Architecture, head_width: int) -> tuple[float, ...]:
    """The frequencies of rotary positions in heads of another width: each has the share that it had."""
    planes = len(model.frequencies) * head_width // model.head_width
    return tuple(model.frequencies[i * len(model.frequencies) // planes] for i in range(planes))
