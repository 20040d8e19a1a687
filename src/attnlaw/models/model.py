"""A Transformer as its maps on row vectors: heads as thin factors, feed-forward matrices, nothing formed.

Convention, once and for all: matrices act on row vectors, y = x M, so a map has shape (in, out).

| symbol | here | shape |
|---|---|---|
| QK of head h | `query_h @ key_g.T` | N x N, rank <= d_head |
| VO of head h | `value_g @ output_h` | N x N, rank <= d_head |
| M_in, M_gate, M_out | `feed_forward.inner, gate, outer` | N x F, N x F, F x N |

Query head h of H reads key/value head g = floor(h * H_kv / H) of H_kv. In latent attention the key of a
head is its own part beside one that all heads share, and keys and values pass a narrow map first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlaw.base.errors import InputError
from attnlaw.models.tensors import Tensors, require_real

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """A stored tensor, or some columns of it, as a map on row vectors of shape (in, out).

    The columns are [start, start + out), or, with `block` and `stride`, runs of `block` columns that
    begin `stride` apart. `member` picks one matrix of a stack of them (an expert). With `after`, the
    map is the product of that view and this one: `after` is applied first.
    """

    tensor: str
    shape: tuple[int, int]
    stored_out_in: bool
    start: int = 0
    block: int | None = None
    stride: int | None = None
    member: int | None = None
    after: View | None = None

    @property
    def elements(self) -> int:
        """Numbers in memory when the map is read."""
        return self.shape[0] * self.shape[1] + (self.after.elements if self.after else 0)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The stored tensors that the map is made of, in the order in which they are applied."""
        return (*(self.after.tensors if self.after else ()), self.tensor)

    @property
    def columns(self) -> slice | NDArray[np.intp]:
        if self.block is None or self.stride is None:
            return slice(self.start, self.start + self.shape[1])
        starts = self.start + self.stride * np.arange(self.shape[1] // self.block)
        return (starts[:, None] + np.arange(self.block)).ravel()


@dataclass(frozen=True)
class Attention:
    """One attention block: four maps and how they split into heads.

    `shared_key` is the part of the key that is the same for all heads (latent attention only).
    """

    query: View
    key: View
    value: View
    output: View
    heads: int
    kv_heads: int
    cross: bool = False
    shared_key: View | None = None

    @property
    def head_size(self) -> int:
        return self.query.shape[1] // self.heads

    def kv_head(self, head: int) -> int:
        """The key/value head that query head `head` reads."""
        return head * self.kv_heads // self.heads

    def views(self, kind: str) -> tuple[View, ...]:
        """The maps that the QK (or VO) products of this block are made of."""
        if not kind.endswith("qk"):
            return self.value, self.output
        return (self.query, self.key, *([self.shared_key] if self.shared_key else []))


@dataclass(frozen=True)
class FeedForward:
    """x -> phi(x M_in) M_out, or (phi(x M_gate) * x M_in) M_out when there is a gate."""

    inner: View
    outer: View
    gate: View | None = None


@dataclass(frozen=True)
class Layer:
    """One layer: its attention blocks (self, then cross) and its feed-forward block, if it has them.

    The scores of its self-attention are `score_scale * q . k`, before biases, caps and masks.
    In a mixture of experts, `feed_forward` is what every token passes (a shared expert, or None) and
    `experts` are those a router chooses from; `router_sum` is the most that its weights add up to.
    """

    index: int
    attention: Attention
    score_scale: float
    cross: Attention | None = None
    feed_forward: FeedForward | None = None
    stack: str | None = None
    experts: tuple[FeedForward, ...] = ()
    router_sum: float = 1.0

    @property
    def feed_forwards(self) -> tuple[FeedForward, ...]:
        return (*([self.feed_forward] if self.feed_forward else []), *self.experts)

    @property
    def views(self) -> tuple[View, ...]:
        """The maps of all its blocks."""
        blocks = [block for block in (self.attention, self.cross, *self.feed_forwards) if block]
        return tuple(view for block in blocks for view in vars(block).values() if isinstance(view, View))


@dataclass(frozen=True)
class Model:
    """A checkpoint read as a Transformer.

    `applications` lists the layer used at each depth: 0, 1, 2, ... unless layers are shared.
    `extensions` names what goes beyond the plain post-norm encoder that the bounds were stated for.
    `complete` is False where layers have feed-forward blocks that could not be read.
    """

    name: str
    family: str
    tensors: Tensors
    layers: tuple[Layer, ...]
    applications: tuple[int, ...]
    activation: str
    embedding_view: View | None = None
    unembedding_view: View | None = None
    extensions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    complete: bool = True

    @property
    def widths(self) -> tuple[int, ...]:
        """The different widths of what the attention blocks read, ascending: one in most models."""
        blocks = [block for layer in self.layers for block in (layer.attention, layer.cross) if block]
        return tuple(sorted({view.shape[0] for block in blocks for view in (block.query, block.key)}))

    @property
    def hidden_size(self) -> int | None:
        """N, where all layers have the same."""
        return self.widths[0] if len(self.widths) == 1 else None

    @property
    def heads(self) -> int:
        return self.layers[0].attention.heads

    def read(self, view: View) -> Matrix:
        """The map as float64, shape (in, out); NaN and infinity are refused by the tensor's name."""
        stored = require_real(self.tensors.read(view.tensor, view.member), self.tensors.source, view.tensor)
        part = stored[view.columns].T if view.stored_out_in else stored[:, view.columns]
        matrix: Matrix = part.astype(np.float64)
        # One pass without a temporary array: only where the sum is not finite can an entry be so.
        with np.errstate(invalid="ignore", over="ignore"):
            total = matrix.sum()
        if not np.isfinite(total) and not np.isfinite(matrix).all():
            bad = int(matrix.size - np.count_nonzero(np.isfinite(matrix)))
            raise InputError(
                f"{self.tensors.source}: tensor {view.tensor} has {bad} NaN or infinite entries; "
                "the checkpoint is damaged or training diverged, use an earlier one"
            )
        return matrix if view.after is None else self.read(view.after) @ matrix

    def head_factors(self, block: Attention, kind: str) -> Iterator[tuple[Matrix, Matrix]]:
        """The thin factors (N x d, d x N) of each head's QK (`kind` "qk") or VO product, head by head."""
        first, second, *shared = (self.read(view) for view in block.views(kind))
        for head in range(block.heads):
            group = block.kv_head(head)
            if kind.endswith("qk"):
                key = _part(second, group, block.kv_heads)
                yield _part(first, head, block.heads), np.hstack([key, *shared]).T
            else:
                yield _part(first, group, block.kv_heads), _part(second.T, head, block.heads).T

    def embedding(self) -> Matrix:
        """The token embeddings, one row per token, float64."""
        if self.embedding_view is None:
            raise InputError(
                f"{self.tensors.source}: no token embedding was found in this {self.family} model; "
                "leave the embedding out"
            )
        return self.read(self.embedding_view)


def _part(matrix: Matrix, number: int, parts: int) -> Matrix:
    """Columns of one of `parts` equal parts."""
    size = matrix.shape[1] // parts
    return matrix[:, number * size : (number + 1) * size]
