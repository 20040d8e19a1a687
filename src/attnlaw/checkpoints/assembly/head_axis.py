"""Attention stored with heads as an axis of their own, (N, H, d), read as matrices (N, H d) (XLNet)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from numpy.typing import NDArray

from attnlaw.checkpoints.assembly.match import Match
from attnlaw.checkpoints.tensors import Tensors


def with_joined_heads(tensors: Tensors, match: Match) -> Tensors:
    """The tensors, with the heads of those joined that the family stores apart."""
    names = {
        name for name, axes in _tensors_with_head_axis(match) if len(tensors.shapes.get(name, ())) == axes
    }
    return JoinedHeadAxes(tensors, names) if names else tensors


def _tensors_with_head_axis(match: Match) -> Iterator[tuple[str, int]]:
    """The tensors that may have an axis of heads, and how many axes they have then."""
    for matched in match.stacks:
        if matched.stack.head_axis:
            for at in matched.layers:
                yield from ((at + name, 3) for name in matched.stack.attention.values())
                yield from ((at + name, 2) for name in matched.stack.biases.values())


class JoinedHeadAxes(Tensors):
    """Tensors of which some are read with their last two axes as one."""

    def __init__(self, tensors: Tensors, names: set[str]) -> None:
        self.source, self.metadata = tensors.source, tensors.metadata
        self.shapes = {
            name: (*shape[:-2], prod(shape[-2:])) if name in names else shape
            for name, shape in tensors.shapes.items()
        }
        self._tensors = tensors

    def dtype(self, name: str) -> str:
        return self._tensors.dtype(name)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        stored = self._tensors.read(name, member)
        return stored if member is not None else stored.reshape(self.shapes[name])
