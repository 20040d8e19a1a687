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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.network import KINDS, Heads, Layer, Maps, MatrixLocation, Network, Tower
from attnlaw.core.arrays import Reals

if TYPE_CHECKING:
    from attnlaw.checkpoints.model import Model


LAYER, RMS, NONE = ("layer", "rms", "none")


@dataclass(frozen=True)
class Norm:
    """A norm as it is stored: the tensors of its gain and bias, None where it has none.

    `offset` is added to the stored gain (Gemma stores g - 1). Of queries and keys it normalises every head
    by itself, or with `joint` all heads together.
    """

    kind: str
    gain: str | None = None
    bias: str | None = None
    epsilon: float = 0.0
    offset: float = 0.0
    joint: bool = False


@dataclass(frozen=True, eq=False)
class NormFold:
    """What a norm puts before a map: C diag(gain), or diag(gain) alone, a matrix that is never formed.

    `gain` has one entry for each input, or one for all.
    """

    gain: Reals
    centred: bool

    def __call__(self, columns: Reals) -> Reals:
        """The product with a matrix of as many rows."""
        return self._centred(self.gain[:, None] * columns)

    def transposed(self, columns: Reals) -> Reals:
        """The product of its transpose."""
        return self.gain[:, None] * self._centred(columns)

    def _centred(self, columns: Reals) -> Reals:
        return np.asarray(columns - columns.mean(axis=0)) if self.centred else columns


# Read by a block that nothing is normalised for; of a block whose norm is not known, None stands.
NO_NORM = Norm(NONE)


@dataclass(frozen=True)
class Rotary:
    """Which numbers of a head are turned with the position, and which of them together.

    Of `size` numbers from `start` on, number i turns with i + size / 2, or (`adjacent`) 2i with 2i + 1,
    by position * base^(-2i / size); `base` is None where the config does not say or rescales it. `scale` is
    what they are multiplied by besides (yarn, longrope), None where the config's type of positions is not
    known.
    """

    size: int
    adjacent: bool = False
    base: float | None = None
    start: int = 0
    scale: float | None = 1.0


@dataclass(frozen=True)
class Scores:
    """How scores come from queries and keys: norms of both, positions, `scale * q . k`, then a cap.

    A cap c makes c tanh(s / c) of a score s. With `normed_last`, positions come before the norms. `sinks` is
    the tensor of one more score for each head, which no token has: weights of tokens add up to less than 1.
    `clip` is the largest magnitude of an entry of queries and keys, which larger ones are set to before
    positions. `growing`: queries are multiplied by a factor that grows with their position.
    """

    scale: float
    cap: float | None = None
    rotary: Rotary | None = None
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    normed_last: bool = False
    sinks: str | None = None
    clip: float | None = None
    growing: bool = False


UNSCALED = Scores(1.0)


@dataclass(frozen=True)
class View:
    """A stored tensor, or some columns of it, as a map on row vectors of shape (in, out).

    The columns are [start, start + out), or, with `block` and `stride`, runs of `block` columns that
    begin `stride` apart. `member` picks one matrix of a stack of them (an expert). `bias` is the tensor
    that is added to its outputs, with the same columns.

    With `after`, the map is the product of that view and this one: `after` is applied first. `norm` stands
    between the two, and is no part of the product.
    """

    tensor: str
    shape: tuple[int, int]
    stored_out_in: bool
    start: int = 0
    block: int | None = None
    stride: int | None = None
    member: int | None = None
    bias: str | None = None
    after: View | None = None
    norm: Norm | None = None

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
    """One attention block: four maps, how they split into heads, and what they read.

    `shared_key` is the part of the key that is the same for all heads (latent attention only). Queries read
    what `norm` makes of the stream, keys and values the same, or in cross attention what `memory_norm` makes
    of the other stack's; both are None where they are not known.

    Keys and values of an earlier layer, `source`, are those of its maps, which read its norm (`memory_norm`).
    `value_norm` normalises the values of each head, `output_norm` what all heads have mixed, which is then
    multiplied by sigmoids of what `gate` makes of the stream: none of the three is part of VO.
    """

    query: View
    key: View
    value: View
    output: View
    heads: int
    kv_heads: int
    cross: bool = False
    shared_key: View | None = None
    scores: Scores = UNSCALED
    norm: Norm | None = None
    memory_norm: Norm | None = None
    source: int | None = None
    gate: View | None = None
    value_norm: Norm | None = None
    output_norm: Norm | None = None

    @property
    def source_norm(self) -> Norm | None:
        """The norm that keys and values read."""
        return self.norm if not self.cross and self.source is None else self.memory_norm

    def norms(self, kind: str) -> tuple[Norm | None, Norm | None]:
        """The norms before both sides of the QK (or VO) products; the output side of VO reads none."""
        return (self.norm, self.source_norm) if KINDS[kind].scores else (self.source_norm, NO_NORM)

    @property
    def head_size(self) -> int:
        return self.query.shape[1] // self.heads

    @property
    def latent(self) -> bool:
        """Whether factors of a head are products themselves."""
        return self.shared_key is not None

    def kv_head(self, head: int) -> int:
        """The key/value head that query head `head` reads."""
        return head * self.kv_heads // self.heads

    def views(self, kind: str) -> tuple[View, ...]:
        """The maps that the QK (or VO) products of this block are made of."""
        if not KINDS[kind].scores:
            return self.value, self.output
        return (self.query, self.key, *([self.shared_key] if self.shared_key else []))

    def factors(self, model: Model, kind: str) -> Iterator[tuple[Reals, Reals]]:
        """The thin factors (N x d, d x N) of each head's QK (`kind` "qk") or VO product, head by head."""
        first, second, *shared = (model.read(view) for view in self.views(kind))
        for head in range(self.heads):
            group = self.kv_head(head)
            if KINDS[kind].scores:
                key = _column_block(second, group, self.kv_heads)
                yield _column_block(first, head, self.heads), np.hstack([key, *shared]).T
            else:
                yield _column_block(first, group, self.kv_heads), _column_block(second.T, head, self.heads).T

    def applied(self, model: Model, kind: str, left: Reals, right: Reals) -> tuple[Reals, Reals] | None:
        """The factors of a head with the norms before both sides folded in; None where one is not known."""
        before, behind = self.norms(kind)
        if before is None or behind is None:
            return None
        return model.applied(before, left), right if behind.kind == NONE else model.applied(behind, right.T).T

    def products(self) -> Heads[Product]:
        """QK and VO of every head, those of one kind read together."""
        d, d_v = self.head_size, self.output.shape[0] // self.heads
        qk = Product(self.views("qk"), (self.query.shape[0], self.key.shape[0]), d, self, self.latent)
        vo = Product(self.views("vo"), (self.value.shape[0], self.output.shape[1]), d_v, self, self.latent)
        return Heads((qk,) * self.heads, (vo,) * self.heads)


@dataclass(frozen=True)
class FeedForward:
    """x -> phi(x M_in) M_out, or (phi(x M_gate) * x M_in) M_out when there is a gate.

    x is what `norm` makes of the stream; None where it is not known. M_out reads what `outer_norm` makes of
    the rest.
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
    """One layer as it is stored: its attention blocks (self, then cross) and its feed-forward block.

    In a mixture of experts, `feed_forward` is what every token passes (a shared expert, or None) and
    `experts` are those a router chooses from; `router_sum` is the most that its weights add up to.
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
        """The maps of all its blocks."""
        blocks = [block for block in (self.attention, self.cross, *self.feed_forwards) if block]
        return tuple(view for block in blocks for view in vars(block).values() if isinstance(view, View))

    def products(self) -> Layer[Product]:
        """The layer as the theory reads it."""
        return Layer(
            self.index,
            self.attention.products(),
            None if self.cross is None else self.cross.products(),
            None if self.feed_forward is None else self.feed_forward.products(),
            tuple(expert.products() for expert in self.experts),
            self.stack,
            self.router_sum,
        )


class FactorSource(Protocol):
    """What the products of one kind are read from, all of them together."""

    def factors(self, model: Model, kind: str) -> Iterable[tuple[Reals, Reals]]:
        """Their thin factors, one pair for each."""

    def applied(self, model: Model, kind: str, left: Reals, right: Reals) -> tuple[Reals, Reals] | None:
        """A pair with the norms before it folded in; None where they are not known."""


@dataclass(frozen=True)
class Product:
    """One matrix of a model, not read yet: the map of a view, or a product of thin factors of a `block`.

    `inner` is the dimension that a product passes (d_head, or the rank of an update), None of a map.
    `latent` says that a factor of it is a product itself (latent attention). `norm` is what a map reads;
    None where it is not known, and of products, whose block knows.
    """

    views: tuple[View, ...]
    shape: tuple[int, int]
    inner: int | None = None
    block: FactorSource | None = None
    latent: bool = False
    norm: Norm | None = None

    @classmethod
    def of(cls, view: View, norm: Norm | None) -> Product:
        return cls((view,), view.shape, norm=norm)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The stored tensors that it is made of."""
        return tuple(name for view in self.views for name in view.tensors)

    @property
    def elements(self) -> int:
        """Numbers in memory when it is read, with those of its kind that are read together."""
        return sum(view.elements for view in self.views)


def _column_block(matrix: Reals, number: int, parts: int) -> Reals:
    """Columns of one of `parts` equal parts."""
    size = matrix.shape[1] // parts
    return matrix[:, number * size : (number + 1) * size]


def build_network(
    layers: Sequence[StoredLayer],
    applications: Sequence[int],
    activation: str,
    outside_layers: Mapping[str, Product | None],
    unread: str | None,
    towers: Sequence[Tower] = (),
    others: Sequence[int] = (),
) -> Network[Product]:
    """The tree of a model's products; `outside_layers` has the maps beside the layers, by kind."""
    return Network(
        tuple(layer.products() for layer in layers),
        tuple(applications),
        attention_widths(layers),
        activation,
        tuple(
            (MatrixLocation(None, kind), product)
            for kind, product in outside_layers.items()
            if product is not None
        ),
        unread,
        tuple(towers),
        tuple(others),
    )


def attention_widths(layers: Sequence[StoredLayer]) -> tuple[int, ...]:
    """The different widths of what attention blocks read, ascending."""
    blocks = [block for layer in layers for block in (layer.attention, layer.cross) if block]
    return tuple(sorted({view.shape[0] for block in blocks for view in (block.query, block.key)}))
