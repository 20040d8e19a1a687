"""Find the family whose tensor names a checkpoint has, and the layers that these names belong to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.families import Family, LayerTable
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError

Position = tuple[int, ...]
NUMBER = "[0-9]{1,9}"
# Prefixes of layers that predict further tokens, and of image and audio towers next to a language model.
SIDE_PREFIX = re.compile(r"(^|[._])(mtp|vision|visual|audio)[._]")
ADAPTER = re.compile(r"\.(lora_[AB]|lora_(up|down)|lora_embedding_[AB]|hada_w1_a|oft_R)\b")


@dataclass(frozen=True)
class MatchedStack:
    """A stack of layers found in a checkpoint."""

    stack: LayerTable  # the table of tensor names that the layers have
    prefix: str
    layers: tuple[str, ...]  # the full prefix of each layer's tensor names, in order
    positions: tuple[Position, ...]  # the numbers in each layer's name
    linear: tuple[Position, ...] = ()  # the positions of layers with linear attention, which are left out
    predicting: int = 0  # how many layers after the last only predict further tokens; they are left out too

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of each layer in `layers`, counting the layers with linear attention too."""
        order = {position: number for number, position in enumerate(sorted((*self.positions, *self.linear)))}
        return tuple(order[position] for position in self.positions)


@dataclass(frozen=True)
class Match:
    """The family of a checkpoint, and the stacks of layers found in the checkpoint."""

    family: Family
    stacks: tuple[MatchedStack, ...]


def match_family(
    tensors: Tensors, config: Config, families: Sequence[Family], map_file: str | None = None
) -> Match:
    """Return the family that names the most tensors of a checkpoint.

    Only families whose attention tensors all exist count. For a family that config.json names, one tensor is
    enough, so that attnlaw reports an incomplete checkpoint instead of an unknown one.
    """
    if any(map(ADAPTER.search, tensors.shapes)):
        raise tensors.error(
            "this is a LoRA adapter and not a whole model; give its directory to read the adapter alone, or "
            "give its base model with --adapter DIR"
        )
    named = config.text("model_type")
    declared = [family for family in families if set(config.model_types) & set(family.model_types)]
    for group, whole in ((declared, True), (declared, False), (families, True)):
        parts_by_family = (
            (family, [_find_stacks(stack, tensors, whole) for stack in family.stacks]) for family in group
        )
        matches = [Match(family, tuple(chain(*parts))) for family, parts in parts_by_family if any(parts)]
        if matches:
            ranks = (_named_tensors, _is_oriented, _whole_feed_forward)
            best = max(matches, key=lambda match: tuple(rank(match, tensors) for rank in ranks))
            break
    else:
        raise InputError(
            _unknown_message(tensors, named, families)
            if map_file is None
            else _misnamed_message(tensors, families[0], map_file)
        )
    other = declared and best.family.name not in {family.name for family in declared}
    if other and config.source != tensors.source:  # a GGUF file is not wrong about itself
        raise tensors.error(
            f"its tensors have the names of {best.family.name}, but {config.source} says {named} "
            "(model_type); put the config.json that belongs to these weights next to them"
        )
    ordered = _order_stacks(best.family, best.stacks, tensors)
    return Match(best.family, tuple(_without_prediction(stack, config) for stack in ordered))


def _without_prediction(matched: MatchedStack, config: Config) -> MatchedStack:
    """Return the stack without the layers that, by the config, only predict further tokens."""
    depth = config.size(*matched.stack.depth)
    if not config.values.get("num_nextn_predict_layers") or depth is None:
        return matched
    kept = max(1, sum(position < (depth,) for position in matched.positions))
    layers, positions, others = matched.layers[:kept], matched.positions[:kept], len(matched.layers) - kept
    return replace(matched, layers=layers, positions=positions, predicting=others)


def _named_tensors(match: Match, tensors: Tensors) -> int:
    """Return how many tensors of layers and embeddings a family names. Only the first expert counts."""
    names = {at + name for matched in match.stacks for at in matched.layers for name in matched.stack.names}
    linear = sum(len(matched.linear) for matched in match.stacks)  # each has at least one name
    endings = (*match.family.embedding, *match.family.unembedding)
    return linear + sum(name in names or name.endswith(endings) for name in tensors.shapes)


def _is_oriented(match: Match, tensors: Tensors) -> bool:
    """Return whether the query matrix has as many inputs as the output matrix has outputs."""
    matched = match.stacks[0]
    inputs, outputs = (1, 0) if match.family.stored_out_in else (0, 1)
    query = next(name for roles, name in matched.stack.attention.items() if "query" in roles.split(","))
    names = (query, matched.stack.attention["output"])
    sides = [tensors.shapes.get(matched.layers[0] + name, ()) for name in names]
    return all(len(shape) == 2 for shape in sides) and sides[0][inputs] == sides[1][outputs]


def _whole_feed_forward(match: Match, tensors: Tensors) -> bool:
    """Return whether the first layer has all tensors of a feed-forward block, or none of them."""
    matched = match.stacks[0]
    ways = [
        [matched.layers[0] + name.replace("{expert}", "0") in tensors.shapes for name in roles.values()]
        for roles in (*matched.stack.feed_forward, *matched.stack.experts)
    ]
    return any(all(way) for way in ways) or not any(any(way) for way in ways)


def _unknown_message(tensors: Tensors, named: str | None, families: Sequence[Family]) -> str:
    names = {family.name for family in families}
    known = f"any of the {len(names)} known families" if len(names) > 1 else f"the family {min(names)}"
    kind = f" (model_type {named})" if named else ""
    example = next(iter(tensors.shapes), "none")
    return (
        f"{tensors.source}: attnlaw does not know this architecture{kind}: its tensor names (such as "
        f"{example}) do not match {known}; describe them in a file, and pass --map FILE.toml"
    )


def _misnamed_message(tensors: Tensors, family: Family, described: str) -> str:
    for stack in family.stacks:
        for name in stack.attention.values():
            if not any(map(_pattern(stack, [name]).fullmatch, tensors.shapes)):
                return (
                    f"{described}: no tensor of {tensors.source} is called {stack.layer}{name} "
                    f"(its first tensor: {next(iter(tensors.shapes), 'none')}); correct the name"
                )
    return (
        f"{tensors.source}: no layer has all the attention tensors of {described}; save the whole checkpoint"
    )


def model_type_of(family: Family, config: Config) -> str:
    """Return the model type in the config that the family lists, or another one, or the family's name."""
    model_types = (name for name in config.model_types if name in family.model_types)
    return next(model_types, None) or config.text("model_type") or family.name


def foreign_model_type(family: Family, config: Config, families: Sequence[Family]) -> str | None:
    """Return the model type in the config if the family does not list it, so that only tensor names fit."""
    if len(families) == 1 or set(config.model_types) & set(family.model_types):
        return None
    return config.text("model_type")


def _find_stacks(stack: LayerTable, tensors: Tensors, whole: bool) -> list[MatchedStack]:
    """Return one stack for every prefix under which attention tensors of the table exist.

    If `whole` is true, one layer must have all of them. This distinguishes families that share some names.
    """
    wanted = stack.attention.values()
    pattern = _pattern(stack, wanted)
    layers_by_prefix: dict[str, dict[Position, str]] = {}
    for name in tensors.shapes:
        if hit := pattern.fullmatch(name):
            prefix, *position, tensor = hit.groups()
            at = name.removesuffix(tensor)
            other = layers_by_prefix.setdefault(prefix, {}).setdefault(tuple(map(int, position)), at)
            if other != at:
                raise tensors.error(
                    f"tensors {other}* and {at}* describe the same layer; remove one of the two"
                )
    linear = _linear_positions(stack, tensors)
    stacks = []
    for prefix, layers in layers_by_prefix.items():
        complete = (all(at + name in tensors.shapes for name in wanted) for at in layers.values())
        if not whole or any(complete):
            order = tuple(sorted(layers))
            others = tuple(sorted(linear.get(prefix, set()) - layers.keys()))
            stacks.append(MatchedStack(stack, prefix, tuple(layers[key] for key in order), order, others))
    return stacks


def _linear_positions(stack: LayerTable, tensors: Tensors) -> dict[str, set[Position]]:
    positions: dict[str, set[Position]] = {}
    if stack.linear:
        for hit in filter(None, map(_pattern(stack, stack.linear).fullmatch, tensors.shapes)):
            prefix, *position, _ = hit.groups()
            positions.setdefault(prefix, set()).add(tuple(map(int, position)))
    return positions


def _pattern(stack: LayerTable, tensors: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern with groups for the prefix, the numbers of the layer, and the tensor."""
    layer = re.escape(stack.layer)
    for placeholder in ("group", "layer"):
        layer = layer.replace(re.escape("{" + placeholder + "}"), rf"({NUMBER})")
    return re.compile(rf"((?:.*\.)?){layer}({'|'.join(map(re.escape, tensors))})", re.DOTALL)


def is_decoder(stack: MatchedStack, tensors: Tensors) -> bool:
    """Return whether the first layer of a stack has cross-attention."""
    return any(stack.layers[0] + name in tensors.shapes for name in stack.stack.cross.values())


def _order_stacks(family: Family, stacks: Sequence[MatchedStack], tensors: Tensors) -> Sequence[MatchedStack]:
    """Return the stacks in the order in which data pass through them, encoders before decoders."""

    def order(stack: MatchedStack) -> tuple[bool, list[tuple[int, str]]]:
        parts = stack.prefix.split(".")
        numbers = [int(part) if re.fullmatch(NUMBER, part) else -1 for part in parts]
        return is_decoder(stack, tensors), list(zip(numbers, parts, strict=True))

    if family.separate_prefixes:
        return sorted(stacks, key=order)
    stacks = [stack for stack in stacks if not SIDE_PREFIX.search(stack.prefix)] or stacks
    prefixes = sorted({stack.prefix for stack in stacks})
    if len(prefixes) > 1:
        raise tensors.error(
            f"this file holds several models (tensor prefixes {', '.join(map(repr, prefixes))}); save the "
            "one that you need in a separate file"
        )
    return stacks
