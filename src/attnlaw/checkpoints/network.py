"""The tree of a model: layers with heads and feed-forward matrices, and a value for each matrix.

Opening a model gives a tree of products, measuring it a tree of spectra, and bounding it a tree of
contributions. `Layer.map` and `Network.map` alone fix the order of the leaves, which is the order of rows in
every table.

| kind | leaf: a matrix that acts on row vectors |
|---|---|
| `qk`, `vo` | products of one head of self-attention |
| `cross_qk`, `cross_vo` | products of one head of cross-attention (decoder layers) |
| `ffn_in`, `ffn_gate`, `ffn_out` | feed-forward, once per expert in a mixture of experts |
| `embedding`, `unembedding` | outside the layers, measured on request |
| `lora` | the update that an adapter adds to one weight |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from attnlaw.core.variants import by_name

X = TypeVar("X")
Y = TypeVar("Y")


@dataclass(frozen=True)
class Kind:
    """A kind of matrix."""

    name: str
    label: str  # its name in tables
    group: str | None  # the name by which `only` and sums over kinds select it
    by_default: bool = True  # an audit measures it unless the user selects other groups
    scores: bool = False  # it enters the scores of attention


KINDS = by_name(
    Kind("qk", "QK", "qk", scores=True),
    Kind("vo", "VO", "vo"),
    Kind("cross_qk", "cross QK", "cross", scores=True),
    Kind("cross_vo", "cross VO", "cross"),
    Kind("ffn_in", "FFN in", "ffn"),
    Kind("ffn_gate", "FFN gate", "ffn"),
    Kind("ffn_out", "FFN out", "ffn"),
    Kind("embedding", "embedding", "embedding", by_default=False),
    Kind("unembedding", "unembedding", "unembedding", by_default=False),
    Kind("lora", "LoRA update", None, by_default=False),
)


# The kinds of each group: of all groups, and of the groups inside layers.
GROUPS = {
    group: tuple(kind.name for kind in KINDS.values() if kind.group == group)
    for group in dict.fromkeys(kind.group for kind in KINDS.values() if kind.group is not None)
}
LAYER_GROUPS = {group: kinds for group, kinds in GROUPS.items() if KINDS[kinds[0]].by_default}


@dataclass(frozen=True)
class MatrixLocation:
    """The place of a matrix in a model. A field that does not apply to the matrix is None."""

    layer: int | None
    kind: str
    stack: str | None = None
    head: int | None = None
    expert: int | None = None


@dataclass(frozen=True)
class Heads(Generic[X]):
    """The QK and VO products of one attention block, head by head."""

    qk: tuple[X, ...]
    vo: tuple[X, ...]


@dataclass(frozen=True)
class Maps(Generic[X]):
    """The matrices of one feed-forward block, or of one expert.

    `gated` says whether the block has a gate. The leaf `gate` may be None even for a gated block, if the gate
    was not selected.
    """

    inner: X
    outer: X
    gate: X | None = None
    gated: bool | None = None

    def __post_init__(self) -> None:
        if self.gated is None:
            object.__setattr__(self, "gated", self.gate is not None)


@dataclass(frozen=True)
class Layer(Generic[X]):
    """One layer of a network.

    Args:
        cross: cross-attention, or None if the layer has none.
        feed_forward: the block that processes every token, or None if the layer has none.
        experts: the blocks from which a router chooses.
        stack: the encoder, decoder or tower to which the layer belongs, if the model has several.
        router_sum: the largest sum of a router's weights for one token.
    """

    index: int
    attention: Heads[X]
    cross: Heads[X] | None = None
    feed_forward: Maps[X] | None = None
    experts: tuple[Maps[X], ...] = ()
    stack: str | None = None
    router_sum: float = 1.0

    def map(self, change: Callable[[MatrixLocation, X], Y]) -> Layer[Y]:
        """Return the layer with leaves `change(location, leaf)`, computed in the order of rows."""
        return replace(
            cast(Layer[Any], self),
            attention=self._heads(change, self.attention),
            cross=self.cross and self._heads(change, self.cross, "cross_"),
            feed_forward=self.feed_forward and self._maps(change, self.feed_forward, None),
            experts=tuple(self._maps(change, expert, i) for i, expert in enumerate(self.experts)),
        )

    def leaves(self) -> list[tuple[MatrixLocation, X]]:
        """Return every leaf with its location, in the order of rows."""
        leaves: list[tuple[MatrixLocation, X]] = []
        self.map(lambda location, leaf: leaves.append((location, leaf)))
        return leaves

    def _heads(self, change: Callable[[MatrixLocation, X], Y], block: Heads[X], cross: str = "") -> Heads[Y]:
        def changed(kind: str, leaves: tuple[X, ...]) -> tuple[Y, ...]:
            heads = (MatrixLocation(self.index, cross + kind, self.stack, i) for i in range(len(leaves)))
            return tuple(map(change, heads, leaves))

        return Heads(changed("qk", block.qk), changed("vo", block.vo))

    def _maps(self, change: Callable[[MatrixLocation, X], Y], block: Maps[X], expert: int | None) -> Maps[Y]:
        def changed(kind: str, leaf: X) -> Y:
            return change(MatrixLocation(self.index, kind, self.stack, expert=expert), leaf)

        inner = changed("ffn_in", block.inner)
        gate = changed("ffn_gate", cast(X, block.gate)) if block.gated else None
        return Maps(inner, changed("ffn_out", block.outer), gate, block.gated)


@dataclass(frozen=True)
class Tower:
    """A stack that is a separate network, such as CLIP's text part, with positions in `Network.layers`."""

    name: str
    layers: tuple[int, ...]
    widths: tuple[int, ...]
    activation: str | None


@dataclass(frozen=True)
class Network(Generic[X]):
    """All layers of a model, their order of application, and the matrices outside the layers.

    Args:
        layers: the stored layers. An adapter without its base has no layers.
        applications: for each depth, the position in `layers` of the applied layer: 0, 1, 2, ... unless
            layers are shared. The length of `applications` is the depth L in formulas.
        widths: the different widths of the attention blocks' inputs, ascending. Most models have only one
            width.
        activation: the activation of the feed-forward blocks, or None for an adapter.
        outside_layers: the embedding and unembedding, or the updates of an adapter.
        unread: a description of the parts that data pass through but the tree does not contain, or None if
            there are no such parts.
        towers: the separate networks of the model, such as text and image.
        other_layers: the numbers of layers without softmax attention.

    >>> layer = Layer(0, Heads(("a",), ("b",)), feed_forward=Maps("c", "d"))
    >>> [leaf for _, leaf in Network((layer,), (0,), (4,), "relu").leaves()]
    ['a', 'b', 'c', 'd']
    """

    layers: tuple[Layer[X], ...]
    applications: tuple[int, ...]
    widths: tuple[int, ...]
    activation: str | None
    outside_layers: tuple[tuple[MatrixLocation, X], ...] = ()
    unread: str | None = None
    towers: tuple[Tower, ...] = ()
    other_layers: tuple[int, ...] = ()

    @property
    def depth(self) -> int:
        return len(self.applications)

    @property
    def hidden_size(self) -> int | None:
        """The width N of the layers, or None if they have different widths or if there are towers."""
        return self.widths[0] if len(self.widths) == 1 and not self.towers else None

    @property
    def experts(self) -> int:
        """The largest number of experts in a layer, or 0 without a mixture of experts."""
        return max((len(layer.experts) for layer in self.layers), default=0)

    def tower(self, tower: Tower) -> Network[X]:
        """Return one of the towers as a network."""
        layers = tuple(self.layers[number] for number in tower.layers)
        return Network(layers, tuple(range(len(layers))), tower.widths, tower.activation, (), self.unread)

    def map(self, change: Callable[[MatrixLocation, X], Y]) -> Network[Y]:
        """Return the tree with leaves `change(location, leaf)`, computed in the order of rows."""
        layers = tuple(layer.map(change) for layer in self.layers)
        outside = tuple((location, change(location, leaf)) for location, leaf in self.outside_layers)
        return replace(cast(Network[Any], self), layers=layers, outside_layers=outside)

    def with_leaves(self, leaves: Iterable[Y]) -> Network[Y]:
        """Return the same tree with these leaves, given in the order of rows."""
        following = iter(leaves)
        return self.map(lambda location, leaf: next(following))

    def leaves(self) -> list[tuple[MatrixLocation, X]]:
        """Return every leaf with its location, in the order of rows."""
        return [*(pair for layer in self.layers for pair in layer.leaves()), *self.outside_layers]

    def unroll(self) -> Network[X]:
        """Return the network with one layer per application, so that a shared layer occurs several times."""
        layers = tuple(self.layers[number] for number in self.applications)
        return replace(self, layers=layers, applications=tuple(range(self.depth)))
