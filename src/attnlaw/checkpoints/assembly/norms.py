"""Find the norm that feeds each block of a stack.

| layers | a block reads |
|---|---|
| pre-norm | the output of its norm; without one, the norm before the first layer |
| post-norm | the norm of the sum before it: of the block before, or the norm before the first layer |
| norms after the blocks only | the stream without a norm |

A norm is unknown (None) if the family does not list the model's type or if no table of norms fits the layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnlaw.checkpoints.assembly.match import MatchedStack
from attnlaw.checkpoints.assembly.shapes import Shapes
from attnlaw.checkpoints.blocks import NO_NORM, Norm
from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.families import Family, Roles

BlockNorms = dict[str, Norm | None]  # the norm that feeds each block of a layer, by the block's name
BLOCK_ORDER = ("attention", "cross", "feed_forward")
BLOCKS = (*BLOCK_ORDER, "experts")  # experts without a norm read that of the feed-forward block


def is_pre_norm(family: Family, config: Config) -> bool:
    """Return whether norms come before their blocks, as some configs state and otherwise the family."""
    for key in ("norm_first", "do_layer_norm_before", "do_stable_layer_norm"):
        if isinstance(declared := config.values.get(key), bool):
            return declared
    return family.pre_norm


def stack_norms(
    shapes: Shapes, matched: MatchedStack, order: Sequence[int]
) -> tuple[list[BlockNorms], Norm | None]:
    """Return the norms of every layer of a stack, and the norm at its end.

    `order` has the positions of the layers in the order of their application. A layer that is applied several
    times gets the norms of its last application, because only the first may differ.
    """
    stack = matched.stack
    first, last = (
        None if name is None else shapes.norm(name and matched.prefix + name)
        for name in (stack.first_norm, stack.last_norm)
    )
    before = is_pre_norm(shapes.family, shapes.config)
    layers: dict[int, BlockNorms] = {}
    feeding: Norm | None = first if first and _has_stream_width(shapes, first, matched) else NO_NORM
    for number in order:
        at = matched.layers[number]
        roles = None if shapes.foreign_type else _stored_norms(shapes, at, stack.norms)
        if roles is None:
            feeding, layers[number] = None, dict.fromkeys(BLOCKS)
        elif before:
            layers[number] = {"experts": _block_norm(shapes, at, roles, "experts")}
            for block in BLOCK_ORDER:
                layers[number][block] = _block_norm(shapes, at, roles, block) or feeding or NO_NORM
                feeding = NO_NORM  # the first block has added to the stream
        else:
            layers[number] = {"experts": None}
            for block in BLOCK_ORDER:
                layers[number][block] = feeding
                feeding = _block_norm(shapes, at, roles, block) or feeding
    in_place = [layers[number] for number in range(len(matched.layers))]
    return in_place, last or (None if before else feeding)


def _has_stream_width(shapes: Shapes, norm: Norm, matched: MatchedStack) -> bool:
    width = shapes.matrix(matched.layers[0] + matched.stack.attention["output"])[1]
    return norm.gain is None or shapes.tensors.shapes[norm.gain] == (width,)


def _stored_norms(shapes: Shapes, at: str, ways: Sequence[Roles]) -> Roles | None:
    stored = (roles for roles in ways if all(not name or shapes.norm(at + name) for name in roles.values()))
    return next(stored, None)


def _block_norm(shapes: Shapes, at: str, roles: Roles, block: str) -> Norm | None:
    return shapes.norm(at + roles[block] if roles[block] else "") if block in roles else None
