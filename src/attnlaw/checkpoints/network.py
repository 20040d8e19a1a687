"""The one tree of a model: layers of heads and maps, with anything at its leaves.

Opening a model gives a tree of products, measuring one of spectra, bounding one of contributions. Each is the
same tree with other leaves, and its leaves come in the order of rows, which `Layer.map` and `Network.map`
state and nothing else does.

| kind | leaf, a map on row vectors |
|---|---|
| `qk`, `vo` | products of one head of self-attention |
| `cross_qk`, `cross_vo` | the same of cross-attention (decoder layers) |
| `ffn_in`, `ffn_gate`, `ffn_out` | feed-forward, once per expert in a mixture of experts |
| `embedding`, `unembedding` | beside the layers, measured on request |
| `lora` | what an adapter adds to one weight |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, cast

from attnlaw.core.variants import by_name

X = TypeVar("X")
Y = TypeVar("Y")


@dataclass(frozen=True)
class Kind:
    """A kind of matrix: what tables call it, the group that `only` and sums over kinds name it by.

    `by_default`: an audit measures it unless told otherwise. `scores`: it enters the scores of attention.
    """

    name: str
    label: str
    group: str | None
    by_default: bool = True
    scores: bool = False


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


def _groups(kinds: Iterable[Kind]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for kind in kinds:
        if kind.group is not None:
            groups[kind.group] = (*groups.get(kind.group, ()), kind.name)
    return groups


# The kinds of each group, and of those that every layer may have.
GROUPS = _groups(KINDS.values())
LAYER_GROUPS = _groups(kind for kind in KINDS.values() if kind.by_default)


@dataclass(frozen=True)
class MatrixLocation:
    """Where a matrix stands; `layer` is None beside the layers, `head` and `expert` where it has none."""

    layer: int | None
    kind: str
    stack: str | None = None
    head: int | None = None
    expert: int | None = None


@dataclass(frozen=True)
class Heads(Generic[X]):
    """QK and VO of one attention block, head by head."""

    qk: tuple[X, ...]
    vo: tuple[X, ...]


@dataclass(frozen=True)
class Maps(Generic[X]):
    """One feed-forward block, or one expert of a router.

    `gated` tells a leaf None, of a gate that was not selected, from no gate.
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
    """One layer; what it does not have is None.

    `feed_forward` is the block that every token passes, `experts` are those a router chooses from, and
    `router_sum` is the most that its weights add up to for one token.
    """

    index: int
    attention: Heads[X]
    cross: Heads[X] | None = None
    feed_forward: Maps[X] | None = None
    experts: tuple[Maps[X], ...] = ()
    stack: str | None = None
    router_sum: float = 1.0

    def map(self, change: Callable[[MatrixLocation, X], Y]) -> Layer[Y]:
        """The same layer with other leaves, changed one by one in the order of rows."""
        return Layer(
            self.index,
            self._heads(change, self.attention, "qk", "vo"),
            None if self.cross is None else self._heads(change, self.cross, "cross_qk", "cross_vo"),
            None if self.feed_forward is None else self._maps(change, self.feed_forward, None),
            tuple(self._maps(change, expert, number) for number, expert in enumerate(self.experts)),
            self.stack,
            self.router_sum,
        )

    def leaves(self) -> list[tuple[MatrixLocation, X]]:
        """Every leaf with its place, in the order of rows."""
        leaves: list[tuple[MatrixLocation, X]] = []
        self.map(lambda location, leaf: leaves.append((location, leaf)))
        return leaves

    def _heads(self, change: Callable[[MatrixLocation, X], Y], block: Heads[X], *kinds: str) -> Heads[Y]:
        qk, vo = (
            tuple(
                change(MatrixLocation(self.index, kind, self.stack, head), leaf)
                for head, leaf in enumerate(leaves)
            )
            for kind, leaves in zip(kinds, (block.qk, block.vo), strict=True)
        )
        return Heads(qk, vo)

    def _maps(self, change: Callable[[MatrixLocation, X], Y], block: Maps[X], expert: int | None) -> Maps[Y]:
        def changed(kind: str, leaf: X) -> Y:
            return change(MatrixLocation(self.index, kind, self.stack, expert=expert), leaf)

        inner = changed("ffn_in", block.inner)
        gate = changed("ffn_gate", cast(X, block.gate)) if block.gated else None
        return Maps(inner, changed("ffn_out", block.outer), gate, block.gated)


@dataclass(frozen=True)
class Tower:
    """A stack that is a network of its own beside others: its places in `layers`, its widths."""

    name: str
    layers: tuple[int, ...]
    widths: tuple[int, ...]
    activation: str | None


@dataclass(frozen=True)
class Network(Generic[X]):
    """A whole model: its layers, how they are applied, and the matrices beside them.

    `applications` lists the place in `layers` of the one used at each depth: 0, 1, 2, ... unless layers are
    shared; its length is the depth L of the formulas. `widths` are the different widths of what the
    attention blocks read, ascending: one in most models. `unread` says in words what data pass and the tree
    has not (a stack, a block of its layers), None where it has all. `other_layers` are the numbers of layers
    between these that have no softmax attention. An adapter by itself has no layers and no activation.
    Where there are `towers` (text and image), each is a network of its own.

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
        """N, where all layers have the same, in one network."""
        return self.widths[0] if len(self.widths) == 1 and not self.towers else None

    def tower(self, tower: Tower) -> Network[X]:
        """One of the towers as a network."""
        layers = tuple(self.layers[number] for number in tower.layers)
        return Network(layers, tuple(range(len(layers))), tower.widths, tower.activation, (), self.unread)

    def map(self, change: Callable[[MatrixLocation, X], Y]) -> Network[Y]:
        """The same tree with other leaves, changed one by one: layer by layer, then what stands beside."""
        layers = tuple(layer.map(change) for layer in self.layers)
        outside = tuple((location, change(location, leaf)) for location, leaf in self.outside_layers)
        return Network(
            layers,
            self.applications,
            self.widths,
            self.activation,
            outside,
            self.unread,
            self.towers,
            self.other_layers,
        )

    def with_leaves(self, leaves: Iterable[Y]) -> Network[Y]:
        """The same tree with these leaves, given in the order of rows."""
        following = iter(leaves)
        return self.map(lambda location, leaf: next(following))

    def leaves(self) -> list[tuple[MatrixLocation, X]]:
        """Every leaf with its place, in the order of rows."""
        return [*(pair for layer in self.layers for pair in layer.leaves()), *self.outside_layers]

    def unroll(self) -> Network[X]:
        """Every application as a layer of its own; places still tell which of them are one matrix."""
        layers = tuple(self.layers[number] for number in self.applications)
        return replace(self, layers=layers, applications=tuple(range(self.depth)))
