"""Build the feed-forward block of one layer from its tensors: plain, gated, or a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence

from attnlaw.checkpoints.assembly.shapes import Shapes
from attnlaw.checkpoints.blocks import NO_NORM, FeedForward
from attnlaw.checkpoints.families import LayerTable, Roles
from attnlaw.core.errors import InputError

EXPERT = "{expert}"


def build_feed_forward(shapes: Shapes, prefix: str, stack: LayerTable, experts: bool) -> FeedForward | None:
    """Return the feed-forward block that processes every token, or None if the layer has none."""
    roles = _stored_roles(shapes, prefix, stack.feed_forward)
    if roles is None:
        return None
    return _block(shapes, prefix, roles, None if experts else stack.inner_size)


def build_experts(shapes: Shapes, prefix: str, stack: LayerTable) -> tuple[FeedForward, ...]:
    """Return the experts of a layer, which may be stored in separate tensors or stacked in one."""
    roles = _stored_roles(shapes, prefix, stack.experts)
    if roles is None:
        return ()
    count = _count(shapes, prefix, roles)
    if any(EXPERT in name for name in roles.values()):
        return tuple(_block(shapes, prefix, _of_expert(roles, number)) for number in range(count))
    experts = tuple(_block(shapes, prefix, roles, member=number) for number in range(count))
    first = experts[0]
    for view in (view for view in (first.inner, first.gate, first.outer) if view):
        shapes.check_layer(view, "experts", shapes.tensors.shapes[view.tensor][0], count)
    return experts


def missing_block_error(shapes: Shapes, prefix: str, stack: LayerTable) -> InputError:
    """Return the error for a layer that lacks the feed-forward block of its stack's other layers."""
    names = (name for roles in stack.feed_forward or stack.experts for name in roles.values())
    return shapes.tensors.error(f"tensor {prefix}{next(names)} is missing; {shapes.missing_remedy}")


def _stored_roles(shapes: Shapes, prefix: str, ways: Sequence[Roles]) -> Roles | None:
    """Return the table in `ways` that names the most tensors of this layer, or None if no table names any."""
    counts = [sum(prefix + name in shapes for name in _of_expert(roles, number=0).values()) for roles in ways]
    return ways[counts.index(max(counts))] if any(counts) else None


def _of_expert(roles: Roles, number: int) -> Roles:
    return {role: name.replace(EXPERT, str(number)) for role, name in roles.items()}


def _count(shapes: Shapes, prefix: str, roles: Roles) -> int:
    first = prefix + next(iter(roles.values()))
    if EXPERT in first:
        count = 0
        while any(prefix + name in shapes for name in _of_expert(roles, count).values()):
            count += 1
    else:
        shapes.matrix(first, stacked=True)
        count = shapes.tensors.shapes[first][0]
    for key in ("num_local_experts", "num_experts", "n_routed_experts"):
        shapes.check_config(first, "experts", count, key)
    return count


def _block(
    shapes: Shapes, prefix: str, roles: Roles, inner_size: str | None = None, member: int | None = None
) -> FeedForward:
    width = shapes.matrix(prefix + roles["out"], stacked=member is not None)[0]
    views = shapes.views(prefix, roles, {"in": width, "gate": width}, member=member)
    if inner_size is not None:
        shapes.check_config(views["out"].tensor, "inputs", width, inner_size)
    shapes.check_config(views["in"].tensor, "inputs", views["in"].shape[0], shapes.family.hidden_size)
    shapes.check_layer(views["in"], "inputs", views["in"].shape[0], views["out"].shape[1])
    between = shapes.stack.inner_norms.get("out")
    norm = shapes.norm(prefix + between) if between else None
    outer_norm = shapes.require_norm_fits(norm, views["out"]) or NO_NORM
    return FeedForward(views["in"], views["out"], views.get("gate"), outer_norm=outer_norm)
