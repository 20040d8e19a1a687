"""Compare two opened models: first every stored tensor, then the maps that the tensors make.

A map is the matrix QK or VO of a head, or a feed-forward matrix. Threads compare tensors and blocks, and read
each of them when they need it. So neither model is in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from attnlaw.analysis.diff.coded import coded_change
from attnlaw.analysis.diff.map_changes import MapChange
from attnlaw.analysis.diff.matching import TensorPair, layer_tensors, not_weights, pair_tensors
from attnlaw.analysis.diff.rearranged import (
    Compared,
    Rearrangement,
    RoleIndex,
    TensorSample,
    find_rearranged,
    first_layers,
    take_samples,
)
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

    tensors: tuple[tuple[TensorPair, TensorChange], ...]
    pairs: tuple[TensorPair, ...]  # fused tensors are a single pair here
    units: tuple[UnitChanges, ...]  # the compared blocks, in the order of the rows of `DIFF`
    layer_tensors: frozenset[str]  # names of the tensors in the matrices of layers
    rearrangement: Rearrangement
    left_out: tuple[str, ...] = ()  # names of the tensors that were not selected
    not_weights: tuple[str, ...] = ()  # names of indices, masks and counters
    # The shapes of each pair in the base (if it has the tensor) and in the model, by its name.
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    model_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    first_layers: Mapping[str | None, int] = field(default_factory=dict)  # of each stack
    embeddings: frozenset[str] = frozenset()  # names of the tensors of embedding and unembedding

    def kind_of(self, pair: TensorPair) -> str:
        """Return the class of a tensor: matrix (of a layer), embedding, vector, or tensor (any other)."""
        if (pair.base or pair.model) in self.layer_tensors:
            return "matrix"
        if (pair.base or pair.model) in self.embeddings:
            return "embedding"
        return "vector" if sum(side > 1 for side in self.shapes.get(pair.name, (2, 2))) < 2 else "tensor"

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

    If `match`, look for heads and neurons in another order. If `applied`, fold the gain of the preceding norm
    layer into each map.
    """
    every = pair_tensors(base, model)
    joined = _select_pairs(every, base, model, selection)
    models = ModelPair(base, model, applied)
    units = list(units_of(models, selection, match))
    if not units and not any(_same_shape(tensor_pair, base, model) for tensor_pair in joined):
        raise InputError(
            f"{model.tensors.source}: has no tensor in common with {base.tensors.source}: "
            "names, shapes and layers all differ; give two checkpoints of the same architecture"
        )
    total = len(joined) + len(units)
    index = RoleIndex(base, model)
    work = [(_elements(pair, base, model), partial(_compare_pair, pair, index)) for pair in joined]
    results = in_threads(work, IN_FLIGHT, jobs, lambda done: progress(done, total))
    compared = [(pair, *result) for pair, result in zip(joined, results, strict=True)]
    if not _norms_changed(compared):
        # AWQ divides the norm before by the factors of the columns. Here nothing makes up for them.
        compared = [
            (pair, _compare_pair(pair, index, columns=False)[0], samples)
            if change.verdict == "coded" and change.along == "columns"
            else (pair, change, samples)
            for pair, change, samples in compared
        ]
    rearrangement = find_rearranged(base, model, compared)
    after = replace(models, changes=tuple(rearrangement.changes))
    unit_work = [(unit.elements, partial(unit.run, after)) for unit in units]
    unit_changes = in_threads(unit_work, IN_FLIGHT, jobs, lambda done: progress(len(joined) + done, total))
    shapes = {pair.name: samples[0].shape or samples[0].model_shape for pair, _, samples in compared}
    selected = {pair.name for pair in joined}
    return ModelComparison(
        tuple(rearrangement.changes),
        tuple(joined),
        tuple(unit_changes),
        _names(base, model, joined, lambda of: (view for layer in of.layers for view in layer.views)),
        rearrangement,
        tuple(pair.name for pair in every if pair.name not in selected),
        tuple(not_weights(base, model)),
        shapes,
        {pair.name: samples[0].model_shape for pair, _, samples in compared},
        first_layers(base),
        _names(base, model, joined, lambda of: (of.embedding_view, of.unembedding_view)),
    )


def _names(
    base: Model, model: Model, pairs: Sequence[TensorPair], views: Callable[[Model], Iterable[View | None]]
) -> frozenset[str]:
    in_base, in_model = (
        {name for view in views(of) if view is not None for name in view.tensors} for of in (base, model)
    )
    return frozenset(in_base | {pair.model for pair in pairs if not pair.base and pair.model in in_model})


def _select_pairs(
    joined: list[TensorPair], base: Model, model: Model, selection: Selection
) -> list[TensorPair]:
    if selection.layers is None and set(selection.groups) >= set(LAYER_GROUPS):
        return joined

    def chosen(of: Model) -> set[str]:
        if selection.layers is not None and set(selection.groups) >= set(LAYER_GROUPS):
            return layer_tensors(of, selection.layers)
        leaves = [leaf for location, leaf in of.network.leaves() if selection.includes(location)]
        biases = {view.bias for leaf in leaves for view in leaf.views if view.bias is not None}
        return {name for leaf in leaves for name in leaf.tensors} | biases

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
    return 5 * max(prod(of.tensors.shapes[name]) for of, name in named if name is not None)


def _norms_changed(compared: Sequence[Compared]) -> bool:
    """Return whether any vector of the model differs from the base by more than rounding."""
    return any(
        sum(side > 1 for side in samples[0].model_shape) < 2
        and change.verdict not in ("identical", "rounded", "below-floor")
        for _, change, samples in compared
    )


def _compare_pair(
    pair: TensorPair, index: RoleIndex, columns: bool = True
) -> tuple[TensorChange, list[TensorSample]]:
    stored = pair.read(index.base, index.model)
    samples = take_samples(index, pair, stored)
    before, after = pair.orient(stored)
    if before is None:
        return TensorChange("added"), samples
    if after is None:
        return TensorChange("removed"), samples
    dtype, base_dtype = index.model.tensors.dtype(str(pair.model)), index.base.tensors.dtype(str(pair.base))
    change = coded_change(before, after, dtype, base_dtype, columns) or compare_tensors(before, after, dtype)
    return change, samples
