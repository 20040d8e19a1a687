"""The blocks of a Transformer: attention, feed-forward, norms and scores, as stored. Nothing is read here.

Matrices act on row vectors, y = x M, so a matrix has shape (in, out).

| symbol | here | shape |
|---|---|---|
| QK of head h | `query_h @ key_g.T` | N x N, rank <= d_head |
| VO of head h | `value_g @ output_h` | N x N, rank <= d_head |
| M_in, M_gate, M_out | `feed_forward.inner, gate, outer` | N x F, N x F, F x N |

Query head h of H reads key/value head g = floor(h * H_kv / H) of H_kv. In latent attention, all heads share
one part of the key, and keys and values pass a narrow matrix first.

A norm computes x = g * zhat + b, where zhat has root mean square at most one.

| kind | zhat of z | norm folded into a matrix M |
|---|---|---|
| `layer` | (z - mean) / sqrt(variance + epsilon) | C diag(g) M, since zhat C = zhat |
| `rms` | z / sqrt(mean square + epsilon) | diag(g) M |
| `none` | z: nothing is normalised | M |

C = I - 11^T / N subtracts from every column its mean over the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.network import KINDS, Heads, Layer, Maps
from attnlaw.core.arrays import Reals

if TYPE_CHECKING:
    from attnlaw.checkpoints.model import Model


LAYER, RMS, NONE = ("layer", "rms", "none")


@dataclass(frozen=True)
class Norm:
    """A stored norm. `gain` and `bias` are the names of its tensors, or None if it has no such tensor."""

    kind: str
    gain: str | None = None
    bias: str | None = None
    epsilon: float = 0.0
    offset: float = 0.0  # added to the stored gain, because Gemma stores g - 1
    joint: bool = False  # a norm of queries or keys normalises all heads together, instead of each head alone


@dataclass(frozen=True, eq=False)
class NormFold:
    """The matrix C diag(gain) that a norm puts before the matrix it feeds, or diag(gain) if not `centred`."""

    gain: Reals
    centred: bool

    def __call__(self, columns: Reals) -> Reals:
        return self._centred(self.gain[:, None] * columns)

    def transposed(self, columns: Reals) -> Reals:
        """Return the product of this matrix's transpose and `columns`."""
        return self.gain[:, None] * self._centred(columns)

    def _centred(self, columns: Reals) -> Reals:
        return np.asarray(columns - columns.mean(axis=0)) if self.centred else columns


# The norm of a block that reads the stream itself. None means that the norm is unknown.
NO_NORM = Norm(NONE)


@dataclass(frozen=True)
class Rotary:
    """The `size` entries of a head from `start` on, which rotary positions rotate in pairs.

    Entry i is paired with i + size / 2, or, if `adjacent`, 2i with 2i + 1. The angle is position * base^(-2i
    / size). `base` and the factor `scale` of the rotated entries are None if they are unknown.
    """

    size: int
    adjacent: bool = False
    base: float | None = None
    start: int = 0
    scale: float | None = 1.0


@dataclass(frozen=True)
class Scores:
    """How an attention block computes its scores from queries q and keys k.

    The block normalises queries and keys, applies positions, computes `scale * q . k`, and applies a cap.
    `sinks` is the tensor with one additional score per head, which belongs to no token.
    """

    scale: float
    cap: float | None = None  # a cap c turns a score s into c tanh(s / c)
    rotary: Rotary | None = None
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    normed_last: bool = False  # positions come before the norms
    sinks: str | None = None
    clip: float | None = None  # entries of queries and keys are clipped to this magnitude before positions
    growing: bool = False  # queries are multiplied by a factor that grows with their position


UNSCALED = Scores(1.0)


@dataclass(frozen=True)
class View:
    """A stored tensor, or its `out` columns from `start` on, read as a matrix of shape (in, out).

    With `block` and `stride`, the columns are runs of `block` columns that begin `stride` columns apart.
    """

    tensor: str
    shape: tuple[int, int]
    stored_out_in: bool  # the file has the transpose, as `nn.Linear` does
    start: int = 0
    block: int | None = None
    stride: int | None = None
    member: int | None = None  # picks one matrix of a stack (an expert)
    bias: str | None = None  # the tensor that is added to the outputs, in the same columns
    after: View | None = None  # a view that is applied first; the matrix is the product of both
    norm: Norm | None = None  # a norm between the two, which is not part of the product

    @property
    def elements(self) -> int:
        """The number of entries in memory while the matrix is read."""
        return self.shape[0] * self.shape[1] + (self.after.elements if self.after else 0)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the stored tensors, in the order in which they are applied."""
        return (*(self.after.tensors if self.after else ()), self.tensor)

    @property
    def columns(self) -> slice | NDArray[np.intp]:
        if self.block is None or self.stride is None:
            return slice(self.start, self.start + self.shape[1])
        starts = self.start + self.stride * np.arange(self.shape[1] // self.block)
        return (starts[:, None] + np.arange(self.block)).ravel()


@dataclass(frozen=True)
class Attention:
    """One attention block.

    Latent attention has a `shared_key`, the part of the key that is the same for all heads. `memory_norm` is
    what keys and values read in cross-attention or from an earlier layer, or None if it is unknown. VO omits
    `value_norm` and `output_norm`, the norms of each head's values and of the mixed values.
    """

    query: View
    key: View
    value: View
    output: View
    heads: int
    kv_heads: int
    cross: bool = False  # queries read the stream; keys and values read the output of another stack
    shared_key: View | None = None
    scores: Scores = UNSCALED
    norm: Norm | None = None  # the norm that queries read; None if it is unknown
    memory_norm: Norm | None = None
    source: int | None = None  # the earlier layer whose keys and values this block uses, if any
    gate: View | None = None  # its outputs, through a sigmoid, multiply the mixed values. Not part of VO.
    value_norm: Norm | None = None
    output_norm: Norm | None = None

    @property
    def source_norm(self) -> Norm | None:
        return self.norm if not self.cross and self.source is None else self.memory_norm

    def norms(self, kind: str) -> tuple[Norm | None, Norm | None]:
        """Return the left and the right norm of products of this kind. VO has no norm on the right."""
        return (self.norm, self.source_norm) if KINDS[kind].scores else (self.source_norm, NO_NORM)

    @property
    def head_size(self) -> int:
        return self.query.shape[1] // self.heads

    @property
    def latent(self) -> bool:
        """Whether each factor of a head is a product of two tensors (latent attention)."""
        return self.shared_key is not None

    def kv_head(self, head: int) -> int:
        return head * self.kv_heads // self.heads

    def views(self, kind: str) -> tuple[View, ...]:
        """Return the stored matrices in the products of one kind ("qk" or "vo")."""
        if not KINDS[kind].scores:
            return self.value, self.output
        return (self.query, self.key, *([self.shared_key] if self.shared_key else []))

    def factors(self, model: Model, kind: str) -> Iterator[tuple[Reals, Reals]]:
        """Yield the two thin factors (N x d and d x N) of each head's QK or VO product."""
        first, second, *shared = (model.read(view) for view in self.views(kind))
        for head in range(self.heads):
            group = self.kv_head(head)
            if KINDS[kind].scores:
                key = _column_block(second, group, self.kv_heads)
                yield _column_block(first, head, self.heads), np.hstack([key, *shared]).T
            else:
                yield _column_block(first, group, self.kv_heads), _column_block(second.T, head, self.heads).T

    def stacks(self, model: Model, kind: str) -> tuple[Reals, Reals]:
        """Read the factors of all heads as stacks (heads, d, N), one factor for each group that shares it."""
        first, second = (model.read(view) for view in self.views(kind))
        scores = KINDS[kind].scores
        left, right = (self.heads, self.kv_heads) if scores else (self.kv_heads, self.heads)
        return _row_blocks(first.T, left), _row_blocks(second.T if scores else second, right)

    def applied(self, model: Model, kind: str, left: Reals, right: Reals) -> tuple[Reals, Reals] | None:
        """Return the two factors of a head with the norms folded in, or None if a norm is unknown."""
        before, behind = self.norms(kind)
        if before is None or behind is None:
            return None
        return model.applied(before, left), right if behind.kind == NONE else model.applied(behind, right.T).T

    def products(self) -> Heads[Product]:
        d, d_v = self.head_size, self.output.shape[0] // self.heads
        qk = Product(self.views("qk"), (self.query.shape[0], self.key.shape[0]), d, self, self.latent)
        vo = Product(self.views("vo"), (self.value.shape[0], self.output.shape[1]), d_v, self, self.latent)
        return Heads((qk,) * self.heads, (vo,) * self.heads)


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward block: x -> phi(x M_in) M_out, or (phi(x M_gate) * x M_in) M_out with a gate.

    `norm` has the output x, and is None if it is unknown. `outer_norm` is the norm before M_out.
    """

    inner: View
    outer: View
    gate: View | None = None
    norm: Norm | None = None
    outer_norm: Norm = NO_NORM

    def products(self) -> Maps[Product]:
        inner, outer = Product.of(self.inner, self.norm), Product.of(self.outer, self.outer_norm)
        return Maps(inner, outer, None if self.gate is None else Product.of(self.gate, self.norm))


@dataclass(frozen=True)
class StoredLayer:
    """One layer as it is stored.

    In a mixture of experts, `feed_forward` processes every token, and a router chooses among `experts`.
    `router_sum` is the largest sum of its weights for one token.
    """

    index: int
    attention: Attention
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
        blocks = [block for block in (self.attention, self.cross, *self.feed_forwards) if block]
        return tuple(view for block in blocks for view in vars(block).values() if isinstance(view, View))

    def products(self) -> Layer[Product]:
        attention, cross = self.attention.products(), None if self.cross is None else self.cross.products()
        feed_forward = None if self.feed_forward is None else self.feed_forward.products()
        experts = tuple(expert.products() for expert in self.experts)
        return Layer(self.index, attention, cross, feed_forward, experts, self.stack, self.router_sum)


class FactorSource(Protocol):
    """The interface of a block that reads all its products of one kind together."""

    def factors(self, model: Model, kind: str) -> Iterable[tuple[Reals, Reals]]:
        """Return a pair of thin factors for each product of one kind."""

    def applied(self, model: Model, kind: str, left: Reals, right: Reals) -> tuple[Reals, Reals] | None:
        """Return a pair of factors with the norms folded in, or None if a norm is unknown."""


@dataclass(frozen=True)
class Product:
    """One matrix of a model before it is read: a stored matrix, or a product of thin factors.

    A product has an `inner` dimension (d_head, or the rank of an update) and a `block` that reads its factors
    and has its norms. A stored matrix has the `norm` that it reads, or None if that is unknown.
    """

    views: tuple[View, ...]  # the stored matrices it consists of
    shape: tuple[int, int]  # (in, out)
    inner: int | None = None
    block: FactorSource | None = None
    latent: bool = False  # one of the factors is itself a product (latent attention)
    norm: Norm | None = None

    @classmethod
    def of(cls, view: View, norm: Norm | None) -> Product:
        return cls((view,), view.shape, norm=norm)

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(name for view in self.views for name in view.tensors)

    @property
    def elements(self) -> int:
        """The number of entries in memory while the stored matrices are read."""
        return sum(view.elements for view in self.views)


def _column_block(matrix: Reals, number: int, parts: int) -> Reals:
    size = matrix.shape[1] // parts
    return matrix[:, number * size : (number + 1) * size]


def _row_blocks(matrix: Reals, parts: int) -> Reals:
    return matrix.reshape(parts, -1, matrix.shape[1])


def attention_widths(layers: Sequence[StoredLayer]) -> tuple[int, ...]:
    """Return the different numbers of inputs of attention matrices, ascending."""
    blocks = [block for layer in layers for block in (layer.attention, layer.cross) if block]
    return tuple(sorted({view.shape[0] for block in blocks for view in (block.query, block.key)}))
