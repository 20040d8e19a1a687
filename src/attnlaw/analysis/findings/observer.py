"""Watch a model while it is measured, and collect the evidence that detectors need.

An `Observer` looks at every tensor and every weight matrix that is read, and writes notes about them. Notes
are small records that a worker can send to another process. A note about a part of the model depends only on
that part, so it does not matter which worker reads it. An `EvidenceCollector` gathers the notes.

Findings need little additional reading. attnlaw reads the tensors that no measured matrix uses (norms,
biases, embeddings). It reads tensors and heads again to compare them exactly if samples of their bits agree
or their sketches are similar. It keeps in memory some numbers and the head sketches of each layer, and Gram
matrices until the layer is complete.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.findings.duplicates import (
    CROSS,
    SELF,
    Sketch,
    find_similar_heads,
    find_similar_layers,
    project_map,
    sketch_heads,
)
from attnlaw.analysis.findings.embeddings import noise_ratio, rows_alike
from attnlaw.analysis.findings.evidence import (
    MAP,
    OTHER,
    TABLE,
    TOKENS,
    Balance,
    Evidence,
    Orientation,
    StoredTensor,
    TensorLocation,
)
from attnlaw.analysis.findings.orientation import TOUCHING, Float32Array, side_grams, worst_orientation
from attnlaw.analysis.findings.precision import FLOATS, decibels
from attnlaw.analysis.findings.scan import (
    Scan,
    TensorRoles,
    is_float,
    is_mask,
    known_tensors,
    scan,
)
from attnlaw.analysis.findings.sizes import PAIRS, rms
from attnlaw.checkpoints.blocks import Attention, FeedForward, View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.tensors import NotFiniteError, Tensors
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError, printable
from attnlaw.spectra.measure import Selection
from attnlaw.theory.bounds.logits import FLOAT16


@dataclass(frozen=True)
class TensorNote:
    name: str
    member: int | None
    shape: tuple[int, ...]
    seen: Scan
    decibels: float | None
    mask: bool
    noise_ratio: float | None
    alike: str | None = None
    damaged: str | None = None  # name of the adapter's tensor that is not finite


@dataclass(frozen=True)
class SizeNote:
    location: TensorLocation
    field: str
    size: float


@dataclass(frozen=True, eq=False)
class SketchNote:
    layer: int
    kind: str
    heads: Sketch


@dataclass(frozen=True, eq=False)
class SideNote:
    layer: int
    field: str
    residual: Float32Array | None
    head: Float32Array | None


Note = TensorNote | SizeNote | SketchNote | SideNote
# The classes of all records that notes contain, for `attnlaw.analysis.audit.units.unpack`.
NOTED = (TensorNote, SizeNote, SketchNote, SideNote, Scan, TensorLocation)


TensorKey = tuple[str, int | None]


class ObservedTensors(Tensors):
    def __init__(
        self,
        tensors: Tensors,
        show: Callable[[str, int | None, NDArray[Any]], None],
        show_damage: Callable[[str, int | None, NotFiniteError], None],
    ) -> None:
        self.source, self.shapes, self.metadata = tensors.source, tensors.shapes, tensors.metadata
        self._tensors, self._show, self._show_damage = tensors, show, show_damage

    def dtype(self, name: str) -> str:
        return self._tensors.dtype(name)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        try:
            array = self._tensors.read(name, member)
        except NotFiniteError as error:
            self._show_damage(name, member, error)
            raise
        self._show(name, member, array)
        return array

    def prefetch(self, name: str, member: int | None = None) -> None:
        self._tensors.prefetch(name, member)


@dataclass(frozen=True)
class ObservedModel(Model):
    """A model that calls `show` with each weight matrix that it reads.

    It does not look for NaN and infinity in tensors for which `known_finite` returns True.
    """

    show: Callable[[View, Reals], None] = lambda view, matrix: None
    known_finite: Callable[[str], bool] = lambda name: False

    def read(self, view: View) -> Reals:
        matrix = super().read(view)
        self.show(view, matrix)
        return matrix

    def _finite(self, array: Reals, name: str) -> Reals:
        return array if self.known_finite(name) else super()._finite(array, name)


@dataclass(frozen=True)
class TensorUse:
    """A place that uses a weight matrix: the layer, the block and the block's field, such as "query"."""

    layer: int
    block: Attention | FeedForward
    field: str
    location: TensorLocation


@dataclass(frozen=True)
class TensorIndex:
    """The roles of a model's tensors, and the places that use each weight matrix."""

    roles: TensorRoles
    uses: Mapping[View, Sequence[TensorUse]]

    @classmethod
    def of(cls, model: Model) -> TensorIndex:
        uses: dict[View, list[TensorUse]] = defaultdict(list)
        for use in uses_of(model):
            uses[getattr(use.block, use.field)].append(use)
        return cls(known_tensors(model), uses)


class Observer:
    """An observer whose `model` gives notes to `take` (in any thread) while it is read, each tensor once."""

    def __init__(self, model: Model, take: Callable[[Note], None], index: TensorIndex | None = None) -> None:
        self._plain, self._take, self._index = model, take, index or TensorIndex.of(model)
        self.model = ObservedModel(
            **{
                **vars(model),
                "tensors": ObservedTensors(model.tensors, self._note_tensor, self._note_damage),
            },
            show=self._note_matrix,
            known_finite=lambda name: name in self._finite,
        )
        self._lock = Lock()
        self._seen: set[TensorKey] = set()
        self._finite: set[str] = set()  # tensors that were read whole and have only finite entries
        self._projected: dict[tuple[int, str], dict[View, Sketch]] = defaultdict(dict)
        self.seconds = 0.0  # CPU time spent on taking notes

    @contextmanager
    def timed(self) -> Iterator[None]:
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
            if member is None and not seen.not_finite:
                self._finite.add(name)
            use = self._index.roles(name, member)
            dtype = self._plain.tensors.dtype(name)
            strange = seen.not_finite or (seen.peak or 0.0) > FLOAT16
            note = TensorNote(
                name,
                member,
                array.shape,
                seen,
                None if dtype in FLOATS else decibels(array, dtype),
                mask=bool(strange and use.role == OTHER and is_mask(array)),
                noise_ratio=noise_ratio(array) if use.part == TOKENS and not seen.not_finite else None,
                alike=rows_alike(array) if use.part in (TOKENS, TABLE) and not seen.not_finite else None,
            )
        self._take(note)

    def _note_damage(self, name: str, member: int | None, error: NotFiniteError) -> None:
        shape = self._plain.tensors.shapes[name]
        seen = Scan(max(1, error.entries), None, False, 0, 0, 0, None, None, b"")
        self._take(TensorNote(name, member, shape, seen, None, False, None, None, error.tensor))

    def _note_matrix(self, view: View, matrix: Reals) -> None:
        uses = self._index.uses.get(view)
        if not uses:
            return
        with self.timed(), np.errstate(over="ignore", invalid="ignore"):
            size = rms(matrix)
            for use in uses:
                self._take(SizeNote(use.location, use.field, size))
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

    def _note_sides(self, use: TensorUse, matrix: Reals) -> None:
        cross = isinstance(use.block, Attention) and use.block.cross
        if use.field not in TOUCHING or cross or use.location.expert is not None:
            return
        self._take(SideNote(use.layer, use.field, *side_grams(use.field, matrix)))


def uses_of(model: Model) -> Iterator[TensorUse]:
    """Yield every use of a weight matrix, block by block."""
    for layer in model.layers:
        blocks: list[tuple[Attention | FeedForward | None, str | None, int | None]] = [
            (layer.attention, None, None),
            (layer.cross, "cross", None),
            (layer.feed_forward, "ffn", None),
            *((block, "ffn", expert) for expert, block in enumerate(layer.experts)),
        ]
        for block, kind, expert in blocks:
            location = TensorLocation(layer.index, layer.stack, kind, expert=expert)
            for field, view in vars(block).items() if block is not None else ():
                if block is not None and isinstance(view, View):
                    yield TensorUse(layer.index, block, field, location)


class EvidenceCollector:
    """A collector of all notes about one model: those of reading `collector.model`, or those of workers."""

    def __init__(self, model: Model) -> None:
        self._plain, self._index = model, TensorIndex.of(model)
        self._watch = Observer(model, self.take, self._index)
        self.model = self._watch.model
        self._lock = Lock()
        self._tensors: dict[TensorKey, TensorNote] = {}
        self._sketches: dict[tuple[int, str], Sketch] = {}
        self._sides: dict[int, dict[str, tuple[Float32Array | None, Float32Array | None]]] = defaultdict(dict)
        self._turned: dict[int, list[Orientation]] = {}
        self._sizes: dict[tuple[TensorLocation, str], float] = {}

    def take(self, note: Note) -> None:
        with self._lock:
            match note:
                case TensorNote():
                    self._tensors[note.name, note.member] = note
                case SizeNote():
                    self._sizes[note.location, note.field] = note.size
                case SketchNote():
                    self._sketches[note.layer, note.kind] = note.heads
                case SideNote():
                    self._take_side(note)

    def _take_side(self, note: SideNote) -> None:
        if note.layer in self._turned:  # a shared matrix is read several times
            return
        sides = self._sides[note.layer]
        sides[note.field] = note.residual, note.head
        if len(sides) == len(TOUCHING):
            self._turned[note.layer] = self._layer_orientations(note.layer)

    def _layer_orientations(self, layer: int) -> list[Orientation]:
        block = self._plain.layer(layer)
        views = {**vars(block.attention), **(vars(block.feed_forward) if block.feed_forward else {})}
        noted = self._sides.pop(layer)
        # A fixed order makes the sums the same in whatever order the notes arrived.
        sides = {field: noted[field] for field in TOUCHING if field in noted}
        named = {}
        for field in sides:
            location = self._index.roles(views[field].tensor, views[field].member).location
            named[field] = replace(location, tensor=printable(location.tensor or ""))
        return worst_orientation(sides, named)

    def evidence(self, selection: Selection) -> Evidence:
        """Return the evidence from all notes, after reading the other tensors if every kind was selected."""
        if selection.every_kind:
            self._read_remaining(selection.whole)
        with self._watch.timed():
            for layer in list(self._sides):
                self._turned[layer] = self._layer_orientations(layer)
            layers, heads = (
                tuple(find(self._plain, self._sketches)) for find in (find_similar_layers, find_similar_heads)
            )
            stored = self._tensors_with_twins()
        return Evidence(
            tuple(stored[name] for name in sorted(stored, key=str)),
            layers,
            heads,
            tuple(orientation for layer in sorted(self._turned) for orientation in self._turned[layer]),
            tuple(self._balances()),
            self._watch.seconds,
            self._plain.missing,
        )

    def _read_remaining(self, whole: bool) -> None:
        """Read the tensors that were not read yet; of a model that is not `whole`, no matrices of layers."""
        read = {name for name, _ in self._tensors}
        if not whole:
            read |= {name for (name, _), use in self._index.roles.by_tensor.items() if use.role == MAP}
        for name in self._plain.tensors.shapes:
            if name not in read:
                try:
                    self.model.tensors.read(name)
                except InputError:
                    continue  # no matrix needs it, and it is not a plain array

    def _stored(self, note: TensorNote) -> StoredTensor:
        role, location, part = self._index.roles(note.name, note.member)
        dtype = self._plain.tensors.dtype(note.name)
        return StoredTensor(
            replace(location, tensor=printable(note.damaged or location.tensor or note.name)),
            role,
            note.shape,
            dtype,
            dtype not in FLOATS,
            **{name: value for name, value in vars(note.seen).items() if name != "digest"},
            part=part,
            **{name: getattr(note, name) for name in ("decibels", "mask", "noise_ratio", "alike")},
        )

    def _tensors_with_twins(self) -> dict[TensorKey, StoredTensor]:
        """Return all stored tensors. `twin` of a weight matrix names an earlier one with the same bits."""
        stored = {name: self._stored(note) for name, note in self._tensors.items()}
        digests: dict[bytes, list[TensorKey]] = defaultdict(list)
        for name, note in self._tensors.items():
            if stored[name].role == MAP and len(note.shape) > 1 and note.damaged is None:
                digests[note.seen.digest].append(name)
        for names in digests.values():
            first, *others = sorted(names, key=str)
            for name in others:
                if self._equal(first, name):
                    stored[name] = replace(stored[name], twin=stored[first].location.tensor)
        return stored

    def _equal(self, first: TensorKey, second: TensorKey) -> bool:
        array, other = (self._plain.tensors.read(*name) for name in (first, second))
        return array.shape == other.shape and array.tobytes() == other.tobytes()

    def _balances(self) -> Iterator[Balance]:
        for use in uses_of(self._plain):
            for pair, (above, below, kind) in PAIRS.items():
                if use.field != above or _is_ratio_free(use.block, pair):
                    continue
                first, second = (self._sizes.get((use.location, field), 0.0) for field in (above, below))
                if 0 < first < np.inf and 0 < second < np.inf:
                    prefix = "cross_" if isinstance(use.block, Attention) and use.block.cross else ""
                    yield Balance(replace(use.location, kind=f"{prefix}{kind}"), pair, first / second)


def _is_ratio_free(block: Attention | FeedForward, pair: str) -> bool:
    """Return whether the ratio of this pair is arbitrary: Q/K if queries or keys are normalised."""
    scores = block.scores if isinstance(block, Attention) else None
    return pair == "Q/K" and scores is not None and (scores.query_norm or scores.key_norm) is not None
