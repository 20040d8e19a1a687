"""Model families, which say what each tensor of a checkpoint is and how it is stored.

Every TOML file in this folder is a family. Its keys are the fields of `Family` and, under `[[stacks]]`, of
`LayerTable`. A file for `--map` has the same keys. `read_toml` reads both.

A key of a role table names the role of a tensor. A key with commas, such as `"query,key,value"`, names the
roles fused in one tensor, in their order along its output axis.

| table | roles |
|---|---|
| `attention`, `cross` | `query`, `key`, `value`, `output`; `gate`, a gate of the heads' output (sigmoid) |
| latent attention, too | `query_latent` before `query`, `latent` before `key` and `value`, `shared_key` |
| `feed_forward`, `experts` | `in`, `out`, and `gate` if there is one |
| `norms` | `attention`, `cross`, `feed_forward`, `experts`: before each block; `after_...`: after it |
| `inner_norms` | `query`, `key`, `value` of every head; `query_latent`, `latent` after these matrices; |
| | `output`, `out` before these matrices |

Norms are named without `.weight` and `.bias`; the name "" is a norm without tensors.

A file that is `like` another takes from it all keys that it does not have, except `name`, `model_types`,
`priority` and `init`. Each of its `[[stacks]]` does the same with the stack of the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
Roles = Mapping[str, str]


@dataclass(frozen=True)
class LayerTable:
    """The tensor names of a stack of equal layers.

    Args:
        feed_forward: the ways in which a layer may store the block that every token passes.
        experts: the ways in which a layer may store experts: in separate tensors, with `{expert}` for the
            number, or stacked in one tensor.
        interleaved: true if a fused tensor has query, key and value of head 0, then of head 1, and so on.
        ignored: known matrices inside a layer that belong to no block, such as routers.
        unread: tensors of blocks that no formula here covers. A model that has them gets no proxies.
        norms: the ways in which a layer may be normalised. The first whose tensors all exist is taken. The
            norm of a block is before it (`pre_norm`), or after its sum with the stream.
        first_norm, last_norm: the norms before and after all layers. False removes an inherited one.
        heads, inner_size: keys of config.json whose values must agree with the tensors.
        depth: the keys of config.json for the number of layers, one for each number in `layer`.
    """

    layer: str  # the common part of the names, with `{layer}` for the number of the layer
    attention: Roles  # tensors of self-attention by role
    feed_forward: tuple[Roles, ...] = ()
    experts: tuple[Roles, ...] = ()
    cross: Roles = field(default_factory=dict)  # tensors of cross-attention by role
    interleaved: bool = False
    runs: int | None = None  # a fused tensor consists of this many runs of all its parts, whatever its heads
    biases: Roles = field(default_factory=dict)  # biases that are not named like their weights, by role
    ignored: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    turned: tuple[str, ...] = ()  # tensors stored the other way round than the others of the family
    head_axis: bool = False  # attention tensors have the heads as a separate axis
    alternating: tuple[str, ...] = ()  # fused tensors whose parts alternate output by output
    sinks: str | None = None  # the tensor with one further score per head that belongs to no token
    linear: tuple[str, ...] = ()  # tensors that mark a layer of linear attention, which is not read
    norms: tuple[Roles, ...] = ()
    inner_norms: Roles = field(default_factory=dict)  # norms inside the blocks, by role
    first_norm: str | None = None
    last_norm: str | None = None
    name: str | None = None  # the name of the stack, if the model has several
    config: str | None = None  # the table inside config.json with the sizes of this stack
    heads: str = "num_attention_heads"
    depth: tuple[str, ...] = ("num_hidden_layers",)
    inner_size: str = "intermediate_size"

    @property
    def names(self) -> frozenset[str]:
        """The tensor names in the table, without biases and norms around blocks, and with expert 0 only."""
        tables = (self.attention, self.cross, *self.feed_forward, *self.experts)
        named = [name.replace("{expert}", "0") for roles in tables for name in roles.values()]
        inner = [f"{name}.weight" for name in self.inner_norms.values() if name]
        sinks = [self.sinks] if self.sinks else []
        return frozenset((*named, *inner, *sinks, *self.ignored, *self.unread))


@dataclass(frozen=True)
class Initialiser:
    """How a library draws the weights of one model type, from `[init.TYPE]` in its family's file.

    Every matrix is normal; gains are 1 and biases 0. A type that is `like` another of the same file takes
    from it all keys that it does not have.

    Args:
        std: keys of config.json, one of which has the standard deviation.
        defaults: the library's values for keys that config.json does not have.
    """

    read_from: str  # the library and version that this was read from
    like: str | None = None
    std: tuple[str, ...] = ("initializer_range",)
    scaled_residual: bool = False  # matrices that write into the stream are divided by sqrt(2 depth)
    zero_padding: bool = False  # the embedding of `pad_token_id` is zero
    order: str = "pre"  # where blocks are normalised (`attnlaw.theory.init.architecture`)
    head: str = "plain"  # how logits are computed from the last tokens
    causal: bool = True
    positions: str | None = None  # the key of config.json for the number of learned positions
    segments: bool = False
    gated: bool = False
    query_key_norm: bool = False  # every head normalises its queries and keys
    embedding_root: bool = False  # embeddings are multiplied by the square root of the width
    window: str | None = None  # the key of config.json for the window of sliding layers
    experts: str | None = None  # the key of config.json for the number of experts
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """A family of models whose tensors have the same names.

    Args:
        priority: decides between families that name equally many tensors. The highest is taken.
        hidden_size, activation: keys of config.json.
        epsilon: keys of config.json for the number that norms add to the variance.
        rotary_neighbours: the model types that pair neighbouring entries; others pair the two halves.
        rotary_layers: the only type of layers with rotary positions, if config.json has types of layers.
        norms_after_rotary: the model types whose norms of queries and keys come after the positions.
        scaled_experts: the model types whose routers multiply the inputs of experts, not their outputs.
        init: an `Initialiser` for each model type whose law at initialisation is known.
    """

    name: str
    stacks: tuple[LayerTable, ...]
    like: str | None = None
    model_types: tuple[str, ...] = ()  # values of `model_type` in config.json
    priority: int = 0
    stored_out_in: bool = True  # false for weights stored (in, out)
    hidden_size: str = "hidden_size"
    activation: tuple[str, ...] = ("hidden_act",)
    default_activation: str = "gelu"
    default_head_size: int | None = None
    embedding: tuple[str, ...] = ()
    unembedding: tuple[str, ...] = ("lm_head.weight",)
    pre_norm: bool = False
    norm: str = "layer"  # the kind of its norms, `layer` or `rms`
    epsilon: tuple[str, ...] = ("layer_norm_eps",)
    default_epsilon: float = 1e-5
    offset_gains: tuple[str, ...] = ()  # model types that store the gain minus 1
    rotary: bool = False  # positions turn queries and keys
    rotary_share: float = 1.0  # the part of every head that is turned, unless config.json says otherwise
    rotary_base: tuple[str, ...] = ("rope_theta",)  # keys of config.json for the base of the angles
    default_rotary_base: float | None = None
    rotary_neighbours: tuple[str, ...] = ()
    rotary_layers: str | None = None
    norms_after_rotary: tuple[str, ...] = ()
    scaled_scores: bool = True  # false if scores are not divided by the square root of the head size
    shared_layers: bool = False  # every layer is applied several times
    sigmoid_routers: tuple[str, ...] = ()  # model types whose routers weight experts by sigmoids
    scaled_experts: tuple[str, ...] = ()
    separate_prefixes: bool = False  # several prefixes may be stacks of one model
    towers: bool = False  # the stacks are separate networks, such as text and image
    init: Mapping[str, Initialiser] = field(default_factory=dict)
