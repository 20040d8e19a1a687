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
    feeding: Norm | None = NO_NORM
    if first is not None:  # a matrix after the norm of the embeddings may change the width
        width = shapes.matrix(matched.layers[0] + stack.attention["output"])[1]
        has_stream_width = first.gain is None or shapes.tensors.shapes[first.gain] == (width,)
        feeding = first if has_stream_width else NO_NORM
    for number in order:
        at = matched.layers[number]
        ways = (way for way in stack.norms if all(not end or shapes.norm(at + end) for end in way.values()))
        roles = None if shapes.foreign_type else next(ways, None)
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


def _block_norm(shapes: Shapes, at: str, roles: Roles, block: str) -> Norm | None:
    return shapes.norm(at + roles[block] if roles[block] else "") if block in roles else None
