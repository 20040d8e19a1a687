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
        layer: common start of a layer's tensor names, with `{layer}` for its number.
        attention: tensors of self-attention by role; `"query,key,value"` is one tensor with three roles.
        feed_forward: tensors by role of the block that processes every token, one table for each way of
            storing it.
        experts: tensors of experts by role, in the same form; `{expert}` is the number of an expert.
        cross: tensors of cross-attention by role.
        interleaved: true if a fused tensor has query, key and value of head 0, then of head 1, and so on.
        runs: number of runs in a fused tensor, if each run has all its parts, regardless of heads.
        biases: biases by role whose names differ from those of their weights.
        ignored: names of matrices that do not matter, such as routers.
        unread: tensors of blocks that attnlaw cannot measure; a model that has them gets no proxies.
        turned: tensors stored in the opposite orientation to the rest of the family.
        head_axis: true if attention tensors have a separate axis for heads.
        alternating: fused tensors whose parts alternate from output to output.
        sinks: tensor with an additional score for each head, which belongs to no token.
        linear: tensors that mark a layer of linear attention, which attnlaw does not measure.
        norms: names of the norms of a layer by role, one table for each naming. attnlaw takes the first table
            whose tensors exist.
        inner_norms: norms inside the blocks, by role.
        first_norm: norm before all layers; false removes an inherited one.
        last_norm: norm after all layers; false removes an inherited one.
        name: name of the stack, if the model has several.
        config: table inside config.json that has the sizes of this stack.
        heads: key of config.json for the number of heads, which must agree with the tensors.
        depth: keys of config.json for the number of layers, one for each number in `layer`.
        inner_size: key of config.json for the feed-forward width, which must agree with the tensors.
    """

    layer: str
    attention: Roles
    feed_forward: tuple[Roles, ...] = ()
    experts: tuple[Roles, ...] = ()
    cross: Roles = field(default_factory=dict)
    interleaved: bool = False
    runs: int | None = None
    biases: Roles = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    turned: tuple[str, ...] = ()
    head_axis: bool = False
    alternating: tuple[str, ...] = ()
    sinks: str | None = None
    linear: tuple[str, ...] = ()
    norms: tuple[Roles, ...] = ()
    inner_norms: Roles = field(default_factory=dict)
    first_norm: str | None = None
    last_norm: str | None = None
    name: str | None = None
    config: str | None = None
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

    Every matrix is normal; gains are 1 and biases 0. A type that is `like` another type of the same file
    takes all its missing keys from that type.
    """

    read_from: str  # the library and version that this was read from
    like: str | None = None
    std: tuple[str, ...] = ("initializer_range",)  # keys of config.json for the standard deviation
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
    defaults: Mapping[str, Any] = field(default_factory=dict)  # for keys that config.json does not have


@dataclass(frozen=True)
class Family:
    """A family of models whose tensors have the same names.

    Args:
        name: name of the family in results.
        stacks: tables of tensor names, `[[stacks]]` in the file.
        like: shipped file, such as `"llama"`, whose keys are used unless this file has them.
        model_types: values of `model_type` in config.json.
        priority: number that decides between families that name equally many tensors. The family with the
            highest priority wins (not used with `--map`).
        stored_out_in: true if weights are stored as (out, in), like those of `nn.Linear`; false for (in,
            out).
        hidden_size: key of config.json for the width of the model.
        activation: keys of config.json for the activation function.
        default_activation: activation function if config.json names none.
        default_head_size: width of a head if config.json does not state it.
        embedding: last parts of the names of the embedding matrices.
        unembedding: last parts of the names of the output matrix.
        pre_norm: true if norms come before their blocks, false if they come after the sum with the residual
            stream.
        norm: kind of the norms, `layer` or `rms`.
        epsilon: keys of config.json for the number that norms add to the variance.
        default_epsilon: number that norms add to the variance if config.json does not state it.
        offset_gains: model types that store the gain of a norm minus 1.
        rotary: true if rotary positions turn queries and keys.
        rotary_share: share of a head that positions rotate, unless config.json states it.
        rotary_base: keys of config.json for the base of the rotary angles.
        default_rotary_base: base of the rotary angles if config.json does not state it.
        rotary_neighbours: model types that rotate pairs of neighbouring entries. Other types pair the two
            halves of a head.
        rotary_layers: only type of layers with rotary positions, if config.json has types of layers.
        norms_after_rotary: model types that normalise queries and keys after the rotation.
        scaled_scores: false if scores are not divided by the square root of the head size.
        shared_layers: true if each layer is applied several times.
        sigmoid_routers: model types whose routers weight experts by sigmoids.
        scaled_experts: model types whose routers multiply the inputs of experts, not their outputs.
        separate_prefixes: true if several prefixes of names may be stacks of one model.
        towers: true if the stacks are separate networks, such as text and image.
        init: how a library draws the weights of each model type (`Initialiser`), as `[init.TYPE]`.
    """

    name: str
    stacks: tuple[LayerTable, ...]
    like: str | None = None
    model_types: tuple[str, ...] = ()
    priority: int = 0
    stored_out_in: bool = True
    hidden_size: str = "hidden_size"
    activation: tuple[str, ...] = ("hidden_act",)
    default_activation: str = "gelu"
    default_head_size: int | None = None
    embedding: tuple[str, ...] = ()
    unembedding: tuple[str, ...] = ("lm_head.weight",)
    pre_norm: bool = False
    norm: str = "layer"
    epsilon: tuple[str, ...] = ("layer_norm_eps",)
    default_epsilon: float = 1e-5
    offset_gains: tuple[str, ...] = ()
    rotary: bool = False
    rotary_share: float = 1.0
    rotary_base: tuple[str, ...] = ("rope_theta",)
    default_rotary_base: float | None = None
    rotary_neighbours: tuple[str, ...] = ()
    rotary_layers: str | None = None
    norms_after_rotary: tuple[str, ...] = ()
    scaled_scores: bool = True
    shared_layers: bool = False
    sigmoid_routers: tuple[str, ...] = ()
    scaled_experts: tuple[str, ...] = ()
    separate_prefixes: bool = False
    towers: bool = False
    init: Mapping[str, Initialiser] = field(default_factory=dict)
