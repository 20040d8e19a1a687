"""Two opened models, unit by unit: first every stored tensor, then the maps that these make.

A unit is what is read together: a tensor of both models, an attention block, a feed-forward block. Neither
model is ever held whole. Maps whose tensors are all identical are not read again, and those with a tensor
that is not finite have no numbers.

The maps of two opened models, unit by unit: an attention block, a feed-forward block, a matrix.

Maps whose tensors are all identical are not read again, and those with a tensor that is not finite have no
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.diff.attention import AttentionUnit, product_of
from attnlaw.analysis.diff.map_changes import MapChange, compare_matrices, unchanged_map
from attnlaw.analysis.diff.matching import match_neurons
from attnlaw.analysis.diff.pair import NO_UPDATE_VERDICTS, ModelPair, UnitChanges, gain_of, unknown_norm
from attnlaw.analysis.diff.rounding import edge
from attnlaw.analysis.diff.tensors import TensorChange, TensorPair, compare_tensors, pair_tensors
from attnlaw.checkpoints.blocks import FeedForward, StoredLayer, View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import LAYER_GROUPS, MatrixLocation
from attnlaw.checkpoints.norms import Norm
from attnlaw.core.errors import InputError
from attnlaw.core.progress import Progress, no_progress
from attnlaw.numerics.threads import in_threads
from attnlaw.spectra.measure import Selection

Norms = tuple[Norm | None, Norm | None]
FEED_FORWARD = {"inner": "ffn_in", "gate": "ffn_gate", "outer": "ffn_out"}


@dataclass(frozen=True, eq=False)
class _FeedForwardUnit:
    """The matrices of one feed-forward block, or of one expert."""

    layer: StoredLayer
    expert: int | None
    base: FeedForward
    model: FeedForward
    parts: tuple[str, ...]
    match: bool

    @property
    def elements(self) -> int:
        return 5 * self.base.inner.elements

    def run(self, models: ModelPair) -> UnitChanges:
        pairs = {part: (getattr(self.base, part), getattr(self.model, part)) for part in self.parts}
        verdicts = models.verdicts(*(mine for mine, _ in pairs.values()))
        order = None
        if (
            self.match
            and "inner" in self.parts
            and not verdicts & {"non-finite"}
            and verdicts - {*NO_UPDATE_VERDICTS}
        ):
            order = match_neurons(models.base.read(self.base.inner), models.model.read(self.model.inner))
        maps = []
        for part, (mine, theirs) in pairs.items():
            location = MatrixLocation(
                self.layer.index, FEED_FORWARD[part], self.layer.stack, expert=self.expert
            )
            along = (
                None if order is None else (order, slice(None)) if part == "outer" else (slice(None), order)
            )
            read = self.base.norm, self.model.norm
            norms = (self.base.outer_norm, self.model.outer_norm) if part == "outer" else read
            maps.append((location, _matrix_change(models, mine, theirs, norms, along)))
        return UnitChanges(tuple(maps), order is not None)


@dataclass(frozen=True, eq=False)
class _MatrixUnit:
    """A matrix beside the layers."""

    location: MatrixLocation
    base: View
    model: View
    norms: Norms

    @property
    def elements(self) -> int:
        return 5 * self.base.elements

    def run(self, models: ModelPair) -> UnitChanges:
        return UnitChanges(
            ((self.location, _matrix_change(models, self.base, self.model, self.norms, None)),)
        )


def _matrix_change(models: ModelPair, mine: View, theirs: View, norms: Norms, neuron_order: Any) -> MapChange:
    verdicts = models.verdicts(mine) | models.norm_verdicts(norms[0])
    if "non-finite" in verdicts:
        return MapChange({"rows": mine.shape[0], "cols": mine.shape[1]})
    if verdicts == {"identical"} and neuron_order is None:
        return unchanged_map(mine.shape, None)
    before, after = models.base.read(mine), models.model.read(theirs)
    known = None if neuron_order is not None or models.applied else models.whole_tensor_change(mine, theirs)
    rounded = models.format_steps.read(mine) if models.was_rounded(mine) else None
    if models.applied:
        if norms[0] is None or norms[1] is None:
            raise unknown_norm(models.base if norms[0] is None else models.model)
        before, after = models.base.applied(norms[0], before), models.model.applied(norms[1], after)
        rounded = None if rounded is None else rounded * gain_of(models, models.base, norms[0])
    if neuron_order is not None:
        after = after[neuron_order]
    if known is None or known.floor is None:
        steps = models.file_steps.read(theirs) * gain_of(models, models.model, norms[1])
        return compare_matrices(before, after, edge(steps), rounded)
    return compare_matrices(before, after, known.floor, rounded, known.values)


Unit = AttentionUnit | _FeedForwardUnit | _MatrixUnit


def units_of(models: ModelPair, selection: Selection, match: bool) -> Iterator[Unit]:
    """The selected maps that both models have in one shape, in the order of rows."""
    theirs = {(layer.stack, layer.index): layer for layer in models.model.layers}
    for layer in models.base.layers:
        other = theirs.get((layer.stack, layer.index))
        if other is not None:
            yield from _layer_units(layer, other, selection, match)
    beside = dict(models.model.network.outside_layers)
    for location, product in models.base.network.outside_layers:
        there = beside.get(location)
        if selection.includes(location) and there is not None and product.shape == there.shape:
            norms = product.norm, there.norm
            yield _MatrixUnit(location, product.views[0], there.views[0], norms)


def _layer_units(layer: StoredLayer, other: StoredLayer, selection: Selection, match: bool) -> Iterator[Unit]:
    def taken(kind: str) -> bool:
        return selection.includes(MatrixLocation(layer.index, kind, layer.stack))

    for mine, theirs, prefix in (
        (layer.attention, other.attention, ""),
        (layer.cross, other.cross, "cross_"),
    ):
        if mine is not None and theirs is not None:
            kinds = [
                f"{prefix}{kind}"
                for kind in ("qk", "vo")
                if taken(f"{prefix}{kind}") and product_of(mine, kind).shape == product_of(theirs, kind).shape
            ]
            if kinds:
                yield AttentionUnit(layer, mine, theirs, tuple(kinds), match)
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
                if taken(kind) and _same_part_shape(mine_ff, theirs_ff, part)
            ]
            if parts:
                yield _FeedForwardUnit(layer, expert, mine_ff, theirs_ff, tuple(parts), match)


def _same_part_shape(mine: FeedForward, theirs: FeedForward, part: str) -> bool:
    first, second = getattr(mine, part), getattr(theirs, part)
    return first is not None and second is not None and first.shape == second.shape


# Elements of float64 matrices in flight at a time: 3.6 GB, two feed-forward blocks of LLaMA-7B.
IN_FLIGHT = 45 * 10**7


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """Everything of two models: tensors with their changes, units of maps in the order of rows.

    `layer_tensors` names the base's tensors that maps of layers are made of.
    """

    tensors: tuple[tuple[TensorPair, TensorChange], ...]
    units: tuple[UnitChanges, ...]
    layer_tensors: frozenset[str]

    @property
    def maps(self) -> list[tuple[MatrixLocation, MapChange]]:
        return [pair for unit in self.units for pair in unit.maps]


def compare(
    base: Model,
    model: Model,
    selection: Selection,
    jobs: int | None = None,
    match: bool = True,
    applied: bool = False,
    progress: Progress = no_progress,
) -> ModelComparison:
    """Compare every stored tensor and every selected map that both models have.

    `applied` folds the norm before a map into it: its gain, and the mean that a LayerNorm takes off.
    """
    joined = _select_pairs(pair_tensors(base, model), base, model, selection)
    models = ModelPair(base, model, applied)
    units = list(units_of(models, selection, match))
    if not units and not any(_same_shape(tensor_pair, base, model) for tensor_pair in joined):
        raise InputError(
            f"{model.tensors.source}: shares no tensor and no map with {base.tensors.source}; "
            "give two checkpoints of one architecture"
        )
    total = len(joined) + len(units)
    work = [
        (_elements(tensor_pair, base, model), partial(_compare_pair, tensor_pair, base, model))
        for tensor_pair in joined
    ]
    changes = in_threads(work, IN_FLIGHT, jobs, lambda done: progress(done, total))
    tensor_changes = tuple(zip(joined, changes, strict=True))
    after = replace(models, changes=tensor_changes)
    unit_changes = in_threads(
        [(unit.elements, partial(unit.run, after)) for unit in units],
        IN_FLIGHT,
        jobs,
        lambda done: progress(len(joined) + done, total),
    )
    inside = frozenset(name for layer in base.layers for view in layer.views for name in view.tensors)
    return ModelComparison(tensor_changes, tuple(unit_changes), inside)


def _select_pairs(
    joined: list[TensorPair], base: Model, model: Model, selection: Selection
) -> list[TensorPair]:
    """All tensors, or those of the selected maps where some are left out."""
    if selection.layers is None and set(selection.groups) >= set(LAYER_GROUPS):
        return joined
    chosen = [
        {
            name
            for location, leaf in checkpoint.network.leaves()
            if selection.includes(location)
            for name in leaf.tensors
        }
        for checkpoint in (base, model)
    ]
    return [
        tensor_pair
        for tensor_pair in joined
        if tensor_pair.base in chosen[0] or tensor_pair.model in chosen[1]
    ]


def _same_shape(tensor_pair: TensorPair, base: Model, model: Model) -> bool:
    if tensor_pair.views is not None:
        return tensor_pair.views[0].shape == tensor_pair.views[1].shape
    if tensor_pair.base is None or tensor_pair.model is None:
        return False
    mine, theirs = base.tensors.shapes[tensor_pair.base], model.tensors.shapes[tensor_pair.model]
    return mine == (theirs[::-1] if tensor_pair.transposed else theirs)


def _elements(tensor_pair: TensorPair, base: Model, model: Model) -> int:
    """What comparing a tensor holds, in float64: both as stored, their difference, its Gram matrix."""
    shapes = [
        of.tensors.shapes[name]
        for of, name in zip((base, model), tensor_pair.tensors, strict=True)
        if name is not None
    ]
    return 3 * max(prod(shape) for shape in shapes)


def _compare_pair(tensor_pair: TensorPair, base: Model, model: Model) -> TensorChange:
    if tensor_pair.base is None:
        return TensorChange("added")
    if tensor_pair.model is None:
        return TensorChange("removed")
    before, after = base.tensors.read(tensor_pair.base), model.tensors.read(tensor_pair.model)
    if tensor_pair.views is not None:
        before, after = (_part(*pair) for pair in zip((before, after), tensor_pair.views, strict=True))
    elif tensor_pair.transposed:
        after = np.swapaxes(after, -1, -2)
    return compare_tensors(before, after, model.tensors.dtype(tensor_pair.model))


def _part(stored: NDArray[Any], view: View) -> NDArray[Any]:
    """The role's own part of a tensor that holds several, (out, in)."""
    matrix = stored if view.member is None else stored[view.member]
    return matrix[view.columns] if view.stored_out_in else matrix[:, view.columns].T
