"""A model that is watched while it is measured: every tensor and every map is looked at when it is read.

What reading shows goes out as notes (see `notes`), to who gathers them (see `gather`): the notes of a part of
the model depend on that part alone, whoever reads it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.findings.balance import rms
from attnlaw.analysis.findings.duplicates import CROSS, SELF, Sketch, project_map, sketch_heads
from attnlaw.analysis.findings.evidence import TensorLocation
from attnlaw.analysis.findings.notes import Note, SideNote, SizeNote, SketchNote, TensorNote
from attnlaw.analysis.findings.orientation import TOUCHING, Float32Array, side_grams
from attnlaw.analysis.findings.roles import OTHER, TensorRoles, known_tensors
from attnlaw.analysis.findings.scan import FLOATS, LARGEST_FLOAT16, decibels, is_float, is_mask, scan
from attnlaw.checkpoints.blocks import Attention, FeedForward, View
from attnlaw.checkpoints.model import Matrix, Model
from attnlaw.checkpoints.tensors import Tensors

TensorKey = tuple[str, int | None]


class ObservedTensors(Tensors):
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

    def prefetch(self, name: str, member: int | None = None) -> None:
        self._tensors.prefetch(name, member)


@dataclass(frozen=True)
class ObservedModel(Model):
    """A model of which each map that is read is shown to an observer."""

    show: Callable[[View, Matrix], None] = lambda view, matrix: None

    def read(self, view: View) -> Matrix:
        matrix = super().read(view)
        self.show(view, matrix)
        return matrix


@dataclass(frozen=True)
class TensorUse:
    """Where a map is used: in which block of which layer, as which of its fields."""

    layer: int
    block: Attention | FeedForward
    field: str
    spot: TensorLocation


@dataclass(frozen=True)
class TensorIndex:
    """What the tensors of a model are for, and where its maps are used."""

    roles: TensorRoles
    uses: Mapping[View, Sequence[TensorUse]]

    @classmethod
    def of(cls, model: Model) -> TensorIndex:
        uses: dict[View, list[TensorUse]] = defaultdict(list)
        for use in uses_of(model):
            uses[getattr(use.block, use.field)].append(use)
        return cls(known_tensors(model), uses)


class Observer:
    """Takes notes while `model` is read, each tensor once, and gives them to `take`, from any thread.

    `seconds` is the CPU time that noting took.
    """

    def __init__(self, model: Model, take: Callable[[Note], None], index: TensorIndex | None = None) -> None:
        self._plain, self._take, self._index = model, take, index or TensorIndex.of(model)
        self.model = ObservedModel(
            **{**vars(model), "tensors": ObservedTensors(model.tensors, self._note_tensor)},
            show=self._note_matrix,
        )
        self._lock = Lock()
        self._seen: set[TensorKey] = set()
        self._projected: dict[tuple[int, str], dict[View, Sketch]] = defaultdict(dict)
        self.seconds = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the CPU time of this thread inside."""
        began = time.thread_time()
        yield
        with self._lock:
            self.seconds += time.thread_time() - began

    def _note_tensor(self, name: str, member: int | None, array: NDArray[Any]) -> None:
        with self._lock:
            known = (name, member) in self._seen
            self._seen.add((name, member))
        if known or array.size == 0 or not is_float(array):
            return
        with self.timed():
            seen = scan(array)
            role, _ = self._index.roles(name, member)
            dtype = self._plain.tensors.dtype(name)
            strange = seen.not_finite or (seen.peak or 0.0) > LARGEST_FLOAT16
            note = TensorNote(
                name,
                member,
                array.shape,
                seen,
                None if dtype in FLOATS else decibels(array, dtype),
                mask=bool(strange and role == OTHER and is_mask(array)),
            )
        self._take(note)

    def _note_matrix(self, view: View, matrix: Matrix) -> None:
        uses = self._index.uses.get(view)
        if not uses:
            return
        with self.timed(), np.errstate(over="ignore", invalid="ignore"):
            size = rms(matrix)
            for use in uses:
                self._take(SizeNote(use.spot, use.field, size))
                if isinstance(use.block, Attention):
                    self._note_sketch(use, use.block, view, matrix.astype(np.float32, copy=False))
                self._note_sides(use, matrix)

    def _note_sketch(self, use: TensorUse, attention: Attention, view: View, single: Float32Array) -> None:
        for kind in CROSS if attention.cross else SELF:
            views = attention.views(kind)
            if view in views:
                maps = self._projected[use.layer, kind]
                maps[view] = project_map(attention, view, single)
                if all(other_view in maps for other_view in views):
                    sketch = sketch_heads(attention, kind, self._projected.pop((use.layer, kind)))
                    if np.isfinite(sketch).all():
                        self._take(SketchNote(use.layer, kind, sketch))

    def _note_sides(self, use: TensorUse, matrix: Matrix) -> None:
        cross = isinstance(use.block, Attention) and use.block.cross
        if use.field not in TOUCHING or cross or use.spot.expert is not None:
            return
        self._take(SideNote(use.layer, use.field, *side_grams(use.field, matrix)))


def uses_of(model: Model) -> Iterator[TensorUse]:
    """Every use of a map, block by block."""
    for layer in model.layers:
        for attention, kind in ((layer.attention, None), (layer.cross, "cross")):
            if attention is not None:
                spot = TensorLocation(layer.index, layer.stack, kind)
                for field, view in vars(attention).items():
                    if isinstance(view, View):
                        yield TensorUse(layer.index, attention, field, spot)
        blocks = [(None, layer.feed_forward), *enumerate(layer.experts)]
        for expert, block in blocks:
            if block is not None:
                spot = TensorLocation(layer.index, layer.stack, "ffn", expert=expert)
                for field, view in vars(block).items():
                    if isinstance(view, View):
                        yield TensorUse(layer.index, block, field, spot)
