"""The heads of one attention block in two models: which became which, and how QK and VO moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from attnlaw.analysis.diff.map_changes import HeadFactors, MapChange, compare_heads, unchanged_map
from attnlaw.analysis.diff.matching import heads_in_place, is_folded, match_heads, same_head_cosines
from attnlaw.analysis.diff.pair import NO_UPDATE_VERDICTS, ModelPair, UnitChanges, gain_of, unknown_norm
from attnlaw.checkpoints.blocks import Attention, Product, StoredLayer, View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.core.arrays import Reals


@dataclass(frozen=True, eq=False)
class AttentionUnit:
    """QK and VO of one attention block, head by head."""

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
        regauged = order is None and bool(verdicts - {*NO_UPDATE_VERDICTS, "non-finite"}) and not any(ranks)
        folded = self._is_gain_folded(models)
        return UnitChanges(tuple(maps), order is not None, regauged, folded)

    def _head_order(self, models: ModelPair) -> list[int] | None:
        """The model's head that each head became; one kind of map is held at a time unless some moved."""

        def read(kind: str) -> tuple[list[HeadFactors], list[HeadFactors]]:
            mine = _read_factors(models, self.base, models.base, kind)
            return mine, _read_factors(models, self.model, models.model, kind)

        near = heads_in_place(same_head_cosines(*read(kind)) for kind in self.kinds)
        if self.base.heads == self.model.heads and near:
            return None
        both = [read(kind) for kind in self.kinds]
        groups = self.base.kv_heads if self.base.kv_heads < self.base.heads else 0
        return match_heads([mine for mine, _ in both], [theirs for _, theirs in both], groups)

    def _compare_maps(
        self, models: ModelPair, kind: str, chosen: list[int]
    ) -> Iterator[tuple[MatrixLocation, MapChange]]:
        verdicts = models.verdicts(*self.base.views(kind)) | self._norm_verdicts(models)
        locations = [
            MatrixLocation(self.layer.index, kind, self.layer.stack, head) for head in range(len(chosen))
        ]
        product = product_of(self.base, kind)
        shape, d = product.shape, product.inner
        if "non-finite" in verdicts or verdicts == {"identical"}:
            empty = MapChange({"rows": shape[0], "cols": shape[1], "inner": d})
            for location, there in zip(locations, chosen, strict=True):
                if there >= 0:
                    yield location, empty if "non-finite" in verdicts else unchanged_map(shape, d, there)
            return
        latent = self.base.latent or self.model.latent
        before = _read_factors(models, self.base, models.base, kind)
        after = _read_factors(models, self.model, models.model, kind)
        steps: list[HeadFactors | None] = [None] * len(after)
        if not latent:
            stored = self.model.factors(models.file_steps, kind)
            steps = [*_scale_steps(models, self.model, models.model, kind, stored)]
        rounds = self._rounding_steps(models, kind) if not latent else [(None, None)] * len(before)
        for location, there, factors, grid in zip(locations, chosen, before, rounds, strict=True):
            if there >= 0:
                map_change = compare_heads(factors, after[there], steps[there], grid)
                yield location, replace(map_change, numbers={**map_change.numbers, "matched_head": there})

    def _rounding_steps(self, models: ModelPair, kind: str) -> list[tuple[Reals | None, Reals | None]]:
        """The steps of the factors of each head that were rounded."""
        first, second = (models.was_rounded(view) for view in self.base.views(kind)[:2])
        if not (first or second):
            return [(None, None)] * self.base.heads
        factors = _scale_steps(
            models, self.base, models.base, kind, self.base.factors(models.format_steps, kind)
        )
        return [(left if first else None, other if second else None) for left, other in factors]

    def _norm_verdicts(self, models: ModelPair) -> set[str]:
        return models.norm_verdicts(*(norm for kind in self.kinds for norm in self.base.norms(kind)))

    def _is_gain_folded(self, models: ModelPair) -> bool | None:
        """Whether the rows of the query were scaled; None where it is what it was, or cannot be told."""
        query = self.base.query
        if models.verdicts(query) & {*NO_UPDATE_VERDICTS, "non-finite", "removed"}:
            return None
        return _scaled_rows(models, query, self.model.query)


def _read_factors(models: ModelPair, block: Attention, model: Model, kind: str) -> list[HeadFactors]:
    """The factors of every head, as they are stored or with the norms before them folded in."""
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
    """Steps of factors, times the gains that are folded into these."""
    left, right = (gain_of(models, model, norm) for norm in block.norms(kind))
    for first, second in steps:
        yield left * first, (right * second.T).T


def _scaled_rows(models: ModelPair, mine: View, theirs: View) -> bool | None:
    if mine.shape != theirs.shape or theirs.after is not None:
        return None
    rounding = float(np.sqrt(np.sum(models.file_steps.read(theirs) ** 2) / 12))
    return is_folded(models.base.read(mine), models.model.read(theirs), rounding)


def product_of(block: Attention, kind: str) -> Product:
    heads = block.products()
    return (heads.qk if KINDS[kind].scores else heads.vo)[0]
