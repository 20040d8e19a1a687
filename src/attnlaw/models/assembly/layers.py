"""From a matched family to a `Model`: layers in order, their depth checked, and what to know about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from attnlaw.base.errors import InputError, printable
from attnlaw.models.assembly.attention import build_attention
from attnlaw.models.assembly.feed_forward import build_experts, build_feed_forward, missing
from attnlaw.models.assembly.match import (
    Match,
    MatchedStack,
    match_family,
    model_type_of,
    stranger_of,
)
from attnlaw.models.assembly.norms import StackNorms, stack_norms
from attnlaw.models.assembly.remarks import extensions, matrices_left_out, unread_layers, warnings
from attnlaw.models.assembly.shapes import Shapes
from attnlaw.models.config import Config
from attnlaw.models.families import Family
from attnlaw.models.model import Blocks, FeedForward, Model, Product, View, network_of, widths
from attnlaw.models.network import Tower
from attnlaw.models.norms import NO_NORM, Norm
from attnlaw.models.tensors import Tensors

MOST_DEPTH = 1000  # of layers that share their weights, so that files do not bound their number


def build_model(
    name: str,
    tensors: Tensors,
    config: Config,
    heads: int | None,
    families: Sequence[Family],
) -> Model:
    """Read names, shapes and sizes (no weights) into a `Model` of one of the families."""
    match = match_family(tensors, config, families)
    family = match.family
    stranger = stranger_of(family, config, families)
    shapes_of = [Shapes(tensors, config.part(stack.stack.config), family, stranger) for stack in match.stacks]
    for shapes, stack in zip(shapes_of, match.stacks, strict=True):
        _check_depth(shapes, stack)
    applications = _applications(match, config)
    layers: list[Blocks] = []
    towers: list[Tower] = []
    memory: Norm | None = None
    for shapes, stack in zip(shapes_of, match.stacks, strict=True):
        label = stack.stack.name or (stack.prefix.strip(".") or None if len(match.stacks) > 1 else None)
        order = applications if family.shared_layers else range(len(stack.layers))
        norms = stack_norms(shapes, stack, order)
        own = _layers(shapes, stack, heads, label and printable(label), len(layers), norms, memory)
        if family.towers:
            places = tuple(range(len(layers), len(layers) + len(own)))
            towers.append(Tower(label or "", places, widths(own), _activation(shapes)))
        layers += own
        memory = norms.last
    left_out = matrices_left_out(match, layers, tensors)
    unread = unread_layers(match, layers, tensors, config)
    # A layer without feed-forward beside matrices that were not read: it must have one of another kind.
    whole = not left_out or all(layer.feed_forward or layer.experts for layer in layers)
    complete = whole and not any(part.of_network for part in unread)
    embedding = _first(tensors, family.embedding, stored_out_in=False)
    unembedding = _first(tensors, family.unembedding, stored_out_in=True)
    return Model(
        name=printable(name),
        family=printable(model_type_of(family, config)),
        tensors=tensors,
        network=network_of(
            layers,
            applications,
            _activation(shapes_of[0]),
            {
                "embedding": None if embedding is None else Product.of(embedding, NO_NORM),
                "unembedding": None if unembedding is None else Product.of(unembedding, None),
            },
            complete,
            towers,
        ),
        layers=tuple(layers),
        embedding_view=embedding,
        unembedding_view=unembedding,
        extensions=extensions(match, layers, config, complete),
        warnings=warnings(match, layers, tensors, config, left_out, unread, stranger),
    )


def _activation(shapes: Shapes) -> str:
    """As the config names it; T5 writes "gated-gelu"."""
    found = shapes.config.text(*shapes.family.activation) or shapes.family.default_activation
    return printable(found.removeprefix("gated-"))


def _layers(
    shapes: Shapes,
    matched: MatchedStack,
    heads: int | None,
    label: str | None,
    first: int,
    norms: StackNorms,
    memory: Norm | None,
) -> list[Blocks]:
    """The layers of one stack; `memory` is the norm that ends the stack before it."""
    stack = matched.stack
    has_cross = any(at + name in shapes for at in matched.layers for name in stack.cross.values())
    layers = []
    for depth, (prefix, fed) in enumerate(zip(matched.layers, norms.layers, strict=True)):
        experts = build_experts(shapes, prefix, stack)
        blocks = Blocks(
            index=first + depth,
            attention=build_attention(shapes, prefix, stack, heads, depth),
            cross=build_attention(shapes, prefix, stack, heads, depth, cross=True) if has_cross else None,
            feed_forward=build_feed_forward(shapes, prefix, stack, bool(experts)),
            stack=label,
            experts=experts,
            router_sum=_router_sum(shapes, len(experts)),
        )
        layers.append(_fed(shapes, blocks, fed, memory))
    having = [bool(layer.feed_forward or layer.experts) for layer in layers]
    if any(having) and not all(having):
        raise missing(shapes, matched.layers[having.index(False)], stack)
    return layers


def _fed(shapes: Shapes, layer: Blocks, norms: Mapping[str, Norm | None], memory: Norm | None) -> Blocks:
    """The layer with the norm that each of its blocks reads."""

    def reading(block: FeedForward) -> FeedForward:
        return replace(block, norm=shapes.feeds(norms["feed_forward"], block.inner))

    own, cross, feed_forward = layer.attention, layer.cross, layer.feed_forward
    return replace(
        layer,
        attention=replace(own, norm=shapes.feeds(norms["attention"], own.query)),
        cross=cross
        and replace(
            cross,
            norm=shapes.feeds(norms["cross"], cross.query),
            memory_norm=shapes.feeds(memory, cross.key),
        ),
        feed_forward=feed_forward and reading(feed_forward),
        experts=tuple(reading(expert) for expert in layer.experts),
    )


def _router_sum(shapes: Shapes, experts: int) -> float:
    """The most that a router's weights add up to: a softmax to one, plain sigmoids to one per expert."""
    config = shapes.config
    scale = config.number("routed_scaling_factor") or 1.0
    sigmoid_type = shapes.is_among(shapes.family.sigmoid_routers)
    sigmoids = sigmoid_type or config.text("scoring_func") == "sigmoid"
    if not experts or not sigmoids or config.values.get("norm_topk_prob", True):
        return scale
    return scale * min(config.size("num_experts_per_tok") or experts, experts)


def _first(tensors: Tensors, names: tuple[str, ...], stored_out_in: bool) -> View | None:
    """The first matrix whose name ends in one of `names`."""
    for ending in names:
        for name, shape in tensors.shapes.items():
            if (name == ending or name.endswith("." + ending)) and len(shape) == 2:
                return View(name, shape[::-1] if stored_out_in else shape, stored_out_in)
    return None


def _check_depth(shapes: Shapes, matched: MatchedStack) -> None:
    if not matched.positions[0]:
        return
    found = [max(axis) + 1 for axis in zip(*matched.positions, strict=True)]
    keys = matched.stack.depth
    expected = [shapes.config.size(key) or top for key, top in zip(keys, found, strict=True)]
    if found != expected or len(matched.positions) != prod(expected):
        count = " x ".join(map(str, expected))
        raise InputError(
            f"{shapes.tensors.source}: expected {count} layers, found layers {_ranges(matched.positions)}; "
            + (
                shapes.unsupported
                or "the checkpoint is incomplete or its config.json belongs to another model"
            )
        )


def _applications(match: Match, config: Config) -> tuple[int, ...]:
    """The layer used at each depth; ALBERT's depth i uses group int(i / (L / G)), all its inner layers."""
    positions, layers = match.stacks[0].positions, sum(len(stack.layers) for stack in match.stacks)
    depth = config.size("num_hidden_layers")
    if len(positions[0]) < 2 or depth is None:
        return tuple(range(layers))
    if depth > MOST_DEPTH:
        raise InputError(
            f"{config.source}: num_hidden_layers is {depth}, expected at most {MOST_DEPTH}; correct it"
        )
    groups = len({group for group, _ in positions})
    inner = layers // groups
    # The float quotient is the model's own rule; where G does not divide L its rounding matters.
    return tuple(
        int(step / (depth / groups)) * inner + member for step in range(depth) for member in range(inner)
    )


def _ranges(positions: tuple[tuple[int, ...], ...]) -> str:
    """0-3, 5 for layers 0, 1, 2, 3, 5; 0.0, 1.0 for layer 0 of the groups 0 and 1."""
    if len(positions[0]) > 1:
        return ", ".join(".".join(map(str, position)) for position in positions)
    runs: list[list[int]] = []
    for (number,) in sorted(positions):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
