"""Compare two opened models: first every stored tensor, then the maps that the tensors make.

A map is the matrix QK or VO of a head, or a feed-forward matrix. Threads compare tensors and blocks, and read
each of them when they need it. So neither model is in memory as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.diff.map_changes import MapChange
from attnlaw.analysis.diff.matching import TensorPair, pair_tensors
from attnlaw.analysis.diff.tensors import TensorChange, compare_tensors
from attnlaw.analysis.diff.units import ModelPair, UnitChanges, units_of
from attnlaw.checkpoints.blocks import View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import LAYER_GROUPS, MatrixLocation
from attnlaw.core.errors import InputError
from attnlaw.core.progress import Progress, no_progress
from attnlaw.numerics.threads import in_threads
from attnlaw.spectra.measure import Selection

# Float64 numbers in memory at a time: 3.6 GB, two feed-forward blocks of LLaMA-7B.
IN_FLIGHT = 45 * 10**7


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """The results of comparing two models."""

    tensors: tuple[tuple[TensorPair, TensorChange], ...]  # the paired tensors with their changes
    units: tuple[UnitChanges, ...]  # the compared blocks, in the order of the rows of `DIFF`
    layer_tensors: frozenset[str]  # names of the tensors of the base that the matrices of layers are made of

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

    Args:
        jobs: number of threads; None for one per core.
        match: whether to look for heads and neurons that are in another order.
        applied: whether to fold the norm before a map into the map. This includes the gain of the norm, and
            the mean that a LayerNorm subtracts.

    Raises:
        InputError: if the models share no tensor and no map.
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
    work = [(_elements(pair, base, model), partial(_compare_pair, pair, base, model)) for pair in joined]
    changes = in_threads(work, IN_FLIGHT, jobs, lambda done: progress(done, total))
    tensor_changes = tuple(zip(joined, changes, strict=True))
    after = replace(models, changes=tensor_changes)
    unit_work = [(unit.elements, partial(unit.run, after)) for unit in units]
    unit_changes = in_threads(unit_work, IN_FLIGHT, jobs, lambda done: progress(len(joined) + done, total))
    inside = frozenset(name for layer in base.layers for view in layer.views for name in view.tensors)
    return ModelComparison(tensor_changes, tuple(unit_changes), inside)


def _select_pairs(
    joined: list[TensorPair], base: Model, model: Model, selection: Selection
) -> list[TensorPair]:
    if selection.layers is None and set(selection.groups) >= set(LAYER_GROUPS):
        return joined

    def chosen(of: Model) -> set[str]:
        leaves = (leaf for location, leaf in of.network.leaves() if selection.includes(location))
        return {name for leaf in leaves for name in leaf.tensors}

    in_base, in_model = chosen(base), chosen(model)
    return [pair for pair in joined if pair.base in in_base or pair.model in in_model]


def _same_shape(tensor_pair: TensorPair, base: Model, model: Model) -> bool:
    if tensor_pair.views is not None:
        return tensor_pair.views[0].shape == tensor_pair.views[1].shape
    if tensor_pair.base is None or tensor_pair.model is None:
        return False
    base_shape, model_shape = base.tensors.shapes[tensor_pair.base], model.tensors.shapes[tensor_pair.model]
    return base_shape == (model_shape[::-1] if tensor_pair.transposed else model_shape)


def _elements(tensor_pair: TensorPair, base: Model, model: Model) -> int:
    """Return how many float64 numbers are in memory while a pair of tensors is compared."""
    named = zip((base, model), tensor_pair.tensors, strict=True)
    return 3 * max(prod(of.tensors.shapes[name]) for of, name in named if name is not None)


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
    """Return the part of a stored tensor that fills one role, with outputs as rows and inputs as columns."""
    matrix = stored if view.member is None else stored[view.member]
    return matrix[view.columns] if view.stored_out_in else matrix[:, view.columns].T
