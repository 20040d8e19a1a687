"""Read an `Architecture` from a config.json.

The keys of the model family give the sizes, and its `[init]` table gives the deviations.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from attnlaw.checkpoints.assembly.scores import is_rotary, rope_values, rotary_size, score_scale
from attnlaw.checkpoints.config import Config, read_config
from attnlaw.checkpoints.families import Family, Initialiser
from attnlaw.checkpoints.families.read_toml import known_families
from attnlaw.checkpoints.open import config_path
from attnlaw.core.errors import InputError
from attnlaw.theory.init.architecture import ACTIVATIONS, Architecture, Deviations

# Keys of config.json that belong to parts which the law does not cover.
STATE_SPACE = (
    "state_size",
    "ssm_cfg",
    "mamba_d_state",
    "mamba_expand",
    "conv_kernel",
    "linear_conv_kernel_dim",
)
ALIBI = ("bloom", "mpt")
CONFIGS = Path(__file__).parent / "configs"
T = TypeVar("T")


def config_of(source: str | os.PathLike[str] | Mapping[str, Any]) -> Config:
    """Return a config as a dictionary, from a file, a folder, a hub id, a shipped name or a dictionary."""
    if isinstance(source, Mapping):
        return Config(source, "config")
    path = config_path(source)
    if not path.is_file():
        path = shipped_configs().get(os.fspath(source), path)
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; give a config.json, its folder, an id on a hub, "
            f"or one of {', '.join(shipped_configs())}"
        )
    if path.suffix != ".json":
        raise InputError(f"{path}: this is not a config.json; give that file or its folder")
    return read_config(path)


def shipped_configs() -> dict[str, Path]:
    """Return the config files that attnlaw ships, by name."""
    return {path.stem: path for path in sorted(CONFIGS.glob("*.json"))}


def architecture_of(config: Config, std: float | None = None, depth: int = 0) -> Architecture:
    """Return the architecture that a config describes. Raise an `InputError` if attnlaw cannot treat it."""
    kind, family, init = _require_initialiser(config)
    config = Config({**init.defaults, **config.values}, config.source)
    stack = family.stacks[0]
    width, heads = _size(config, family.hidden_size), _size(config, stack.heads)
    depth = depth or _size(config, *stack.depth)
    head_width = config.size("head_dim") or width // heads
    _refuse_parts(config, family)
    std = std or _std(config, init)
    std = _require_value(
        std,
        config,
        init.std[0],
        "add it to the config, or give the standard deviation of the weights (--std)",
    )
    order = _order(config, init)
    pad = config.values.get("pad_token_id")
    root = math.sqrt(width) if init.embedding_root else None
    plain_order = order == "post" and not stack.first_norm  # OPT of 350M parameters
    return Architecture(
        name=kind,
        width=width,
        depth=depth,
        heads=heads,
        key_value_heads=config.size("num_key_value_heads") or heads,
        head_width=head_width,
        hidden=config.size(stack.inner_size) or 4 * width,
        vocabulary=_size(config, "vocab_size"),
        deviations=_deviations(init, std, depth),
        activation=_activation(config, family),
        gated=init.gated,
        experts=_size(config, init.experts) if init.experts else 0,
        experts_per_token=_size(config, "num_experts_per_tok") if init.experts else 0,
        norm=family.norm,
        epsilon=next(filter(None, map(config.number, family.epsilon)), family.default_epsilon),
        order=order,
        first_norm=stack.first_norm is not None,
        last_norm=stack.last_norm is not None and not plain_order,
        causal=init.causal or config.values.get("is_decoder") is True,
        positions=init.positions is not None,
        segments=init.segments,
        frequencies=_frequencies(config, family, head_width),
        query_key_norm=init.query_key_norm,
        score_scales=tuple(score_scale(config, family, head_width, layer) for layer in range(depth)),
        score_cap=config.number("attn_logit_softcapping"),
        logit_cap=config.number("final_logit_softcapping"),
        logit_scale=1 / (config.number("logits_scaling") or 1.0),
        embedding_scale=root or config.number("embedding_multiplier") or 1.0,
        residual_scale=config.number("residual_multiplier") or 1.0,
        head=init.head,
        tied=config.values.get("tie_word_embeddings") is not False,
        padding=pad if init.zero_padding and isinstance(pad, int) else None,
        longest=_longest(config, init),
        read_from=init.read_from,
    )


def deviations_of(config: Config, depth: int) -> Deviations | None:
    """Return the standard deviations with which the model's library draws weights, or None if unknown."""
    initialiser = _initialiser(config)
    std = None if initialiser is None else _std(config, initialiser[2])
    return None if initialiser is None or std is None else _deviations(initialiser[2], std, depth)


def _std(config: Config, init: Initialiser) -> float | None:
    return next((value for key in init.std if (value := config.number(key)) is not None), None)


def _deviations(init: Initialiser, std: float, depth: int) -> Deviations:
    return Deviations.all_equal(std, std / math.sqrt(2 * depth) if init.scaled_residual else std)


def library_values(config: Config, depth: int = 0) -> dict[str, Any]:
    """Return the values of a config as the model's library expects them."""
    kind, family, _ = _require_initialiser(config)
    override = {family.stacks[0].depth[0]: depth} if depth else {}
    return {**config.values, **override, "model_type": kind}


def known_types() -> list[str]:
    """Return the model types that attnlaw knows how to initialise, in alphabetical order."""
    return sorted(kind for family in known_families() for kind in family.init)


def _initialiser(config: Config) -> tuple[str, Family, Initialiser] | None:
    """Return the first model type whose initialiser attnlaw knows, with family and initialiser."""
    for family in known_families():
        for kind in config.model_types:
            if kind in family.init:
                return kind, family, family.init[kind]
    return None


def _require_initialiser(config: Config) -> tuple[str, Family, Initialiser]:
    if initialiser := _initialiser(config):
        return initialiser
    kinds = config.model_types
    near = next((family for family in known_families() if set(kinds) & set(family.model_types)), None)
    named = f"{config.source}: model_type {kinds[0]!r:.80}" if kinds else f"{config.source}: no model_type"
    if reason := _unsupported_part(config, near):
        _refuse(named, reason)
    known = ", ".join(known_types())
    raise InputError(f"{named}: attnlaw does not know how its weights are initialised; it knows {known}")


def _unsupported_part(config: Config, family: Family | None) -> str | None:
    """Describe the part of an unknown model type that the law does not cover; None if there is none."""
    if config.values.get("is_encoder_decoder") is True:
        return "models with an encoder and a decoder"
    if any(key in config for key in STATE_SPACE) or (family and any(stack.linear for stack in family.stacks)):
        return "state-space blocks or linear attention"
    if family is None:
        return None
    if family.shared_layers:
        return "weights that layers share"
    if not family.scaled_scores:
        return "relative positions (T5)"
    if set(config.model_types) & set(ALIBI) or config.values.get("alibi") is True:
        return "ALiBi"
    if any("latent" in role for stack in family.stacks for role in stack.attention):
        return "latent attention"
    return None


def _refuse_parts(config: Config, family: Family) -> None:
    """Raise an `InputError` if the config has an option that the law does not cover."""
    embedded = config.size("word_embed_proj_dim")
    for present, part in (
        (config.values.get("add_cross_attention") is True, "cross attention (add_cross_attention)"),
        (config.values.get("qk_layernorm") is True, "LayerNorm of queries and keys (qk_layernorm)"),
        (config.values.get("use_bidirectional_attention") is True, "use_bidirectional_attention"),
        (
            config.text("position_embedding_type") not in (None, "absolute", "rotary", "rope"),
            f"position_embedding_type {config.text('position_embedding_type')}",
        ),
        (
            embedded not in (None, config.size(family.hidden_size)),
            f"embeddings of another width (word_embed_proj_dim {embedded})",
        ),
    ):
        if present:
            _refuse(config.source, part)


def _refuse(where: str, part: str, known: Iterable[str] = ()) -> NoReturn:
    remedy = f"init covers: {', '.join(known)}" if known else "choose another model"
    raise InputError(f"{where}: init does not support {part} yet; {remedy}")


def _require_value(value: T | None, config: Config, key: str, remedy: str) -> T:
    if value is None:
        raise InputError(f"{config.source}: {key} is missing; {remedy}")
    return value


def _size(config: Config, *keys: str) -> int:
    return _require_value(config.size(*keys), config, keys[0], "add it, a positive integer")


def _activation(config: Config, family: Family) -> str:
    name = config.text(*family.activation) or family.default_activation
    if name not in ACTIVATIONS:
        _refuse(config.source, f"activation {name!r:.80}", ACTIVATIONS)
    return ACTIVATIONS[name]


def _order(config: Config, init: Initialiser) -> str:
    if config.values.get("do_layer_norm_before") is False:
        return "post"
    if config.values.get("use_parallel_residual") is False:
        return "pre"
    return init.order


def _longest(config: Config, init: Initialiser) -> int | None:
    """Return the number of learned positions, or the length up to which sliding windows see all tokens."""
    if init.positions is not None:
        return _size(config, init.positions)
    if init.window is None or config.values.get("use_sliding_window") is False:
        return None
    return config.size(init.window)


def _frequencies(config: Config, family: Family, head_width: int) -> tuple[float, ...]:
    """Return the rotary frequencies. Raise an `InputError` if attnlaw does not know their scaling."""
    if not is_rotary(family, config):
        return ()
    values = rope_values(config, 0)
    base = values.number("rope_theta") or 10000.0
    base = values.number("rotary_emb_base") or base
    size = rotary_size(values, family, head_width)
    plain = [base ** (-2 * f / size) for f in range(size // 2)]
    kind = values.text("rope_type", "type") or "default"
    if kind == "default":
        return tuple(plain)
    if kind == "linear":
        return tuple(theta / _number(values, "factor") for theta in plain)
    if kind == "llama3":
        return tuple(_llama3(values, theta) for theta in plain)
    _refuse(config.source, f"rotary scaling {kind!r:.80}", ("default", "linear", "llama3"))


def _llama3(values: Config, theta: float) -> float:
    """Scale a frequency as LLaMA 3.1 does: divide slow ones, keep fast ones, and blend those in between."""
    factor = _number(values, "factor")
    low, high = _number(values, "low_freq_factor"), _number(values, "high_freq_factor")
    turns = _number(values, "original_max_position_embeddings") * theta / (2 * math.pi)
    share = min(max((turns - low) / (high - low), 0.0), 1.0)
    return (1 - share) * theta / factor + share * theta


def _number(values: Config, key: str) -> float:
    return _require_value(values.number(key), values, f"{key} of the rotary positions", "add it")
