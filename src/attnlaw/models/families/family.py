"""What a model family is: a table from tensor names to roles, with orientation and head split.

A key of a role table names the part a tensor plays; a key with commas, such as `"query,key,value"`,
names the parts fused in one tensor, in the order in which they lie along its output axis.

| table | roles |
|---|---|
| `attention`, `cross` | `query`, `key`, `value`, `output` |
| latent attention, besides | `query_latent` before `query`, `latent` before `key` and `value`, `shared_key` |
| `feed_forward`, `experts` | `in`, `out`, and `gate` where there is one |

The fields of these two records are the keys of a TOML file for `--map`; see `toml_file`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Roles = Mapping[str, str]


@dataclass(frozen=True)
class Stack:
    """A run of like layers. `layer` is the common part of the names, with `{layer}` for the index.

    `feed_forward` lists the ways in which a layer may store the block that every token passes; `experts`
    those of a router's experts, with `{expert}` for the index or stacked in one tensor. `interleaved`
    parts of a fused tensor lie head by head: query, key and value of head 0, then of head 1, and so on.
    `ignored` are matrices inside a layer that are known and no part of these maps (routers).

    `heads`, `depth` and `inner_size` are the keys of config.json that must agree with the tensors;
    `depth` has one key for each number in `layer`.
    """

    layer: str
    attention: Roles
    feed_forward: tuple[Roles, ...] = ()
    experts: tuple[Roles, ...] = ()
    cross: Roles = field(default_factory=dict)
    interleaved: bool = False
    ignored: tuple[str, ...] = ()
    query_norm: str | None = None
    name: str | None = None
    heads: str = "num_attention_heads"
    depth: tuple[str, ...] = ("num_hidden_layers",)
    inner_size: str = "intermediate_size"

    @property
    def tables(self) -> tuple[Roles, ...]:
        """Every table of roles."""
        return (self.attention, self.cross, *self.feed_forward, *self.experts)


@dataclass(frozen=True)
class Family:
    """One row of the table of families.

    `model_types` are the values of `model_type` in config.json; `stored_out_in` is False for weights
    stored (in, out); `scaled_scores` is False where scores are not divided by the root of the head's size;
    `separate_prefixes` lets several prefixes be stacks of one model.
    """

    name: str
    stacks: tuple[Stack, ...]
    model_types: tuple[str, ...] = ()
    stored_out_in: bool = True
    hidden_size: str = "hidden_size"
    activation: tuple[str, ...] = ("hidden_act",)
    default_activation: str = "gelu"
    default_head_size: int | None = None
    embedding: tuple[str, ...] = ()
    unembedding: tuple[str, ...] = ("lm_head.weight",)
    pre_norm: bool = False
    rotary: bool = False
    scaled_scores: bool = True
    separate_prefixes: bool = False
