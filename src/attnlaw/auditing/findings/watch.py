"""A model that is watched while it is measured: every tensor and every map is looked at when it is read.

Nothing is read for the findings' sake but what no measured map reads (norms, biases, embeddings), tensors
whose samples agree, and pairs of heads whose sketches are near: these are compared exactly. Of a layer the
watch keeps numbers only, and while it is measured the Gram matrices of some coordinates.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.auditing.findings.alike import (
    CROSS,
    SELF,
    Sketch,
    heads_alike,
    layers_alike,
    projected,
    sketches,
)
from attnlaw.auditing.findings.balance import PAIRS, rms
from attnlaw.auditing.findings.evidence import Balance, Evidence, Spot, Stored, Turned
from attnlaw.auditing.findings.orientation import TOUCHING, Single, sides, turned
from attnlaw.auditing.findings.roles import MAP, OTHER, known_tensors
from attnlaw.auditing.findings.scan import FLOATS, LARGEST_FLOAT16, decibels, is_float, is_mask, scan
from attnlaw.base.errors import InputError, printable
from attnlaw.models.model import Attention, FeedForward, Matrix, Model, View
from attnlaw.models.tensors import Tensors

Name = tuple[str, int | None]


class Watched(Tensors):
    """Tensors of which each that is read is shown to an observer."""

    def __init__(self, tensors: Tensors, show: Callable[[str, int | None, NDArray[Any]], None]) -> None:
        self.source, self.shapes, self.metadata = tensors.source, tensors.shapes, tensors.metadata
        self._tensors, self._show = tensors, show

    def dtype(self, name: str) -> str:
        return self._tensors.dtype(name)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        array = self._tensors.read(name, member)
        self._show(name, member, array)
        return array


@dataclass(frozen=True)
class WatchedModel(Model):
    """A model of which each map that is read is shown to an observer."""

    show: Callable[[View, Matrix], None] = lambda view, matrix: None

    def read(self, view: View) -> Matrix:
        matrix = super().read(view)
        self.show(view, matrix)
        return matrix


@dataclass(frozen=True)
class Use:
    """Where a map is used: in which block of which layer, as which of its fields."""

    layer: int
    block: Attention | FeedForward
    field: str
    spot: Spot


class Watch:
    """Notes of one model; measure `model`, then ask for the `evidence`."""

    def __init__(self, model: Model) -> None:
        self._plain, self._roles = model, known_tensors(model)
        self.model = WatchedModel(
            **{**vars(model), "tensors": Watched(model.tensors, self._tensor)}, show=self._map
        )
        self._uses: dict[View, list[Use]] = defaultdict(list)
        for use in _uses(model):
            self._uses[getattr(use.block, use.field)].append(use)
        self._lock = Lock()
        self._seen: set[Name] = set()
        self._stored: dict[Name, Stored] = {}
        self._digests: dict[bytes, list[Name]] = defaultdict(list)
        self._projected: dict[tuple[int, str], dict[View, Sketch]] = defaultdict(dict)
        self._sketches: dict[tuple[int, str], Sketch] = {}
        self._sides: dict[int, dict[str, tuple[Single | None, Single | None]]] = defaultdict(dict)
        self._turned: dict[int, list[Turned]] = {}
        self._sizes: dict[tuple[Spot, str], float] = {}
        self._seconds = 0.0

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        with self._lock:
            self._seconds += time.thread_time() - began

    def _tensor(self, name: str, member: int | None, array: NDArray[Any]) -> None:
        with self._lock:
            known = (name, member) in self._seen
            self._seen.add((name, member))
        if known or array.size == 0 or not is_float(array):
            return
        with self._timed():
            seen = scan(array)
            role, spot = self._roles(name, member)
            dtype = self._plain.tensors.dtype(name)
            own_code = dtype not in FLOATS
            strange = seen.not_finite or (seen.peak or 0.0) > LARGEST_FLOAT16
            stored = Stored(
                replace(spot, tensor=printable(spot.tensor or name)),
                role,
                array.shape,
                dtype,
                own_code,
                seen.not_finite,
                seen.peak,
                seen.constant,
                seen.zero_rows,
                seen.zero_columns,
                seen.distinct,
                decibels(array, dtype) if own_code else None,
                mask=bool(strange and role == OTHER and is_mask(array)),
            )
            with self._lock:
                self._stored[name, member] = stored
                if role == MAP and array.ndim > 1:
                    self._digests[seen.digest].append((name, member))

    def _map(self, view: View, matrix: Matrix) -> None:
        uses = self._uses.get(view)
        if not uses:
            return
        with self._timed(), np.errstate(over="ignore", invalid="ignore"):
            size = rms(matrix)
            for use in uses:
                with self._lock:
                    self._sizes[use.spot, use.field] = size
                if isinstance(use.block, Attention):
                    self._sketch(use, use.block, view, matrix.astype(np.float32))
                self._orient(use, matrix)

    def _sketch(self, use: Use, attention: Attention, view: View, single: Single) -> None:
        for kind in CROSS if attention.cross else SELF:
            views = attention.views(kind)
            if view in views:
                maps = self._projected[use.layer, kind]
                maps[view] = projected(attention, view, single)
                if all(own in maps for own in views):
                    found = sketches(attention, kind, self._projected.pop((use.layer, kind)))
                    if np.isfinite(found).all():
                        self._sketches[use.layer, kind] = found

    def _orient(self, use: Use, matrix: Matrix) -> None:
        cross = isinstance(use.block, Attention) and use.block.cross
        if use.field not in TOUCHING or cross or use.spot.expert is not None:
            return
        found = sides(use.field, matrix)
        with self._lock:
            own = self._sides[use.layer]
            own[use.field] = found
            if len(own) == len(TOUCHING):
                self._turned[use.layer] = self._finished(use.layer)

    def _finished(self, layer: int) -> list[Turned]:
        block = self._plain.layers[layer]
        views = {**vars(block.attention), **(vars(block.feed_forward) if block.feed_forward else {})}
        noted = self._sides.pop(layer)
        own = {field: noted[field] for field in TOUCHING if field in noted}  # sums in one order
        spots = {field: self._roles(views[field].tensor, views[field].member)[1] for field in own}
        named = {field: replace(spot, tensor=printable(spot.tensor or "")) for field, spot in spots.items()}
        return turned(own, named)

    def evidence(self, whole: bool) -> Evidence:
        """What was noted; with `whole` all other tensors of the file are looked at, too."""
        if whole:
            self._rest()
        with self._timed():
            for layer in list(self._sides):
                self._turned[layer] = self._finished(layer)
            layers, heads = (tuple(find(self._plain, self._sketches)) for find in (layers_alike, heads_alike))
            self._twins()
        return Evidence(
            tuple(self._stored[name] for name in sorted(self._stored, key=str)),
            layers,
            heads,
            tuple(one for layer in sorted(self._turned) for one in self._turned[layer]),
            tuple(self._balances()),
            self._seconds,
        )

    def _rest(self) -> None:
        read = {name for name, _ in self._seen}
        for name in self._plain.tensors.shapes:
            if name not in read:
                try:
                    self.model.tensors.read(name)
                except InputError:
                    continue  # no map needs it, and it is no plain array

    def _twins(self) -> None:
        """Compare tensors whose samples of bits agree."""
        for names in self._digests.values():
            first, *others = sorted(names, key=str)
            for name in others:
                if self._equal(first, name):
                    twin = self._stored[first].spot.tensor
                    self._stored[name] = replace(self._stored[name], twin=twin)

    def _equal(self, first: Name, second: Name) -> bool:
        one, other = (self._plain.tensors.read(*name) for name in (first, second))
        return one.shape == other.shape and one.tobytes() == other.tobytes()

    def _balances(self) -> Iterator[Balance]:
        for use in _uses(self._plain):
            for pair, (above, below, kind) in PAIRS.items():
                if use.field != above or _free(use.block, pair):
                    continue
                first, second = (self._sizes.get((use.spot, field), 0.0) for field in (above, below))
                if 0 < first < np.inf and 0 < second < np.inf:
                    prefix = "cross_" if isinstance(use.block, Attention) and use.block.cross else ""
                    yield Balance(replace(use.spot, kind=f"{prefix}{kind}"), pair, first / second)


def _uses(model: Model) -> Iterator[Use]:
    for layer in model.layers:
        for attention, kind in ((layer.attention, None), (layer.cross, "cross")):
            if attention is not None:
                spot = Spot(layer.index, layer.stack, kind)
                for field, view in vars(attention).items():
                    if isinstance(view, View):
                        yield Use(layer.index, attention, field, spot)
        blocks = [(None, layer.feed_forward), *enumerate(layer.experts)]
        for expert, block in blocks:
            if block is not None:
                spot = Spot(layer.index, layer.stack, "ffn", expert=expert)
                for field, view in vars(block).items():
                    if isinstance(view, View):
                        yield Use(layer.index, block, field, spot)


def _free(block: Attention | FeedForward, pair: str) -> bool:
    """Whether norms of queries or keys free a ratio."""
    scores = block.scores if isinstance(block, Attention) else None
    return pair == "Q/K" and scores is not None and (scores.query_norm or scores.key_norm) is not None
