"""Find how attention scores are scaled: by 1/sqrt(d), unless the family or config.json says otherwise.

| in config.json | scores q . k times | models |
|---|---|---|
| nothing | d^(-1/2); 1 if the family's `scaled_scores` is false | all others; T5 |
| `attention_multiplier` a | a | Granite |
| `query_pre_attn_scalar` s | s^(-1/2) | Gemma 2 and 3 |
| `scale_attn_weights` false | 1 | GPT-2 |
| `softmax_scale` s in `attn_config` | s | MPT |
| `pos_att_type` of n terms | (d (1 + n))^(-1/2) | DeBERTa |
| `scale_attn_by_inverse_layer_idx` true | a further 1 / (layer + 1) | GPT-2 |
| `mscale_all_dim` m, `factor` f of yarn | a further (m ln(f) / 10 + 1)^2 | DeepSeek |

Here d is the head size. `Rotary` has the factors by which yarn and longrope multiply rotated entries. Other
keys (of muP, of unknown model types) and headers of GGUF files are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log

from attnlaw.checkpoints.assembly.shapes import Shapes, layer_type
from attnlaw.checkpoints.blocks import Attention, Norm, Rotary, Scores
from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.families import Family


def build_scores(shapes: Shapes, prefix: str, source: str, attention: Attention, depth: int) -> Scores:
    """Return how a layer computes its attention scores. It reads the keys of the layer with prefix `source`.

    If norms come after positions, they exist only in layers with positions.
    """
    scale = score_scale(shapes.config, shapes.family, attention.head_size, depth)
    if attention.shared_key is not None:
        scale *= _yarn_factor(shapes.config)
    cap = shapes.config.number("attn_logit_softcapping")
    if attention.cross:
        return Scores(scale, cap)
    stack, rotary = shapes.stack, _rotary(shapes, attention, depth)
    last = shapes.is_among(shapes.family.norms_after_rotary)
    query, key = (
        None if last and rotary is None else _head_norm(shapes, at, role, attention.head_size * heads)
        for at, role, heads in ((prefix, "query", attention.heads), (source, "key", attention.kv_heads))
    )
    sinks = None if stack.sinks is None or prefix + stack.sinks not in shapes else prefix + stack.sinks
    behind = last and query is not None
    # Scores grow with the position in layers of LLaMA 4 without rotary positions.
    growing = rotary is None and bool(shapes.config.values.get("attn_temperature_tuning"))
    return Scores(scale, cap, rotary, query, key, behind, sinks, clip_of(shapes.config), growing)


def _head_norm(shapes: Shapes, prefix: str, role: str, size: int) -> Norm | None:
    """Return the norm of queries or keys. `use_qk_norm` false leaves out a norm without tensors."""
    name = shapes.stack.inner_norms.get(role)
    if not name:
        there = name is not None and shapes.config.values.get("use_qk_norm", True)
        return shapes.norm("") if there else None
    return shapes.norm(prefix + name, size=size)


def clip_of(config: Config) -> float | None:
    """Return the magnitude at which the model clips queries, keys and values, or None if it does not."""
    return config.number("clip_qkv") or config.section("attn_config").number("clip_qkv")


def is_rotary(family: Family, config: Config) -> bool:
    """Return whether rotary positions rotate queries and keys, as not in all models of a rotary family."""
    other = config.values.get("alibi") is True
    return family.rotary and not other and config.text("position_embedding_type") in (None, "rotary", "rope")


def _has_rotary(family: Family, config: Config, depth: int) -> bool:
    chosen = config.values.get("no_rope_layers")  # 0 for a layer without positions
    if isinstance(chosen, list) and depth < len(chosen):
        return bool(chosen[depth])
    if chosen == []:
        return (depth + 1) % (config.size("no_rope_layer_interval") or 4) != 0
    if family.rotary_layers is None or "sliding_window" not in config:
        return True
    return layer_type(config, depth) in (None, family.rotary_layers)


def _rotary(shapes: Shapes, attention: Attention, depth: int) -> Rotary | None:
    """Return which entries of a head are rotated: in latent attention, those of the shared key."""
    config, family = shapes.config, shapes.family
    if not is_rotary(family, config) or not _has_rotary(family, config, depth):
        return None
    neighbours = shapes.is_among(family.rotary_neighbours)
    values = rope_values(config, depth)
    bases = (values.number(key) for key in family.rotary_base if key in values)
    base = next(bases, family.default_rotary_base)
    base = None if values.text("rope_type", "type") not in (None, "default") else base
    d, stretch = attention.head_size, _rotary_scale(values)
    if attention.shared_key is not None:
        shared = attention.shared_key.shape[1]
        return Rotary(shared, neighbours, base, d - shared, stretch)
    return Rotary(rotary_size(values, family, d), neighbours, base, scale=stretch)


def rotary_size(values: Config, family: Family, head_size: int) -> int:
    """Return how many entries of a head are rotated. The number is even, because the entries form pairs."""
    share = values.number("partial_rotary_factor") or values.number("rotary_pct") or family.rotary_share
    if values.text("rope_type", "type") == "proportional":
        share = 1.0  # the pairs span the whole head, and many have angle zero
    size = min(values.size("rotary_dim") or int(head_size * share), head_size)
    return size + size % 2


def _rotary_scale(values: Config) -> float | None:
    """Return the factor that multiplies rotated entries, or None if the type of positions is unknown."""
    kind = values.text("rope_type", "type")
    if kind in (None, "default", "linear", "dynamic", "llama3", "proportional", "mrope"):
        return 1.0
    if kind not in ("yarn", "longrope", "su"):
        return None
    if (given := values.number("attention_factor")) is not None:
        return given
    original = values.number("original_max_position_embeddings")
    longest = values.number("max_position_embeddings")
    factor = values.number("factor") or (longest / original if longest and original else None)
    if factor is None:
        return None
    if factor <= 1:
        return 1.0
    if kind == "yarn":
        growth = log(factor) / 10
        if not (values.values.get("mscale") and values.values.get("mscale_all_dim")):
            return 1 + growth
        above, below = (1 + (values.number(key) or 0.0) * growth for key in ("mscale", "mscale_all_dim"))
        return above / below
    return None if original is None else (1 + log(factor) / log(original)) ** 0.5


def rope_values(config: Config, depth: int) -> Config:
    """Return a config with the keys of rotary positions, which may be in tables, at its top level."""
    values = dict(config.values)
    for key in ("rope_scaling", "rope_parameters"):
        table = config.values.get(key)
        kind = layer_type(config, depth)
        if isinstance(table, Mapping) and isinstance(table.get(kind), Mapping):
            table = table[kind]
        if isinstance(table, Mapping):
            values |= table
    return Config(values, config.source)


def score_scale(config: Config, family: Family, head_size: int, depth: int) -> float:
    """Return the factor that multiplies self-attention scores in the layer at `depth` of its stack."""
    scale = config.number("attention_multiplier")
    if scale is None:
        scaled = family.scaled_scores and config.values.get("scale_attn_weights") is not False
        positions = config.values.get("pos_att_type")  # DeBERTa adds a score for each of these
        listed = positions if isinstance(positions, str | list) else ()
        terms = 1 + sum(kind in listed for kind in ("c2p", "p2c"))
        size = config.number("query_pre_attn_scalar") or head_size * terms
        scale = config.section("attn_config").number("softmax_scale") or (size**-0.5 if scaled else 1.0)
    if config.values.get("scale_attn_by_inverse_layer_idx") is True:
        scale /= depth + 1
    return scale


def _yarn_factor(config: Config) -> float:
    """Return the further factor of scores in latent attention with yarn positions, or 1 without them."""
    for key in ("rope_parameters", "rope_scaling"):
        values = config.values.get(key)
        if isinstance(values, Mapping) and values.get("mscale_all_dim"):
            stretch = Config(values, f"{config.source}: {key}")
            weight, factor = stretch.number("mscale_all_dim"), stretch.number("factor")
            growth = 1 + (weight or 0.0) * log(max(factor or 1.0, 1.0)) / 10
            return growth * growth
    return 1.0
