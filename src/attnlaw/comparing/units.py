"""The maps of two opened models, unit by unit: an attention block, a feed-forward block, a matrix.

Maps whose tensors are all identical are not read again, and those with a tensor that is not finite have no
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.base.errors import InputError
from attnlaw.comparing.floor import Steps, edge
from attnlaw.comparing.joining import Joined
from attnlaw.comparing.maps import MapChange, Pair, compare_heads, compare_matrices, unchanged_map
from attnlaw.comparing.matching import is_folded, is_settled, match_heads, match_neurons, own_cosines
from attnlaw.comparing.tensors import Change
from attnlaw.models.model import Attention, Blocks, FeedForward, Model, Product, View
from attnlaw.models.network import KINDS, Place
from attnlaw.models.norms import Norm
from attnlaw.spectra.measure import Selection

Matrix = NDArray[np.float64]
Norms = tuple[Norm | None, Norm | None]
QUIET = ("identical", "rounded", "below-floor")
FEED_FORWARD = {"inner": "ffn_in", "gate": "ffn_gate", "outer": "ffn_out"}


@dataclass(frozen=True, eq=False)
class Found:
    """What a unit of maps found: its maps, and what only the verdict on the model asks for."""

    maps: tuple[tuple[Place, MapChange], ...]
    permuted: bool = False
    regauged: bool = False
    folded: bool | None = None


@dataclass(frozen=True, eq=False)
class Models:
    """Both models, with what their tensors told."""

    base: Model
    model: Model
    applied: bool = False
    changes: tuple[tuple[Joined, Change], ...] = ()

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[Joined, Change]]]:
        found: dict[str, list[tuple[Joined, Change]]] = {}
        for one, change in self.changes:
            if one.base is not None and one.model is not None:
                found.setdefault(one.base, []).append((one, change))
        return found

    def of(self, view: View) -> list[tuple[Joined, Change]]:
        """What became of the tensor of a view of the base, or of its role alone where that was compared."""
        every = self._by_name.get(view.tensor, [])
        return [pair for pair in every if pair[0].views is None or pair[0].views[0] == view]

    def verdicts(self, *views: View) -> set[str]:
        """What became of the tensors of some views of the base."""
        chained = [part for view in views for part in _chain(view)]
        found = [{change.verdict for _, change in self.of(view)} or {"removed"} for view in chained]
        return set().union(*found)

    def norm_verdicts(self, *norms: Norm | None) -> set[str]:
        """What became of the gains that are folded in."""
        gains = [norm.gain for norm in norms if self.applied and norm is not None and norm.gain is not None]
        found = [{change.verdict for _, change in self._by_name.get(name, [])} for name in gains]
        return set().union(*(one or {"removed"} for one in found))

    @cached_property
    def stepped(self) -> Model:
        """The model with the steps of its file in the place of its weights."""
        return replace(self.model, tensors=Steps(self.model.tensors))

    @cached_property
    def rounded(self) -> Model:
        """The base with the steps of the formats that its tensors were rounded to."""
        formats = {
            one.base: change.format
            for one, change in self.changes
            if one.base is not None and one.views is None and change.format is not None
        }
        return replace(self.base, tensors=Steps(self.base.tensors, formats))

    def was_rounded(self, view: View) -> bool:
        """Whether the tensor of a view, as a whole, was rounded."""
        return any(one.views is None and change.format is not None for one, change in self.of(view))

    def whole(self, mine: View, theirs: View) -> Change | None:
        """What became of a tensor that is the whole of a map in both models."""
        pairs = (self.base, mine), (self.model, theirs)
        sizes = [prod(of.tensors.shapes[view.tensor]) for of, view in pairs]
        found = [change for one, change in self.of(mine) if one.views is None]
        return found[0] if found and sizes == [mine.elements, theirs.elements] else None


def _chain(view: View) -> list[View]:
    """The view and those that are applied before it."""
    return [view, *(_chain(view.after) if view.after else [])]


@dataclass(frozen=True, eq=False)
class _AttentionUnit:
    """QK and VO of one attention block, head by head."""

    layer: Blocks
    base: Attention
    model: Attention
    kinds: tuple[str, ...]
    match: bool

    @property
    def elements(self) -> int:
        return 3 * sum(view.elements for view in self.base.views("qk") + self.base.views("vo"))

    def run(self, models: Models) -> Found:
        heads = min(self.base.heads, self.model.heads)
        views = [view for kind in self.kinds for view in self.base.views(kind)]
        verdicts = models.verdicts(*views) | self._norm_verdicts(models)
        look = self.match and verdicts - {"identical"} and "non-finite" not in verdicts
        order = self._order(models) if look else None
        chosen = order or list(range(heads)) + [-1] * (self.base.heads - heads)
        maps = [pair for kind in self.kinds for pair in self._maps(models, kind, chosen)]
        ranks = [one.numbers.get("rank") for _, one in maps]
        regauged = order is None and bool(verdicts - {*QUIET, "non-finite"}) and not any(ranks)
        folded = self._folded(models)
        return Found(tuple(maps), order is not None, regauged, folded)

    def _order(self, models: Models) -> list[int] | None:
        """The model's head that each head became; one kind of map is held at a time unless some moved."""

        def read(kind: str) -> tuple[list[Pair], list[Pair]]:
            mine = _factors(models, self.base, models.base, kind)
            return mine, _factors(models, self.model, models.model, kind)

        near = is_settled(own_cosines(*read(kind)) for kind in self.kinds)
        if self.base.heads == self.model.heads and near:
            return None
        both = [read(kind) for kind in self.kinds]
        groups = self.base.kv_heads if self.base.kv_heads < self.base.heads else 0
        return match_heads([mine for mine, _ in both], [theirs for _, theirs in both], groups)

    def _maps(self, models: Models, kind: str, chosen: list[int]) -> Iterator[tuple[Place, MapChange]]:
        verdicts = models.verdicts(*self.base.views(kind)) | self._norm_verdicts(models)
        places = [Place(self.layer.index, kind, self.layer.stack, head) for head in range(len(chosen))]
        product = _product(self.base, kind)
        shape, d = product.shape, product.inner
        if "non-finite" in verdicts or verdicts == {"identical"}:
            empty = MapChange({"rows": shape[0], "cols": shape[1], "inner": d})
            for place, there in zip(places, chosen, strict=True):
                if there >= 0:
                    yield place, empty if "non-finite" in verdicts else unchanged_map(shape, d, there)
            return
        latent = self.base.latent or self.model.latent
        before = _factors(models, self.base, models.base, kind)
        after = _factors(models, self.model, models.model, kind)
        steps: list[Pair | None] = [None] * len(after)
        if not latent:
            stored = self.model.factors(models.stepped, kind)
            steps = [*_scaled(models, self.model, models.model, kind, stored)]
        rounds = self._rounded(models, kind) if not latent else [(None, None)] * len(before)
        for place, there, own, grid in zip(places, chosen, before, rounds, strict=True):
            if there >= 0:
                found = compare_heads(own, after[there], steps[there], grid)
                yield place, replace(found, numbers={**found.numbers, "matched_head": there})

    def _rounded(self, models: Models, kind: str) -> list[tuple[Matrix | None, Matrix | None]]:
        """The steps of the factors of each head that were rounded."""
        first, second = (models.was_rounded(view) for view in self.base.views(kind)[:2])
        if not (first or second):
            return [(None, None)] * self.base.heads
        factors = _scaled(models, self.base, models.base, kind, self.base.factors(models.rounded, kind))
        return [(one if first else None, other if second else None) for one, other in factors]

    def _norm_verdicts(self, models: Models) -> set[str]:
        return models.norm_verdicts(*(norm for kind in self.kinds for norm in self.base.norms(kind)))

    def _folded(self, models: Models) -> bool | None:
        """Whether the rows of the query were scaled; None where it is what it was, or cannot be told."""
        query = self.base.query
        if models.verdicts(query) & {*QUIET, "non-finite", "removed"}:
            return None
        return _scaled_rows(models, query, self.model.query)


def _factors(models: Models, block: Attention, of: Model, kind: str) -> list[Pair]:
    """The factors of every head, as they are stored or with the norms before them folded in."""
    if not models.applied:
        return list(block.factors(of, kind))
    found = [block.applied(of, kind, *pair) for pair in block.factors(of, kind)]
    known = [pair for pair in found if pair is not None]
    if len(known) < len(found):
        raise _unknown_norm(of)
    return known


def _scaled(models: Models, block: Attention, of: Model, kind: str, steps: Iterable[Pair]) -> Iterator[Pair]:
    """Steps of factors, times the gains that are folded into these."""
    left, right = (_gain(models, of, norm) for norm in block.norms(kind))
    for first, second in steps:
        yield left * first, (right * second.T).T


def _gain(models: Models, of: Model, norm: Norm | None) -> Matrix:
    """What steps are multiplied by: 1 where nothing is folded in."""
    if not models.applied or norm is None:
        return np.ones((1, 1))
    return np.abs(of.gain(norm))[:, None]


def _unknown_norm(of: Model) -> InputError:
    return InputError(
        f"{of.tensors.source}: the norms before its maps are not known; leave applied out to compare them as "
        "they are stored"
    )


@dataclass(frozen=True, eq=False)
class _FeedForwardUnit:
    """The matrices of one feed-forward block, or of one expert."""

    layer: Blocks
    expert: int | None
    base: FeedForward
    model: FeedForward
    parts: tuple[str, ...]
    match: bool

    @property
    def elements(self) -> int:
        return 5 * self.base.inner.elements

    def run(self, models: Models) -> Found:
        pairs = {part: (getattr(self.base, part), getattr(self.model, part)) for part in self.parts}
        verdicts = models.verdicts(*(mine for mine, _ in pairs.values()))
        order = None
        if self.match and "inner" in self.parts and not verdicts & {"non-finite"} and verdicts - {*QUIET}:
            order = match_neurons(models.base.read(self.base.inner), models.model.read(self.model.inner))
        maps = []
        for part, (mine, theirs) in pairs.items():
            place = Place(self.layer.index, FEED_FORWARD[part], self.layer.stack, expert=self.expert)
            along = (
                None if order is None else (order, slice(None)) if part == "outer" else (slice(None), order)
            )
            read = self.base.norm, self.model.norm
            norms = (self.base.outer_norm, self.model.outer_norm) if part == "outer" else read
            maps.append((place, _matrix_change(models, mine, theirs, norms, along)))
        return Found(tuple(maps), order is not None)


@dataclass(frozen=True, eq=False)
class _MatrixUnit:
    """A matrix beside the layers."""

    place: Place
    base: View
    model: View
    norms: Norms

    @property
    def elements(self) -> int:
        return 5 * self.base.elements

    def run(self, models: Models) -> Found:
        return Found(((self.place, _matrix_change(models, self.base, self.model, self.norms, None)),))


def _matrix_change(models: Models, mine: View, theirs: View, norms: Norms, along: Any) -> MapChange:
    verdicts = models.verdicts(mine) | models.norm_verdicts(norms[0])
    if "non-finite" in verdicts:
        return MapChange({"rows": mine.shape[0], "cols": mine.shape[1]})
    if verdicts == {"identical"} and along is None:
        return unchanged_map(mine.shape, None)
    before, after = models.base.read(mine), models.model.read(theirs)
    known = None if along is not None or models.applied else models.whole(mine, theirs)
    rounded = models.rounded.read(mine) if models.was_rounded(mine) else None
    if models.applied:
        if norms[0] is None or norms[1] is None:
            raise _unknown_norm(models.base if norms[0] is None else models.model)
        before, after = models.base.applied(norms[0], before), models.model.applied(norms[1], after)
        rounded = None if rounded is None else rounded * _gain(models, models.base, norms[0])
    if along is not None:
        after = after[along]
    if known is None or known.floor is None:
        steps = models.stepped.read(theirs) * _gain(models, models.model, norms[1])
        return compare_matrices(before, after, edge(steps), rounded)
    return compare_matrices(before, after, known.floor, rounded, known.values)


def _scaled_rows(models: Models, mine: View, theirs: View) -> bool | None:
    if mine.shape != theirs.shape or theirs.after is not None:
        return None
    rounding = float(np.sqrt(np.sum(models.stepped.read(theirs) ** 2) / 12))
    return is_folded(models.base.read(mine), models.model.read(theirs), rounding)


Unit = _AttentionUnit | _FeedForwardUnit | _MatrixUnit


def units_of(models: Models, selection: Selection, match: bool) -> Iterator[Unit]:
    """The selected maps that both models have in one shape, in the order of rows."""
    theirs = {(layer.stack, layer.index): layer for layer in models.model.layers}
    for layer in models.base.layers:
        other = theirs.get((layer.stack, layer.index))
        if other is not None:
            yield from _layer_units(layer, other, selection, match)
    beside = dict(models.model.network.beside)
    for place, product in models.base.network.beside:
        there = beside.get(place)
        if selection.takes(place) and there is not None and product.shape == there.shape:
            norms = product.norm, there.norm
            yield _MatrixUnit(place, product.views[0], there.views[0], norms)


def _layer_units(layer: Blocks, other: Blocks, selection: Selection, match: bool) -> Iterator[Unit]:
    def taken(kind: str) -> bool:
        return selection.takes(Place(layer.index, kind, layer.stack))

    for mine, theirs, prefix in (
        (layer.attention, other.attention, ""),
        (layer.cross, other.cross, "cross_"),
    ):
        if mine is not None and theirs is not None:
            kinds = [
                f"{prefix}{kind}"
                for kind in ("qk", "vo")
                if taken(f"{prefix}{kind}") and _product(mine, kind).shape == _product(theirs, kind).shape
            ]
            if kinds:
                yield _AttentionUnit(layer, mine, theirs, tuple(kinds), match)
    experts = enumerate(zip(layer.experts, other.experts, strict=False))
    blocks: list[tuple[int | None, FeedForward | None, FeedForward | None]] = [
        (None, layer.feed_forward, other.feed_forward),
        *((number, *pair) for number, pair in experts),
    ]
    for expert, mine_ff, theirs_ff in blocks:
        if mine_ff is not None and theirs_ff is not None:
            parts = [
                part
                for part, kind in FEED_FORWARD.items()
                if taken(kind) and _alike(mine_ff, theirs_ff, part)
            ]
            if parts:
                yield _FeedForwardUnit(layer, expert, mine_ff, theirs_ff, tuple(parts), match)


def _product(block: Attention, kind: str) -> Product:
    heads = block.products()
    return (heads.qk if KINDS[kind].scores else heads.vo)[0]


def _alike(mine: FeedForward, theirs: FeedForward, part: str) -> bool:
    first, second = getattr(mine, part), getattr(theirs, part)
    return first is not None and second is not None and first.shape == second.shape
