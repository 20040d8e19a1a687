"""The units in which two models are compared: an attention block, a feed-forward block, or one matrix.

A unit reads the tensors that belong together, and compares the maps that they make. Maps are the matrices QK
and VO of heads, and feed-forward matrices. If all tensors of a map are identical, they are not read again. If
one of them is not finite, the map has no numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from attnlaw.analysis.diff.coded import without_rank
from attnlaw.analysis.diff.map_changes import MapChange, compare_heads, compare_matrices, unchanged_map
from attnlaw.analysis.diff.matching import (
    TensorPair,
    heads_in_place,
    is_folded,
    match_heads,
    match_neurons,
    same_head_cosines,
)
from attnlaw.analysis.diff.rounding import Steps, edge
from attnlaw.analysis.diff.tensors import TensorChange
from attnlaw.analysis.diff.update import HeadFactors
from attnlaw.checkpoints.blocks import Attention, FeedForward, Norm, Product, StoredLayer, View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.spectra.measure import Selection

NO_UPDATE_VERDICTS = ("identical", "coded", "rounded", "below-floor")
# A change of this many roundings cannot be mistaken for rounding.
CLEARLY_LARGER = 4.0


@dataclass(frozen=True, eq=False)
class UnitChanges:
    """The changes of the maps of one unit, with flags for the verdict on the model."""

    maps: tuple[tuple[MatrixLocation, MapChange], ...]
    permuted: bool = False  # heads or neurons are in another order
    regauged: bool = False  # the factors differ, but the maps that they make do not
    folded: bool | None = None  # whether a gain was folded into the query; None if that cannot be said


@dataclass(frozen=True, eq=False)
class ModelPair:
    """The two models that are compared, and the changes of their tensors."""

    base: Model
    model: Model
    applied: bool = False  # fold the norm before a map into it
    changes: tuple[tuple[TensorPair, TensorChange], ...] = ()

    @cached_property
    def _by_name(self) -> Mapping[str, list[tuple[TensorPair, TensorChange]]]:
        changes = defaultdict[str, list[tuple[TensorPair, TensorChange]]](list)
        for tensor_pair, change in self.changes:
            if tensor_pair.base is not None and tensor_pair.model is not None:
                changes[tensor_pair.base].append((tensor_pair, change))
        return changes

    def _changes(self, *views: View) -> list[list[TensorChange]]:
        """Return for each view, and for those before it, the changes of what it reads of the base."""
        return [
            [
                change
                for pair, change in self._by_name.get(part.tensor, [])
                if pair.views is None or pair.views[0] == part
            ]
            for view in views
            for part in _chain(view)
        ]

    def verdicts(self, *views: View) -> set[str]:
        """Return the verdicts on the tensors that some views of the base read."""
        return _verdicts(self._changes(*views))

    def has_large_changes(self, *views: View) -> bool:
        """Return whether a tensor changed far above the rounding of its file, in many directions."""
        changes = [change for changes in self._changes(*views) for change in changes]
        if _verdicts([changes]) & {"non-finite", "low-rank", "partly-hidden", "sparse"}:
            return False
        return any(
            (change.size or 0.0) > CLEARLY_LARGER * (change.rounding_size or 0.0)
            for change in changes
            if change.verdict not in NO_UPDATE_VERDICTS
        )

    def norm_verdicts(self, *norms: Norm | None) -> set[str]:
        """Return the verdicts on the gains of the norms that are folded into maps."""
        gains = [norm.gain for norm in norms if self.applied and norm is not None and norm.gain is not None]
        return _verdicts([change for _, change in self._by_name.get(name, [])] for name in gains)

    @cached_property
    def file_steps(self) -> Model:
        """The model with rounding steps as weights, as large as the noise of all merges of an update."""
        changes = {pair.model: change for pair, change in self.changes if pair.model is not None}
        formats = {name: change.grid for name, change in changes.items() if change.grid is not None}
        noise = {name: max(1.0, change.roundings or 1.0) ** 0.5 for name, change in changes.items()}
        return replace(self.model, tensors=Steps(self.model.tensors, formats, noise))

    @cached_property
    def format_steps(self) -> Model:
        """The base with rounding steps: of the format that the model rounds to, or else of the file."""
        whole = [(pair.base, change.format) for pair, change in self.changes if pair.views is None]
        formats = {name: form for name, form in whole if name is not None and form is not None}
        return replace(self.base, tensors=Steps(self.base.tensors, formats))

    def was_rounded(self, view: View) -> bool:
        """Return whether the tensor that a view reads was rounded as a whole."""
        return any(change.format for change in self._whole_changes(view))

    def whole_tensor_change(self, base_view: View, model_view: View) -> TensorChange | None:
        """Return the change of the tensor that two views read, or None if a view is only part of it."""
        pairs = (self.base, base_view), (self.model, model_view)
        sizes = [prod(of.tensors.shapes[view.tensor]) for of, view in pairs]
        changes = self._whole_changes(base_view)
        return changes[0] if changes and sizes == [base_view.elements, model_view.elements] else None

    def _whole_changes(self, view: View) -> list[TensorChange]:
        return [change for pair, change in self._by_name.get(view.tensor, []) if pair.views is None]


def _verdicts(changes_by_tensor: Iterable[list[TensorChange]]) -> set[str]:
    """Return the verdicts on tensors. A tensor without a change was removed."""
    return {
        verdict
        for changes in changes_by_tensor
        for verdict in ([change.verdict for change in changes] or ["removed"])
    }


def _chain(view: View) -> list[View]:
    return [view, *(_chain(view.after) if view.after else [])]


def gain_of(models: ModelPair, model: Model, norm: Norm | None) -> Reals:
    """Return the factors by which a folded norm multiplies rounding steps, or 1 if no norm is folded."""
    if not models.applied or norm is None:
        return np.ones((1, 1))
    return np.abs(model.gain(norm))[:, None]


def unknown_norm(model: Model) -> InputError:
    return InputError(
        f"{model.tensors.source}: attnlaw does not know which norms come before its matrices; leave out "
        "--applied to compare the matrices as they are stored"
    )


@dataclass(frozen=True, eq=False)
class AttentionUnit:
    """An attention block, whose matrices QK and VO are compared head by head."""

    layer: StoredLayer
    base: Attention
    model: Attention
    kinds: tuple[str, ...]
    match: bool

    @property
    def elements(self) -> int:
        return 3 * sum(view.elements for view in self.base.views("qk") + self.base.views("vo"))

    def run(self, models: ModelPair) -> UnitChanges:
        heads = min(self.base.heads, self.model.heads)
        views = [view for kind in self.kinds for view in self.base.views(kind)]
        verdicts = models.verdicts(*views) | self._norm_verdicts(models)
        look = self.match and verdicts - {"identical"} and "non-finite" not in verdicts
        order = self._head_order(models) if look else None
        chosen = order or list(range(heads)) + [-1] * (self.base.heads - heads)
        maps = [pair for kind in self.kinds for pair in self._compare_maps(models, kind, chosen)]
        ranks = [map_change.numbers.get("rank") for _, map_change in maps]
        regauged = order is None and models.has_large_changes(*views) and not any(ranks)
        folded = self._is_gain_folded(models)
        return UnitChanges(tuple(maps), order is not None, regauged, folded)

    def _head_order(self, models: ModelPair) -> list[int] | None:
        """Return for each base head its head in the model; None if the order is the same."""
        near = heads_in_place(same_head_cosines(*self._read_factors(models, kind)) for kind in self.kinds)
        if self.base.heads == self.model.heads and near:
            return None
        factors = (self._read_factors(models, kind) for kind in self.kinds)
        base_factors, model_factors = zip(*factors, strict=True)
        groups = self.base.kv_heads if self.base.kv_heads < self.base.heads else 0
        return match_heads(base_factors, model_factors, groups)

    def _compare_maps(
        self, models: ModelPair, kind: str, chosen: list[int]
    ) -> Iterator[tuple[MatrixLocation, MapChange]]:
        verdicts = models.verdicts(*self.base.views(kind)) | self._norm_verdicts(models)
        index, stack = self.layer.index, self.layer.stack
        locations = [MatrixLocation(index, kind, stack, head) for head in range(len(chosen))]
        product = product_of(self.base, kind)
        shape, d = product.shape, product.inner
        if "non-finite" in verdicts or verdicts == {"identical"}:
            empty = MapChange({"rows": shape[0], "cols": shape[1], "inner": d})
            for location, there in zip(locations, chosen, strict=True):
                if there >= 0:
                    yield location, empty if "non-finite" in verdicts else unchanged_map(shape, d, there)
            return
        before, after = self._read_factors(models, kind)
        steps: list[HeadFactors | None] = [None] * len(after)
        rounds: list[tuple[Reals | None, Reals | None]] = [(None, None)] * len(before)
        if not (self.base.latent or self.model.latent):
            stored = self.model.factors(models.file_steps, kind)
            steps = [*_scale_steps(models, self.model, models.model, kind, stored)]
            rounds = self._rounding_steps(models, kind)
        for location, there, factors, grid in zip(locations, chosen, before, rounds, strict=True):
            if there >= 0:
                map_change = compare_heads(factors, after[there], steps[there], grid)
                map_change = without_rank(map_change) if "coded" in verdicts else map_change
                yield location, replace(map_change, numbers={**map_change.numbers, "matched_head": there})

    def _rounding_steps(self, models: ModelPair, kind: str) -> list[tuple[Reals | None, Reals | None]]:
        """Return for each head the rounding steps of both factors; None if a factor was not rounded."""
        first, second = (models.was_rounded(view) for view in self.base.views(kind)[:2])
        if not (first or second):
            return [(None, None)] * self.base.heads
        steps = self.base.factors(models.format_steps, kind)
        factors = _scale_steps(models, self.base, models.base, kind, steps)
        return [(left if first else None, other if second else None) for left, other in factors]

    def _read_factors(self, models: ModelPair, kind: str) -> tuple[list[HeadFactors], list[HeadFactors]]:
        base_factors = _read_factors(models, self.base, models.base, kind)
        return base_factors, _read_factors(models, self.model, models.model, kind)

    def _norm_verdicts(self, models: ModelPair) -> set[str]:
        return models.norm_verdicts(*(norm for kind in self.kinds for norm in self.base.norms(kind)))

    def _is_gain_folded(self, models: ModelPair) -> bool | None:
        """Return whether a gain was folded into the query; None if that cannot be said."""
        query = self.base.query
        verdicts = models.verdicts(query)
        if verdicts & {*NO_UPDATE_VERDICTS, "non-finite", "removed"}:
            return None
        if verdicts != {"rescaled"}:
            return False
        other = self.model.query
        if query.shape != other.shape or other.after is not None:
            return None
        rounding = float(np.sqrt(np.sum(models.file_steps.read(other) ** 2) / 12))
        return is_folded(models.base.read(query), models.model.read(other), rounding)


def _read_factors(models: ModelPair, block: Attention, model: Model, kind: str) -> list[HeadFactors]:
    """Return the factors of every head. If `models.applied`, the norms before them are folded in."""
    if not models.applied:
        return list(block.factors(model, kind))
    pairs = [block.applied(model, kind, *pair) for pair in block.factors(model, kind)]
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs):
        raise unknown_norm(model)
    return known


def _scale_steps(
    models: ModelPair, block: Attention, model: Model, kind: str, steps: Iterable[HeadFactors]
) -> Iterator[HeadFactors]:
    left, right = (gain_of(models, model, norm) for norm in block.norms(kind))
    for first, second in steps:
        yield left * first, (right * second.T).T


def product_of(block: Attention, kind: str) -> Product:
    heads = block.products()
    return (heads.qk if KINDS[kind].scores else heads.vo)[0]


Norms = tuple[Norm | None, Norm | None]
FEED_FORWARD = {"inner": "ffn_in", "gate": "ffn_gate", "outer": "ffn_out"}


@dataclass(frozen=True, eq=False)
class _FeedForwardUnit:
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
        verdicts = models.verdicts(*(base_view for base_view, _ in pairs.values()))
        changed = verdicts - {*NO_UPDATE_VERDICTS} and "non-finite" not in verdicts
        order = None
        if self.match and "inner" in self.parts and changed:
            order = match_neurons(models.base.read(self.base.inner), models.model.read(self.model.inner))
        maps = []
        for part, views in pairs.items():
            norms, along = (self.base.norm, self.model.norm), [slice(None), order]
            if part == "outer":
                norms, along = (self.base.outer_norm, self.model.outer_norm), [order, slice(None)]
            place = MatrixLocation(self.layer.index, FEED_FORWARD[part], self.layer.stack, expert=self.expert)
            maps.append(
                (place, _matrix_change(models, *views, norms, None if order is None else tuple(along)))
            )
        return UnitChanges(tuple(maps), order is not None)


@dataclass(frozen=True, eq=False)
class _MatrixUnit:
    location: MatrixLocation
    base: View
    model: View
    norms: Norms

    @property
    def elements(self) -> int:
        return 5 * self.base.elements

    def run(self, models: ModelPair) -> UnitChanges:
        map_change = _matrix_change(models, self.base, self.model, self.norms, None)
        return UnitChanges(((self.location, map_change),))


def _matrix_change(
    models: ModelPair, base_view: View, model_view: View, norms: Norms, neuron_order: Any
) -> MapChange:
    verdicts = models.verdicts(base_view) | models.norm_verdicts(norms[0])
    if "non-finite" in verdicts:
        return MapChange({"rows": base_view.shape[0], "cols": base_view.shape[1]})
    if verdicts == {"identical"} and neuron_order is None:
        return unchanged_map(base_view.shape, None)
    before, after = models.base.read(base_view), models.model.read(model_view)
    same_maps = neuron_order is None and not models.applied
    known = models.whole_tensor_change(base_view, model_view) if same_maps else None
    rounded = models.format_steps.read(base_view) if models.was_rounded(base_view) else None
    if models.applied:
        if norms[0] is None or norms[1] is None:
            raise unknown_norm(models.base if norms[0] is None else models.model)
        before, after = models.base.applied(norms[0], before), models.model.applied(norms[1], after)
        rounded = None if rounded is None else rounded * gain_of(models, models.base, norms[0])
    if neuron_order is not None:
        after = after[neuron_order]
    steps = models.file_steps.read(model_view) * gain_of(models, models.model, norms[1])
    values, rank = (None, None) if known is None else (known.values, known.rank)
    map_change = compare_matrices(before, after, edge(steps), rounded, values, rank)
    return without_rank(map_change) if "coded" in verdicts else map_change


Unit = AttentionUnit | _FeedForwardUnit | _MatrixUnit


def units_of(models: ModelPair, selection: Selection, match: bool) -> Iterator[Unit]:
    """Yield the selected units that both models have in the same shape, in the order of the table `DIFF`."""
    model_layers = {(layer.stack, layer.index): layer for layer in models.model.layers}
    for layer in models.base.layers:
        model_layer = model_layers.get((layer.stack, layer.index))
        if model_layer is not None:
            yield from _layer_units(layer, model_layer, selection, match)
    beside = dict(models.model.network.outside_layers)
    for location, product in models.base.network.outside_layers:
        there = beside.get(location)
        if selection.includes(location) and there is not None and product.shape == there.shape:
            yield _MatrixUnit(location, product.views[0], there.views[0], (product.norm, there.norm))


def _layer_units(layer: StoredLayer, other: StoredLayer, selection: Selection, match: bool) -> Iterator[Unit]:
    def taken(kind: str) -> bool:
        return selection.includes(MatrixLocation(layer.index, kind, layer.stack))

    for base_attention, model_attention, prefix in (
        (layer.attention, other.attention, ""),
        (layer.cross, other.cross, "cross_"),
    ):
        if base_attention is not None and model_attention is not None:
            kinds = tuple(
                f"{prefix}{kind}"
                for kind in ("qk", "vo")
                if taken(f"{prefix}{kind}")
                and product_of(base_attention, kind).shape == product_of(model_attention, kind).shape
            )
            if kinds:
                yield AttentionUnit(layer, base_attention, model_attention, kinds, match)
    experts = enumerate(zip(layer.experts, other.experts, strict=False))
    blocks: list[tuple[int | None, FeedForward | None, FeedForward | None]] = [
        (None, layer.feed_forward, other.feed_forward),
        *((number, *pair) for number, pair in experts),
    ]
    for expert, *pair in blocks:
        base_block, model_block = pair
        if base_block is not None and model_block is not None:
            wanted = [part for part, kind in FEED_FORWARD.items() if taken(kind)]
            views = {part: [getattr(block, part) for block in pair] for part in wanted}
            parts = tuple(
                part for part, both in views.items() if None not in both and both[0].shape == both[1].shape
            )
            if parts:
                yield _FeedForwardUnit(layer, expert, base_block, model_block, parts, match)
