"""Build a `Model` from a checkpoint: match a family, build its layers in order, and collect warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from attnlaw.checkpoints.assembly.attention import BlockLocation, build_attention, with_joined_heads
from attnlaw.checkpoints.assembly.feed_forward import build_experts, build_feed_forward, missing_block_error
from attnlaw.checkpoints.assembly.incomplete import missing_tensors
from attnlaw.checkpoints.assembly.match import MatchedStack, foreign_model_type, match_family, model_type_of
from attnlaw.checkpoints.assembly.norms import BlockNorms, stack_norms
from attnlaw.checkpoints.assembly.remarks import Reading, format_ranges
from attnlaw.checkpoints.assembly.shapes import Shapes, key_source, layer_config
from attnlaw.checkpoints.assembly.unread import unused_parts
from attnlaw.checkpoints.blocks import NO_NORM, Norm, Product, StoredLayer, View, attention_widths
from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.families import Family
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import MatrixLocation, Network, Tower
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError, printable

MOST_DEPTH = 1000  # for shared layers, whose depth the size of the file does not limit


def build_model(
    name: str,
    tensors: Tensors,
    config: Config,
    heads: int | None,
    families: Sequence[Family],
    map_file: str | None = None,
) -> Model:
    """Build a `Model` without reading weights. `heads` and `map_file` are what the user gave, if anything."""
    match = match_family(tensors, config, families, map_file)
    family = match.family
    tensors = with_joined_heads(tensors, match)
    stranger = foreign_model_type(family, config, families)
    shapes_of = [
        Shapes(tensors, config.section(matched.stack.config), family, matched.stack, stranger, map_file)
        for matched in match.stacks
    ]
    stacks = list(zip(shapes_of, match.stacks, strict=True))
    for shapes, stack in stacks:
        _check_depth(shapes, stack)
    applications = _applications(match.stacks, config)
    layers: list[StoredLayer] = []
    towers: list[Tower] = []
    others: list[int] = []
    memory: Norm | None = None
    for shapes, stack in stacks:
        label = stack.stack.name or (stack.prefix.strip(".") or None if len(match.stacks) > 1 else None)
        order = applications if family.shared_layers else range(len(stack.layers))
        norms, last_norm = stack_norms(shapes, stack, order)
        first = len(layers) + len(others)
        stack_layers = _build_layers(shapes, stack, heads, label and printable(label), first, norms, memory)
        if family.towers:
            places = tuple(range(len(layers), len(layers) + len(stack_layers)))
            towers.append(Tower(label or "", places, attention_widths(stack_layers), _activation(shapes)))
        layers += stack_layers
        numbers = range(first, first + len(stack_layers) + len(stack.linear))
        others += sorted({*numbers} - {layer.index for layer in stack_layers})
        memory = last_norm
    embedding = _find_view(tensors, family.embedding, stored_out_in=False)
    unembedding = _find_view(tensors, family.unembedding, stored_out_in=True)
    unused = unused_parts(match, layers, (embedding, unembedding), tensors)
    missing = missing_tensors(match, tensors, config, embedding, unembedding)
    reading = Reading(match, layers, tensors, config, others, missing, unused, stranger)
    outside = [
        (MatrixLocation(None, kind), Product.of(view, norm))
        for kind, view, norm in (("embedding", embedding, NO_NORM), ("unembedding", unembedding, None))
        if view is not None
    ]
    products, widths = tuple(layer.products() for layer in layers), attention_widths(layers)
    network = Network(products, applications, widths, _activation(shapes_of[0]), tuple(outside))
    network = replace(network, unread=reading.obstacle, towers=tuple(towers), other_layers=tuple(others))
    title, kind = printable(name), printable(model_type_of(family, config))
    notes = reading.extensions, tuple(map(printable, reading.warnings()))
    parts = embedding, unembedding
    return Model(title, kind, tensors, network, tuple(layers), *parts, *notes, config, missing=missing)


def _activation(shapes: Shapes) -> str:
    """Return the name of the activation in the config. T5 writes "gated-gelu" for "gelu"."""
    name = shapes.config.text(*shapes.family.activation) or shapes.family.default_activation
    return printable(name.removeprefix("gated-"))


def _build_layers(
    shapes: Shapes,
    matched: MatchedStack,
    heads: int | None,
    label: str | None,
    first: int,
    norms: Sequence[BlockNorms],
    memory: Norm | None,
) -> list[StoredLayer]:
    """Return the layers of one stack, whose first layer has the number `first` in the model.

    `memory` is the norm at the end of the previous stack, which cross-attention reads.
    """
    stack = matched.stack
    has_cross = any(at + name in shapes for at in matched.layers for name in stack.cross.values())
    layers = []
    prefixes = dict(zip(matched.numbers, matched.layers, strict=True))
    norms_by_number = dict(zip(matched.numbers, norms, strict=True))
    for number, prefix in prefixes.items():
        layer_shapes = replace(shapes, config=layer_config(shapes.config, number, stack.inner_size))
        source = key_source(shapes.config, number)
        location = BlockLocation(prefix, number, prefixes.get(source, prefix), first + source)
        experts = build_experts(layer_shapes, prefix, stack)
        attention = build_attention(layer_shapes, location, heads)
        cross = build_attention(layer_shapes, replace(location, cross=True), heads) if has_cross else None
        feed_forward = build_feed_forward(layer_shapes, prefix, stack, bool(experts))
        router_sum = _router_sum(layer_shapes, len(experts))
        blocks = StoredLayer(first + number, attention, cross, feed_forward, label, experts, router_sum)
        earlier = norms_by_number.get(source, norms_by_number[number])["attention"]
        layers.append(_attach_norms(layer_shapes, blocks, norms_by_number[number], memory, earlier))
    having = [bool(layer.feed_forward or layer.experts) for layer in layers]
    if any(having) and not all(having):
        raise missing_block_error(shapes, matched.layers[having.index(False)], stack)
    return layers


def _attach_norms(
    shapes: Shapes, layer: StoredLayer, norms: BlockNorms, memory: Norm | None, earlier: Norm | None
) -> StoredLayer:
    """Return the layer with the norm that each of its blocks reads. Keys of another layer read `earlier`."""
    fit, cross, feed_forward = shapes.require_norm_fits, layer.cross, layer.feed_forward
    attention = replace(layer.attention, norm=fit(norms["attention"], layer.attention.query))
    if attention.source is not None:
        attention = replace(attention, memory_norm=fit(earlier, attention.key))
    if cross:
        cross = replace(cross, norm=fit(norms["cross"], cross.query), memory_norm=fit(memory, cross.key))
    if feed_forward:
        feed_forward = replace(feed_forward, norm=fit(norms["feed_forward"], feed_forward.inner))
    routed = norms["experts"] or norms["feed_forward"]
    experts = tuple(replace(expert, norm=fit(routed, expert.inner)) for expert in layer.experts)
    return replace(layer, attention=attention, cross=cross, feed_forward=feed_forward, experts=experts)


def _router_sum(shapes: Shapes, experts: int) -> float:
    """Return the largest sum of the weights that a router can give to the experts of one token."""
    config = shapes.config
    scale = config.number("routed_scaling_factor") or 1.0
    chosen = min(config.size("num_experts_per_tok") or experts, experts)
    if shapes.is_among(shapes.family.scaled_experts):
        return float(max(chosen, 1))
    sigmoid_type = shapes.is_among(shapes.family.sigmoid_routers)
    sigmoids = sigmoid_type or config.text("scoring_func") == "sigmoid"
    if not experts or not sigmoids or config.values.get("norm_topk_prob", True):
        return scale
    return scale * chosen


def _find_view(tensors: Tensors, names: tuple[str, ...], stored_out_in: bool) -> View | None:
    for ending in names:
        for name, shape in tensors.shapes.items():
            if (name == ending or name.endswith("." + ending)) and len(shape) == 2:
                return View(name, shape[::-1] if stored_out_in else shape, stored_out_in)
    return None


def _check_depth(shapes: Shapes, matched: MatchedStack) -> None:
    if not matched.positions[0]:
        return
    positions = sorted((*matched.positions, *matched.linear))
    depths = [max(axis) + 1 for axis in zip(*positions, strict=True)]
    keys = matched.stack.depth
    expected = [shapes.config.size(key) or top for key, top in zip(keys, depths, strict=True)]
    if depths != expected or len(positions) != prod(expected):
        count = " x ".join(map(str, expected))
        numbers = format_ranges(positions)
        remedy = "download the checkpoint again, with the config.json that belongs to it"
        raise shapes.tensors.error(
            f"expected {count} layers, found layers {numbers}; {shapes.foreign_remedy or remedy}"
        )


def _applications(stacks: Sequence[MatchedStack], config: Config) -> tuple[int, ...]:
    """Return the position of the layer applied at each depth. ALBERT applies its layers several times."""
    positions, layers = stacks[0].positions, sum(len(stack.layers) for stack in stacks)
    depth = config.size("num_hidden_layers")
    if len(positions[0]) < 2 or depth is None:
        return tuple(range(layers))
    if depth > MOST_DEPTH:
        raise InputError(
            f"{config.source}: num_hidden_layers is {depth}, expected at most {MOST_DEPTH}; correct it"
        )
    groups = len({group for group, _ in positions})
    inner = layers // groups
    # ALBERT divides floats like this. If G does not divide L, the rounding matters.
    firsts = (int(step / (depth / groups)) * inner for step in range(depth))
    return tuple(first + member for first in firsts for member in range(inner))
