"""What was noted while a model was measured, put together to the evidence that rules of findings look at.

Nothing is read for the findings' sake but what no measured map reads (norms, biases, embeddings), tensors
whose samples agree, and pairs of heads whose sketches are near: these are compared exactly. Of a layer that
is measured numbers are kept, and sketches of its heads; Gram matrices of some coordinates until it is whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from threading import Lock

import numpy as np

from attnlaw.analysis.findings.balance import PAIRS
from attnlaw.analysis.findings.duplicates import Sketch, find_similar_heads, find_similar_layers
from attnlaw.analysis.findings.evidence import Balance, Evidence, Orientation, StoredTensor, TensorLocation
from attnlaw.analysis.findings.notes import Note, SideNote, SizeNote, SketchNote, TensorNote
from attnlaw.analysis.findings.observer import Observer, TensorIndex, TensorKey, uses_of
from attnlaw.analysis.findings.orientation import TOUCHING, Float32Array, worst_orientation
from attnlaw.analysis.findings.roles import MAP
from attnlaw.analysis.findings.scan import FLOATS
from attnlaw.checkpoints.blocks import Attention, FeedForward
from attnlaw.checkpoints.model import Model
from attnlaw.core.errors import InputError, printable


class EvidenceCollector:
    """The notes of one model: measure `model`, or `take` what was noted elsewhere; then ask for `evidence`.

    A note that is taken again changes nothing.
    """

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
        """Keep a note."""
        with self._lock:
            match note:
                case TensorNote():
                    self._tensors[note.name, note.member] = note
                case SizeNote():
                    self._sizes[note.spot, note.field] = note.size
                case SketchNote():
                    self._sketches[note.layer, note.kind] = note.heads
                case SideNote():
                    self._take_side(note)

    def _take_side(self, note: SideNote) -> None:
        if note.layer in self._turned:  # a map that several kinds or layers share is read again
            return
        sides = self._sides[note.layer]
        sides[note.field] = note.residual, note.head
        if len(sides) == len(TOUCHING):
            self._turned[note.layer] = self._layer_orientations(note.layer)

    def _layer_orientations(self, layer: int) -> list[Orientation]:
        block = self._plain.layer(layer)
        views = {**vars(block.attention), **(vars(block.feed_forward) if block.feed_forward else {})}
        noted = self._sides.pop(layer)
        sides = {field: noted[field] for field in TOUCHING if field in noted}  # sums in one order
        spots = {field: self._index.roles(views[field].tensor, views[field].member)[1] for field in sides}
        named = {field: replace(spot, tensor=printable(spot.tensor or "")) for field, spot in spots.items()}
        return worst_orientation(sides, named)

    def evidence(self, whole: bool) -> Evidence:
        """What was noted; with `whole` all other tensors of the file are looked at, too."""
        if whole:
            self._read_remaining()
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
        )

    def _read_remaining(self) -> None:
        read = {name for name, _ in self._tensors}
        for name in self._plain.tensors.shapes:
            if name not in read:
                try:
                    self.model.tensors.read(name)
                except InputError:
                    continue  # no map needs it, and it is no plain array

    def _stored(self, note: TensorNote) -> StoredTensor:
        role, spot = self._index.roles(note.name, note.member)
        dtype, seen = self._plain.tensors.dtype(note.name), note.seen
        return StoredTensor(
            replace(spot, tensor=printable(spot.tensor or note.name)),
            role,
            note.shape,
            dtype,
            dtype not in FLOATS,
            seen.not_finite,
            seen.peak,
            seen.constant,
            seen.zero_rows,
            seen.zero_columns,
            seen.distinct,
            note.decibels,
            mask=note.mask,
        )

    def _tensors_with_twins(self) -> dict[TensorKey, StoredTensor]:
        """All tensors; those whose samples of bits agree are compared."""
        stored = {name: self._stored(note) for name, note in self._tensors.items()}
        digests: dict[bytes, list[TensorKey]] = defaultdict(list)
        for name, note in self._tensors.items():
            if stored[name].role == MAP and len(note.shape) > 1:
                digests[note.seen.digest].append(name)
        for names in digests.values():
            first, *others = sorted(names, key=str)
            for name in others:
                if self._equal(first, name):
                    stored[name] = replace(stored[name], twin=stored[first].spot.tensor)
        return stored

    def _equal(self, first: TensorKey, second: TensorKey) -> bool:
        array, other = (self._plain.tensors.read(*name) for name in (first, second))
        return array.shape == other.shape and array.tobytes() == other.tobytes()

    def _balances(self) -> Iterator[Balance]:
        for use in uses_of(self._plain):
            for pair, (above, below, kind) in PAIRS.items():
                if use.field != above or _is_ratio_free(use.block, pair):
                    continue
                first, second = (self._sizes.get((use.spot, field), 0.0) for field in (above, below))
                if 0 < first < np.inf and 0 < second < np.inf:
                    prefix = "cross_" if isinstance(use.block, Attention) and use.block.cross else ""
                    yield Balance(replace(use.spot, kind=f"{prefix}{kind}"), pair, first / second)


def _is_ratio_free(block: Attention | FeedForward, pair: str) -> bool:
    """Whether norms of queries or keys free a ratio."""
    scores = block.scores if isinstance(block, Attention) else None
    return pair == "Q/K" and scores is not None and (scores.query_norm or scores.key_norm) is not None
