"""What a model family is: a table from tensor names to roles, with orientation and head split.

Every TOML file in this folder is a family, found by itself: its keys are the fields of `Family` and, under
`[[stacks]]`, of `LayerTable`. A file for `--map` has the same keys. `read_toml` reads both.

A key of a role table names the part a tensor plays; a key with commas, such as `"query,key,value"`,
names the parts fused in one tensor, in the order in which they lie along its output axis.

| table | roles |
|---|---|
| `attention`, `cross` | `query`, `key`, `value`, `output`; `gate`, whose sigmoid multiplies what heads mix |
| latent attention, besides | `query_latent` before `query`, `latent` before `key` and `value`, `shared_key` |
| `feed_forward`, `experts` | `in`, `out`, and `gate` where there is one |
| `norms` | `attention`, `cross`, `feed_forward`, `experts`: of each block; `after_...`: of what it adds |
| `inner_norms` | `query`, `key`, `value` of every head; `query_latent`, `latent` behind these maps; |
| | `output`, `out` before these maps |

Norms are named without `.weight` and `.bias`; the name "" is a norm that has neither.

A file that is `like` another takes from it what it does not say itself (but `name`, `model_types` and
`priority`): keys of the file, and of each of its `[[stacks]]` those of the stack in the same place.
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
    """A run of like layers. `layer` is the common part of the names, with `{layer}` for the index.

    `feed_forward` lists the ways in which a layer may store the block that every token passes; `experts`
    those of a router's experts, with `{expert}` for the index or stacked in one tensor. `interleaved`
    parts of a fused tensor lie head by head: query, key and value of head 0, then of head 1, and so on.
    `ignored` are matrices inside a layer that are known and no part of these maps (routers); `unread` are
    tensors of blocks that no formula here knows: a model that has them has no proxies.

    Tensors that are `turned` are stored the other way round than the family's; with `head_axis`, those of
    attention have heads as an axis of their own; parts of `alternating` ones lie output by output. `sinks`
    are scores, one of each head, that no token has. A layer with a tensor of `linear` has linear attention
    and is not read.

    `norms` lists the ways in which a layer may be normalised; the first whose tensors are all there is taken.
    The norm of a block stands before it (`pre_norm`), or after its sum with the stream, where the next block
    reads it. `first_norm` stands before all layers, `last_norm` after them; false takes back what a file
    that this one is like says. `biases` are those that do not stand beside their weights, by role.

    With `runs`, a fused tensor is so many runs of all its parts, whatever its heads. `config` is the table
    inside config.json that has the sizes of this stack.

    `heads`, `depth` and `inner_size` are the keys of config.json that must agree with the tensors;
    `depth` has one key for each number in `layer`.
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
    def tables(self) -> tuple[Roles, ...]:
        """Every table of roles."""
        return (self.attention, self.cross, *self.feed_forward, *self.experts)

    @property
    def names(self) -> frozenset[str]:
        """Every tensor of a layer that it names, but norms of blocks; of experts the first's."""
        named = [name.replace("{expert}", "0") for roles in self.tables for name in roles.values()]
        inner = [f"{name}.weight" for name in self.inner_norms.values() if name]
        sinks = [self.sinks] if self.sinks else []
        return frozenset((*named, *inner, *sinks, *self.ignored, *self.unread))


@dataclass(frozen=True)
class Initialiser:
    """How a library draws the weights of one model type: `[init.TYPE]` of its family's file.

    Every matrix is normal with the deviation under one of the keys `std` of config.json; gains are 1 and
    biases 0. With `scaled_residual`, maps back into the stream are divided by sqrt(2 depth) besides; with
    `zero_padding`, the embedding of `pad_token_id` is zero. `order` says where blocks are normalised
    (`attnlaw.theory.init.architecture`), `head` what makes logits of the last tokens. `query_key_norm`: every
    head
    normalises its queries and keys; `embedding_root`: embeddings are multiplied by the root of the width.
    `positions`, `window` and `experts` are keys of config.json: of the number of learned positions, of what
    sliding layers see, of the number of experts. `defaults` are the values that the library takes for keys
    of config.json that are not there, `read_from` the library and version that all this was read from.

    A type that is `like` another of the same file takes from it what it does not say itself.
    """

    read_from: str
    like: str | None = None
    std: tuple[str, ...] = ("initializer_range",)
    scaled_residual: bool = False
    zero_padding: bool = False
    order: str = "pre"
    head: str = "plain"
    causal: bool = True
    positions: str | None = None
    segments: bool = False
    gated: bool = False
    query_key_norm: bool = False
    embedding_root: bool = False
    window: str | None = None
    experts: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """One family of models.

    `model_types` are the values of `model_type` in config.json; `sigmoid_routers` those of them whose
    routers weigh experts by sigmoids, `scaled_experts` those whose routers multiply what experts read, and
    not what they give. `stored_out_in` is False for weights stored (in, out); `scaled_scores`
    is False where scores are not divided by the root of the head's size; `shared_layers` are applied several
    times each; `separate_prefixes` lets several prefixes be stacks of one model.

    `norm` is the kind of its norms, `layer` or `rms`, `epsilon` the keys of config.json for what they add to
    the variance; `offset_gains` are the model types that store a gain less 1. Of a `rotary` family a share
    `rotary_share` of every head is turned unless config.json says otherwise, neighbours together in the
    types `rotary_neighbours`, else halves, with the base that config.json has under a key of `rotary_base`;
    with `rotary_layers`, in layers of this type only, where config.json has types of layers. Norms of
    queries and keys stand before that, or in the types `norms_after_rotary` after it.

    `init` has an `Initialiser` for each model type whose law at initialisation is known.

    Stacks that are `towers` are networks of their own beside each other (text and image).

    Of families that name as many tensors of a checkpoint, the one of the highest `priority` is taken.
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
