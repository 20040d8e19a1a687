"""Sizes of one layer where layers differ, and whose keys and values it reads (Gemma 4).

| in config.json | meaning |
|---|---|
| `per_layer_config` | the sizes of some layers, by their numbers |
| `global_head_dim` | the size of heads in layers of the type `full_attention`, whose number may differ, too |
| `num_kv_shared_layers` n | the last n layers read keys and values of the last of their type before them |
| `use_double_wide_mlp` | and these have a feed-forward block of twice the width |
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from attnlaw.checkpoints.config import Config

FULL = "full_attention"


def layer_type(config: Config, number: int) -> str | None:
    """What config.json calls a layer's attention, where it has types of layers."""
    types = config.values.get("layer_types")
    kind = types[number] if isinstance(types, list) and number < len(types) else None
    return kind if isinstance(kind, str) else None


def layer_config(config: Config, number: int, inner_size: str) -> Config:
    """The config of one layer: of all layers, but for its own sizes."""
    values = dict(config.values)
    if "global_head_dim" in config and layer_type(config, number) == FULL:
        values |= {"head_dim": values["global_head_dim"], "num_key_value_heads": None}
    per_layer = values.get("per_layer_config")
    sizes = per_layer.get(str(number), per_layer.get(number)) if isinstance(per_layer, Mapping) else None
    if isinstance(sizes, Mapping):
        values |= sizes
    if values.get("use_double_wide_mlp") is True and key_source(config, number) != number:
        values[inner_size] = 2 * (config.size(inner_size) or 0) or None
    changed = copy(config)
    changed.values = values
    return changed


def key_source(config: Config, number: int) -> int:
    """The layer whose keys and values a layer reads: itself, but for the last that share those of others.

    >>> types = ["sliding_attention", "full_attention"] * 2
    >>> config = Config({"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": types})
    >>> [key_source(config, number) for number in range(4)]
    [0, 1, 0, 1]
    """
    depth, shared = config.size("num_hidden_layers"), config.values.get("num_kv_shared_layers")
    unshared = depth - shared if depth and isinstance(shared, int) else None
    if unshared is None or not 0 < unshared <= number:
        return number
    kind = layer_type(config, number)
    return next((other for other in reversed(range(unshared)) if layer_type(config, other) == kind), number)
