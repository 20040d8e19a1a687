"""What a model family is: a table from tensor names to roles, with orientation and head split.

A key of a role table names the part a tensor plays; a key with commas, such as `"query,key,value"`,
names the parts fused in one tensor, in the order in which they lie along its output axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stack:
    """A run of like layers. `layer` is the common part of the names, with `{layer}` for the index.

    `heads`, `depth` and `inner_size` are the keys of config.json that must agree with the tensors;
    `depth` has one key for each number in `layer`.
    """

    layer: str
    attention: Mapping[str, str]
    feed_forward: Mapping[str, str] = field(default_factory=dict)
    cross: Mapping[str, str] = field(default_factory=dict)
    query_norm: str | None = None
    name: str | None = None
    heads: str = "num_attention_heads"
    depth: tuple[str, ...] = ("num_hidden_layers",)
    inner_size: str = "intermediate_size"


@dataclass(frozen=True)
class Family:
    """One row of the table of families.

    `model_types` are the values of `model_type` in config.json; `stored_out_in` is False for weights
    stored (in, out); `separate_prefixes` lets several prefixes be stacks of one model.
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
    separate_prefixes: bool = False
