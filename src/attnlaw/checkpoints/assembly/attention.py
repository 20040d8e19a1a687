"""Build one attention block from its tensors: number of heads, grouped keys and values, latent attention.

| letter | meaning | from |
|---|---|---|
| H, G | query heads, key/value heads | config or `--heads`; shape of the key |
| d_v | value head size | inputs of the output matrix / H |
| d | query head size | outputs of the query matrix / H (equal to d_v except in latent attention) |

In latent attention (DeepSeek-V2, arXiv 2405.04434), keys and values are `x A B_k` and `x A B_v` with a narrow
A. The key of a head also has a rotary part `x A_r` that all heads share, and queries may be `x A_q B_q`. The
norm between A and B is not part of the product. XLNet stores attention with the heads as a separate axis, (N,
H, d).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from numpy.typing import NDArray

from attnlaw.checkpoints.assembly.match import Match
from attnlaw.checkpoints.assembly.scores import build_scores
from attnlaw.checkpoints.assembly.shapes import Shapes
from attnlaw.checkpoints.blocks import Attention, Norm, View
from attnlaw.checkpoints.families import LayerTable, Roles
from attnlaw.checkpoints.tensors import GatheredTensors, Tensors
from attnlaw.core.errors import InputError


@dataclass(frozen=True)
class BlockLocation:
    """The layer of an attention block: the prefix of its tensor names and its number in the stack.

    `source` and `source_depth` are those of the layer whose keys and values the block reads.
    """

    prefix: str
    depth: int
    source: str
    source_depth: int
    cross: bool = False


def build_attention(shapes: Shapes, location: BlockLocation, given_heads: int | None) -> Attention:
    """Return an attention block. `given_heads` is the number of heads that the user gave, if any."""
    stack = shapes.stack
    roles = stack.cross if location.cross else stack.attention
    output = location.prefix + roles["output"]
    width = shapes.matrix(output)[0]  # heads * head size, however query, key and value are stored
    heads = _head_count(shapes, output, width, stack.heads, given_heads)
    if any("latent" in keys.split(",") for keys in roles):
        block = _build_latent(shapes, location.prefix, stack, heads, width)
    else:
        block = _build_plain(shapes, location, roles, heads, width)
    scores = build_scores(shapes, location.prefix, location.source, block, location.depth)
    return replace(block, scores=scores)


def _build_plain(shapes: Shapes, location: BlockLocation, roles: Roles, heads: int, width: int) -> Attention:
    stack, prefix, cross = shapes.stack, location.prefix, location.cross
    size = width // heads
    kv_heads = _key_value_heads(shapes, location.source, roles, heads, size)
    sizes = {"query": width, "gate": width, "key": kv_heads * size, "value": kv_heads * size}
    gated = any("gate" in keys.split(",") for keys in roles)
    runs = stack.runs or (1 if not stack.interleaved else heads if gated else kv_heads)
    views: dict[str, View] = {}
    for at, layer_roles in _roles_by_layer(shapes, location, roles):
        views |= shapes.views(at, layer_roles, sizes, runs, biases=stack.biases)
    views.setdefault("value", views["key"])
    if not cross:
        shapes.check_config(views["key"].tensor, "key/value heads", kv_heads, "num_key_value_heads")
    query, key, value, output = (views[role] for role in ("query", "key", "value", "output"))
    shapes.check_config(output.tensor, "inputs per head", size, "head_dim")
    for view in (query,) if cross else (query, key, value):
        _check_inputs(shapes, view, output)
    source, gate = None if location.source == prefix else location.source_depth, views.get("gate")
    block = Attention(query, key, value, output, heads, kv_heads, cross, source=source, gate=gate)
    if cross:
        return block
    output_norm = shapes.require_norm_fits(_inner_norm(shapes, prefix, "output"), output)
    return replace(block, value_norm=_inner_norm(shapes, prefix, "value"), output_norm=output_norm)


def _inner_norm(shapes: Shapes, prefix: str, role: str) -> Norm | None:
    name = shapes.stack.inner_norms.get(role)
    return None if name is None else shapes.norm(name and prefix + name)


def _roles_by_layer(shapes: Shapes, location: BlockLocation, roles: Roles) -> Iterator[tuple[str, Roles]]:
    """Yield the prefix of each layer that the block reads, and the names of the tensors it reads there."""
    if (
        shapes.config.values.get("attention_k_eq_v") is True
        and location.source + roles["value"] not in shapes
    ):
        roles = {role: name for role, name in roles.items() if role != "value"}
    if location.source == location.prefix:
        yield location.prefix, roles
        return
    yield location.prefix, {role: name for role, name in roles.items() if role not in ("key", "value")}
    yield location.source, {role: name for role, name in roles.items() if role in ("key", "value")}


def _build_latent(shapes: Shapes, prefix: str, stack: LayerTable, heads: int, width: int) -> Attention:
    """Return a block of latent attention. The columns of A that `key,value` omits are the shared key."""
    roles = stack.attention
    norms = {role: shapes.norm(prefix + name) for role, name in stack.inner_norms.items()}
    narrow, pairs = shapes.matrix(prefix + roles["key,value"])
    key_width = pairs - width
    shared = shapes.matrix(prefix + roles["latent,shared_key"])[1] - narrow
    sizes = {"key": key_width, "value": width, "latent": narrow, "shared_key": shared}
    sizes["query"] = key_width + heads * shared
    if key_width < heads or key_width % heads or shared < 1:
        raise shapes.tensors.error(
            f"tensors {prefix}* do not have the shapes of latent attention with {heads} heads; "
            f"{shapes.remedy}"
        )
    views = shapes.views(prefix, roles, sizes)
    latent = views["latent"]

    def widened(view: View, start: int, block: int) -> View:
        norm = shapes.require_norm_fits(norms.get("latent"), view)
        columns = replace(view, start=start, block=block, stride=pairs // heads)
        return replace(columns, shape=(latent.shape[0], view.shape[1]), after=latent, norm=norm)

    key = widened(views["key"], 0, key_width // heads)
    value = widened(views["value"], key_width // heads, width // heads)
    query, output, shared_key = (views[role] for role in ("query", "output", "shared_key"))
    if "query_latent" in views:
        first = views["query_latent"]
        shapes.check_layer(query, "inputs", query.shape[0], first.shape[1])
        inner = shapes.require_norm_fits(norms.get("query_latent"), query)
        query = replace(query, shape=(first.shape[0], query.shape[1]), after=first, norm=inner)
    for view, name in ((key, "qk_nope_head_dim"), (value, "v_head_dim")):
        shapes.check_config(view.tensor, "outputs per head", view.shape[1] // heads, name)
    shapes.check_config(shared_key.tensor, "shared outputs", shared, "qk_rope_head_dim")
    for view in (query, key):
        _check_inputs(shapes, view, output)
    return Attention(query, key, value, output, heads, kv_heads=heads, shared_key=shared_key)


def _check_inputs(shapes: Shapes, view: View, output: View) -> None:
    shapes.check_config(view.tensor, "inputs", view.shape[0], shapes.family.hidden_size)
    shapes.check_layer(view, "inputs", view.shape[0], output.shape[1])


def _head_count(shapes: Shapes, output: str, width: int, key: str, given: int | None) -> int:
    config = shapes.config
    declared = config.size(key)
    if given and declared not in (None, given):
        raise InputError(f"--heads {given}: {config.source} says {declared} ({key}); leave --heads out")
    heads = given or declared
    default_size = shapes.family.default_head_size
    if heads is None and default_size and width % default_size == 0:
        heads = width // default_size
    if heads is None:
        why = f"{config.source} has no {key}" if config.values else f"There is no {config.source}"
        remedy = "" if config.values else "put the model's config.json there, or "
        raise shapes.tensors.error(
            f"attnlaw cannot find the number of attention heads: {why}, and the shapes do not determine it "
            f"({output} has {width} inputs for all heads); {remedy}pass --heads H"
        )
    if width % heads:
        raise shapes.tensors.error(
            f"tensor {output} has {width} inputs, which are not divisible by {heads} heads; correct the "
            "number of heads (--heads or config.json)"
        )
    return heads


def _key_value_heads(shapes: Shapes, prefix: str, roles: Roles, heads: int, size: int) -> int:
    parts, name = next((keys.split(","), name) for keys, name in roles.items() if "key" in keys.split(","))
    outputs = shapes.matrix(prefix + name)[1]
    width = (outputs - ("query" in parts) * heads * size) // (2 if "value" in parts else 1)
    kv_heads = width // size
    if kv_heads < 1 or kv_heads * size != width or heads % kv_heads:
        raise shapes.tensors.error(
            f"tensor {prefix + name} has {outputs} outputs, which cannot be divided into key heads for "
            f"{heads} query heads of size {size}; {shapes.remedy}"
        )
    return kv_heads


def with_joined_heads(tensors: Tensors, match: Match) -> Tensors:
    """Return the tensors, with the head axis of attention weights joined with the axis after it."""
    names = {
        at + name
        for matched in match.stacks
        if matched.stack.head_axis
        for axes, roles in ((3, matched.stack.attention), (2, matched.stack.biases))
        for at in matched.layers
        for name in roles.values()
        if len(tensors.shapes.get(at + name, ())) == axes
    }
    return JoinedHeadAxes(tensors, names) if names else tensors


class JoinedHeadAxes(GatheredTensors):
    """Tensors, some of which are read with their last two axes joined."""

    def __init__(self, tensors: Tensors, names: set[str]) -> None:
        super().__init__(tensors.source, {name: (tensors, name) for name in tensors.shapes}, tensors.metadata)
        joined = {name: tensors.shapes[name] for name in names}
        self.shapes |= {name: (*shape[:-2], prod(shape[-2:])) for name, shape in joined.items()}

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        stored = super().read(name, member)
        return stored if member is not None else stored.reshape(self.shapes[name])
