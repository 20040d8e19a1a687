"""From tensor names to layers: find the family whose names are there, under any prefix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.families import FAMILIES, Family, Stack
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.errors import InputError

Names = Mapping[str, str]
Position = tuple[int, ...]


@dataclass(frozen=True)
class MatchedStack:
    """A stack found in a checkpoint: the full layer prefixes in order, and the stack's table."""

    stack: Stack
    prefix: str
    layers: tuple[str, ...]
    positions: tuple[Position, ...]


@dataclass(frozen=True)
class Match:
    """A family and the stacks of it that a checkpoint holds."""

    family: Family
    stacks: tuple[MatchedStack, ...]


def match_family(tensors: Tensors, config: Config) -> Match:
    """The family that config.json names if some of its tensors are there, else the first that fits whole."""
    refuse_unreadable(tensors, config)
    named = config.text("model_type")
    declared = next((family for family in FAMILIES if named in family.model_types), None)
    for family in sorted(FAMILIES, key=lambda family: family is not declared):
        stacks = [found for stack in family.stacks for found in _find(stack, tensors)]
        if family is declared and not stacks:
            stacks = [found for stack in family.stacks for found in _find(stack, tensors, whole=False)]
        if stacks and declared and family.name != declared.name:
            raise InputError(
                f"{tensors.source}: its tensors have the names of {family.name}, but {config.source} says "
                f"{named} (model_type); give the config.json that belongs to these weights"
            )
        if stacks:
            return Match(family, tuple(_ordered(family, stacks, tensors)))
    known = ", ".join(dict.fromkeys(family.name for family in FAMILIES))
    kind = f" (model_type {named})" if named else ""
    example = next(iter(tensors.shapes), "none")
    raise InputError(
        f"{tensors.source}: unknown architecture{kind}, none of the tensor names fit (first: {example}); "
        f"known families: {known}"
    )


def refuse_unreadable(tensors: Tensors, config: Config) -> None:
    """Adapters and quantised weights look like models; their tensors are not the model's matrices."""
    names = tensors.shapes
    if _first(names, r"\.(lora_[AB]|lora_(up|down)|lora_embedding_[AB]|hada_w1_a|oft_R)\b"):
        raise InputError(
            f"{tensors.source}: a LoRA adapter, not a whole model; merge it into its base model "
            "(merge_and_unload in peft) and audit the result"
        )
    coded = _first(
        names,
        r"\.(qweight|qzeros|g_idx|SCB|weight_packed|weight_scale|weight_scale_inv)$"
        r"|weight\.(absmax|quant_map|quant_state)",
    )
    if coded or "quantization_config" in config:
        what = f"tensor {coded}" if coded else f"quantization_config in {config.source}"
        raise InputError(
            f"{tensors.source}: a quantised checkpoint ({what}); dequantise it, or use the original weights"
        )


def _first(names: Iterable[str], pattern: str) -> str | None:
    return next((name for name in names if re.search(pattern, name)), None)


def _find(stack: Stack, tensors: Tensors, whole: bool = True) -> list[MatchedStack]:
    """Every prefix under which attention tensors of the stack are there, each with its layers in order.

    With `whole`, some layer must have them all: families share some names, but not all of them.
    """
    layer = re.escape(stack.layer)
    for placeholder in ("group", "layer"):
        layer = layer.replace(re.escape("{" + placeholder + "}"), r"(\d{1,9})")
    attention = "|".join(re.escape(name) for name in stack.attention.values())
    pattern = re.compile(rf"((?:.*\.)?){layer}({attention})", re.DOTALL)
    found: dict[str, dict[Position, str]] = {}
    for name in tensors.shapes:
        if hit := pattern.fullmatch(name):
            prefix, *position, tensor = hit.groups()
            found.setdefault(prefix, {})[tuple(map(int, position))] = name.removesuffix(tensor)
    return [
        MatchedStack(stack, prefix, tuple(layers[key] for key in sorted(layers)), tuple(sorted(layers)))
        for prefix, layers in found.items()
        if not whole
        or any(
            all(at + name in tensors.shapes for name in stack.attention.values()) for at in layers.values()
        )
    ]


def _ordered(family: Family, stacks: list[MatchedStack], tensors: Tensors) -> list[MatchedStack]:
    """The stacks in the order in which data pass them: encoders before decoders."""
    prefixes = sorted({stack.prefix for stack in stacks})
    if not family.separate_prefixes and len(prefixes) > 1:
        raise InputError(
            f"{tensors.source}: holds several models (tensor prefixes {', '.join(map(repr, prefixes))}); "
            "save the one to audit in a file of its own"
        )
    if not family.separate_prefixes:
        return stacks

    def order(stack: MatchedStack) -> tuple[bool, list[tuple[int, str]]]:
        decoder = any(stack.layers[0] + name in tensors.shapes for name in stack.stack.cross.values())
        return decoder, [(int(part) if part.isdigit() else -1, part) for part in stack.prefix.split(".")]

    return sorted(stacks, key=order)
