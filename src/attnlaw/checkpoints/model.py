"""A Transformer as its maps on row vectors: heads as thin factors, feed-forward matrices, nothing formed.

Convention, once and for all: matrices act on row vectors, y = x M, so a map has shape (in, out).

| symbol | here | shape |
|---|---|---|
| QK of head h | `query_h @ key_g.T` | N x N, rank <= d_head |
| VO of head h | `value_g @ output_h` | N x N, rank <= d_head |
| M_in, M_gate, M_out | `feed_forward.inner, gate, outer` | N x F, N x F, F x N |

Query head h of H reads key/value head g = floor(h * H_kv / H) of H_kv.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.tensors import Tensors, require_real
from attnlaw.errors import InputError

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """A stored tensor, or the columns [start, stop) of it, as a map on row vectors of shape (in, out)."""

    tensor: str
    shape: tuple[int, int]
    stored_out_in: bool
    start: int = 0

    @property
    def elements(self) -> int:
        return self.shape[0] * self.shape[1]


@dataclass(frozen=True)
class Attention:
    """One attention block: four maps and how they split into heads."""

    query: View
    key: View
    value: View
    output: View
    heads: int
    kv_heads: int
    cross: bool = False

    @property
    def head_size(self) -> int:
        return self.query.shape[1] // self.heads

    def kv_head(self, head: int) -> int:
        """The key/value head that query head `head` reads."""
        return head * self.kv_heads // self.heads


@dataclass(frozen=True)
class FeedForward:
    """x -> phi(x M_in) M_out, or (phi(x M_gate) * x M_in) M_out when there is a gate."""

    inner: View
    outer: View
    gate: View | None = None


@dataclass(frozen=True)
class Layer:
    """One layer: its attention blocks (self, then cross) and its feed-forward block, if it has them."""

    index: int
    attention: Attention
    cross: Attention | None = None
    feed_forward: FeedForward | None = None
    stack: str | None = None


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
    hidden_size: int
    activation: str
    embedding_view: View | None = None
    unembedding_view: View | None = None
    extensions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    complete: bool = True

    @property
    def heads(self) -> int:
        return self.layers[0].attention.heads

    def read(self, view: View) -> Matrix:
        """The map as float64, shape (in, out); NaN and infinity are refused by the tensor's name."""
        stored = require_real(self.tensors.read(view.tensor), self.tensors.source, view.tensor)
        columns = slice(view.start, view.start + view.shape[1])
        part = stored[columns].T if view.stored_out_in else stored[:, columns]
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
        return matrix

    def embedding(self) -> Matrix:
        """The token embeddings, one row per token, float64."""
        if self.embedding_view is None:
            raise InputError(
                f"{self.tensors.source}: no token embedding was found in this {self.family} model; "
                "leave the embedding out"
            )
        return self.read(self.embedding_view)
