"""Two opened models, unit by unit: first every stored tensor, then the maps that these make.

A unit is what is read together: a tensor of both models, an attention block, a feed-forward block. Neither
model is ever held whole. Maps whose tensors are all identical are not read again, and those with a tensor that
is not finite have no numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from attnlaw.base.declare import Progress, silent
from attnlaw.base.errors import InputError
from attnlaw.comparing.floor import Steps, edge
from attnlaw.comparing.joining import Joined, join
from attnlaw.comparing.maps import MapChange, compare_heads, compare_matrices, unchanged_map
from attnlaw.comparing.matching import is_folded, match_heads, match_neurons
from attnlaw.comparing.tensors import Change, compare_tensors
from attnlaw.models.model import Attention, Blocks, FeedForward, Model, Product, View
from attnlaw.models.network import KINDS, LAYER_GROUPS, Place
from attnlaw.numerics.cores import usable_cores
from attnlaw.spectra.gate import Gate
from attnlaw.spectra.measure import IN_FLIGHT, Selection

Matrix = NDArray[np.float64]
R = TypeVar("R")
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
class Compared:
    """Everything of two models: tensors with their changes, units of maps in the order of rows.

    `inside` names the base's tensors that maps of layers are made of.
    """

    tensors: tuple[tuple[Joined, Change], ...]
    units: tuple[Found, ...]
    inside: frozenset[str]

    @property
    def maps(self) -> list[tuple[Place, MapChange]]:
        return [pair for unit in self.units for pair in unit.maps]


@dataclass(frozen=True, eq=False)
class _Models:
    """Both models, with what their tensors told."""

    base: Model
    model: Model
    changes: Mapping[str, tuple[Joined, Change]] = field(default_factory=dict)

    def verdicts(self, *views: View) -> set[str]:
        """What became of the tensors of some views of the base."""
        names = [name for view in views for name in view.tensors]
        return {self.changes[name][1].verdict if name in self.changes else "removed" for name in names}

    @property
    def stepped(self) -> Model:
        """The model with the steps of its file in the place of its weights."""
        return replace(self.model, tensors=Steps(self.model.tensors))

    @property
    def rounded(self) -> Model:
        """The base with the steps of the formats that its tensors were rounded to."""
        formats = {name: one.format for name, (_, one) in self.changes.items() if one.format is not None}
        return replace(self.base, tensors=Steps(self.base.tensors, formats))

    def whole(self, mine: View, theirs: View) -> Change | None:
        """What became of a tensor that is the whole of a map in both models."""
        known = self.changes.get(mine.tensor)
        sizes = [int(np.prod(of.tensors.shapes[view.tensor])) for of, view in ((self.base, mine), (self.model, theirs))]
        if known is None or known[0].views is not None or sizes != [mine.elements, theirs.elements]:
            return None
        return known[1]

    def was_rounded(self, view: View) -> bool:
        change = self.changes.get(view.tensor)
        return change is not None and change[1].format is not None


def compare(
    base: Model,
    model: Model,
    selection: Selection,
    jobs: int | None = None,
    match: bool = True,
    progress: Progress = silent,
) -> Compared:
    """Compare every stored tensor and every selected map that both models have."""
    joined = _selected(join(base, model), base, model, selection)
    models = _Models(base, model)
    units = list(_units(models, selection, match))
    if not units and not any(_same_shape(one, base, model) for one in joined):
        raise InputError(
            f"{model.tensors.source}: shares no tensor and no map with {base.tensors.source}; "
            "give two checkpoints of one architecture"
        )
    total = len(joined) + len(units)
    work = [(_elements(one, base, model), partial(_change, one, base, model)) for one in joined]
    changes = _in_threads(work, jobs, lambda done: progress(done, total))
    told = tuple(zip(joined, changes, strict=True))
    known = {one.base: (one, change) for one, change in told if one.base is not None and one.model is not None}
    after = replace(models, changes=known)
    found = _in_threads([(one.elements, partial(one.run, after)) for one in units], jobs, lambda done: progress(len(joined) + done, total))
    inside = frozenset(name for layer in base.layers for view in layer.views for name in view.tensors)
    return Compared(told, tuple(found), inside)


def _in_threads(
    work: Sequence[tuple[int, Callable[[], R]]], jobs: int | None, told: Callable[[int], None]
) -> list[R]:
    """Results in their order, each thread with one BLAS thread, so that numbers do not depend on `jobs`."""
    gate = Gate(IN_FLIGHT)

    def within(size: int, run: Callable[[], R]) -> R:
        with gate.holding(size):
            return run()

    results: dict[int, R] = {}
    with threadpool_limits(1), ThreadPoolExecutor(jobs or usable_cores()) as pool:
        futures = {pool.submit(within, *one): number for number, one in enumerate(work)}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                results[futures[future]] = future.result()
                told(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[number] for number in range(len(work))]


# Tensors


def _selected(joined: list[Joined], base: Model, model: Model, selection: Selection) -> list[Joined]:
    """All tensors, or those of the selected maps where some are left out."""
    if selection.layers is None and set(selection.groups) >= set(LAYER_GROUPS):
        return joined
    chosen = [
        {name for place, leaf in one.network.leaves() if selection.takes(place) for name in leaf.tensors}
        for one in (base, model)
    ]
    return [one for one in joined if one.base in chosen[0] or one.model in chosen[1]]


def _same_shape(one: Joined, base: Model, model: Model) -> bool:
    if one.views is not None:
        return one.views[0].shape == one.views[1].shape
    if one.base is None or one.model is None:
        return False
    mine, theirs = base.tensors.shapes[one.base], model.tensors.shapes[one.model]
    return mine == (theirs[::-1] if one.transposed else theirs)


def _elements(one: Joined, base: Model, model: Model) -> int:
    shapes = [
        of.tensors.shapes[name] for of, name in zip((base, model), one.tensors, strict=True) if name is not None
    ]
    return 3 * sum(int(np.prod(shape)) for shape in shapes)


def _change(one: Joined, base: Model, model: Model) -> Change:
    if one.base is None:
        return Change("added")
    if one.model is None:
        return Change("removed")
    before, after = base.tensors.read(one.base), model.tensors.read(one.model)
    if one.views is not None:
        before, after = (_part(*pair) for pair in zip((before, after), one.views, strict=True))
    elif one.transposed:
        after = np.swapaxes(after, -1, -2)
    return compare_tensors(before, after, model.tensors.dtype(one.model))


def _part(stored: NDArray[Any], view: View) -> NDArray[Any]:
    """The role's own part of a tensor that holds several, (out, in)."""
    own = stored if view.member is None else stored[view.member]
    return own[view.columns] if view.stored_out_in else own[:, view.columns].T


# Maps


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

    def run(self, models: _Models) -> Found:
        heads = min(self.base.heads, self.model.heads)
        views = [view for kind in self.kinds for view in self.base.views(kind)]
        verdicts = models.verdicts(*views)
        order: list[int] | None = None
        if self.match and verdicts - {"identical"} and "non-finite" not in verdicts:
            read = [[list(block.factors(of, kind)) for kind in self.kinds] for block, of in self._both(models)]
            groups = self.base.kv_heads if self.base.kv_heads < self.base.heads else 0
            order = match_heads(read[0], read[1], groups)
        chosen = order or list(range(heads)) + [-1] * (self.base.heads - heads)
        maps = [pair for kind in self.kinds for pair in self._maps(models, kind, chosen)]
        ranks = [one.numbers.get("rank") for _, one in maps]
        regauged = order is None and bool(verdicts - {*QUIET, "non-finite"}) and not any(ranks)
        folded = self._folded(models)
        return Found(tuple(maps), order is not None, regauged, folded)

    def _both(self, models: _Models) -> list[tuple[Attention, Model]]:
        return [(self.base, models.base), (self.model, models.model)]

    def _maps(self, models: _Models, kind: str, chosen: list[int]) -> Iterator[tuple[Place, MapChange]]:
        views = self.base.views(kind)
        verdicts = models.verdicts(*views)
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
        before = list(self.base.factors(models.base, kind))
        after = list(self.model.factors(models.model, kind))
        steps = [None] * len(after) if latent else list(self.model.factors(models.stepped, kind))
        rounds = self._rounded(models, kind) if not latent else [(None, None)] * len(before)
        for place, there, own, grid in zip(places, chosen, before, rounds, strict=True):
            if there >= 0:
                found = compare_heads(own, after[there], steps[there], grid)
                yield place, replace(found, numbers={**found.numbers, "matched_head": there})

    def _rounded(self, models: _Models, kind: str) -> list[tuple[Matrix | None, Matrix | None]]:
        """The steps of the factors of each head that were rounded."""
        first, second = (models.was_rounded(view) for view in self.base.views(kind)[:2])
        if not (first or second):
            return [(None, None)] * self.base.heads
        factors = self.base.factors(models.rounded, kind)
        return [(one if first else None, other if second else None) for one, other in factors]

    def _folded(self, models: _Models) -> bool | None:
        """Whether the rows of the query were scaled; None where it is what it was, or cannot be told."""
        query = self.base.query
        if models.verdicts(query) & {*QUIET, "non-finite", "removed"}:
            return None
        return _scaled_rows(models, query, self.model.query)


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

    def run(self, models: _Models) -> Found:
        pairs = {part: (getattr(self.base, part), getattr(self.model, part)) for part in self.parts}
        verdicts = models.verdicts(*(mine for mine, _ in pairs.values()))
        order = None
        if self.match and "inner" in self.parts and not verdicts & {"non-finite"} and verdicts - {*QUIET}:
            order = match_neurons(models.base.read(self.base.inner), models.model.read(self.model.inner))
        maps = []
        for part, (mine, theirs) in pairs.items():
            place = Place(self.layer.index, FEED_FORWARD[part], self.layer.stack, expert=self.expert)
            along = None if order is None else (order, slice(None)) if part == "outer" else (slice(None), order)
            maps.append((place, _matrix_change(models, mine, theirs, along)))
        return Found(tuple(maps), order is not None)


@dataclass(frozen=True, eq=False)
class _MatrixUnit:
    """A matrix beside the layers."""

    place: Place
    base: View
    model: View

    @property
    def elements(self) -> int:
        return 5 * self.base.elements

    def run(self, models: _Models) -> Found:
        return Found(((self.place, _matrix_change(models, self.base, self.model, None)),))


def _matrix_change(models: _Models, mine: View, theirs: View, along: Any) -> MapChange:
    verdicts = models.verdicts(mine)
    if "non-finite" in verdicts:
        return MapChange({"rows": mine.shape[0], "cols": mine.shape[1]})
    if verdicts == {"identical"} and along is None:
        return unchanged_map(mine.shape, None)
    before, after = models.base.read(mine), models.model.read(theirs)
    known = models.whole(mine, theirs) if along is None else None
    if along is not None:
        after = after[along]
    floor = known.floor if known is not None and known.floor is not None else edge(models.stepped.read(theirs))
    rounded = models.rounded.read(mine) if models.was_rounded(mine) else None
    return compare_matrices(before, after, floor, rounded, None if known is None else known.values)


def _scaled_rows(models: _Models, mine: View, theirs: View) -> bool | None:
    if mine.shape != theirs.shape or theirs.after is not None:
        return None
    rounding = float(np.sqrt(np.sum(models.stepped.read(theirs) ** 2) / 12))
    return is_folded(models.base.read(mine), models.model.read(theirs), rounding)


Unit = _AttentionUnit | _FeedForwardUnit | _MatrixUnit


def _units(models: _Models, selection: Selection, match: bool) -> Iterator[Unit]:
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
            yield _MatrixUnit(place, product.views[0], there.views[0])


def _layer_units(layer: Blocks, other: Blocks, selection: Selection, match: bool) -> Iterator[Unit]:
    def taken(kind: str) -> bool:
        return selection.takes(Place(layer.index, kind, layer.stack))

    for mine, theirs, prefix in ((layer.attention, other.attention, ""), (layer.cross, other.cross, "cross_")):
        if mine is not None and theirs is not None:
            kinds = [
                f"{prefix}{kind}"
                for kind in ("qk", "vo")
                if taken(f"{prefix}{kind}") and _product(mine, kind).shape == _product(theirs, kind).shape
            ]
            if kinds:
                yield _AttentionUnit(layer, mine, theirs, tuple(kinds), match)
    blocks = [(None, layer.feed_forward, other.feed_forward)]
    blocks += [(number, *pair) for number, pair in enumerate(zip(layer.experts, other.experts, strict=False))]
    for expert, mine_ff, theirs_ff in blocks:
        if mine_ff is not None and theirs_ff is not None:
            parts = [part for part, kind in FEED_FORWARD.items() if taken(kind) and _alike(mine_ff, theirs_ff, part)]
            if parts:
                yield _FeedForwardUnit(layer, expert, mine_ff, theirs_ff, tuple(parts), match)


def _product(block: Attention, kind: str) -> Product:
    heads = block.products()
    return (heads.qk if KINDS[kind].scores else heads.vo)[0]


def _alike(mine: FeedForward, theirs: FeedForward, part: str) -> bool:
    first, second = getattr(mine, part), getattr(theirs, part)
    return first is not None and second is not None and first.shape == second.shape
