"""Two opened models with what became of their tensors: what every unit of maps asks first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from attnlaw.analysis.diff.map_changes import MapChange
from attnlaw.analysis.diff.rounding import Steps
from attnlaw.analysis.diff.tensors import TensorChange, TensorPair
from attnlaw.checkpoints.blocks import View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import MatrixLocation
from attnlaw.checkpoints.norms import Norm
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError

NO_UPDATE_VERDICTS = ("identical", "rounded", "below-floor")


@dataclass(frozen=True, eq=False)
class UnitChanges:
    """What a unit of maps found: its maps, and what only the verdict on the model asks for."""

    maps: tuple[tuple[MatrixLocation, MapChange], ...]
    permuted: bool = False
    regauged: bool = False
    folded: bool | None = None


@dataclass(frozen=True, eq=False)
class ModelPair:
    """Both models, with what their tensors told."""

    base: Model
    model: Model
    applied: bool = False
    changes: tuple[tuple[TensorPair, TensorChange], ...] = ()

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[TensorPair, TensorChange]]]:
        changes: dict[str, list[tuple[TensorPair, TensorChange]]] = {}
        for tensor_pair, change in self.changes:
            if tensor_pair.base is not None and tensor_pair.model is not None:
                changes.setdefault(tensor_pair.base, []).append((tensor_pair, change))
        return changes

    def changes_of(self, view: View) -> list[tuple[TensorPair, TensorChange]]:
        """What became of the tensor of a view of the base, or of its role alone where that was compared."""
        every = self._by_name.get(view.tensor, [])
        return [pair for pair in every if pair[0].views is None or pair[0].views[0] == view]

    def verdicts(self, *views: View) -> set[str]:
        """What became of the tensors of some views of the base."""
        chained = [part for view in views for part in _chain(view)]
        verdict_sets = [
            {change.verdict for _, change in self.changes_of(view)} or {"removed"} for view in chained
        ]
        return set().union(*verdict_sets)

    def norm_verdicts(self, *norms: Norm | None) -> set[str]:
        """What became of the gains that are folded in."""
        gains = [norm.gain for norm in norms if self.applied and norm is not None and norm.gain is not None]
        verdict_sets = [{change.verdict for _, change in self._by_name.get(name, [])} for name in gains]
        return set().union(*(verdicts or {"removed"} for verdicts in verdict_sets))

    @cached_property
    def file_steps(self) -> Model:
        """The model with the steps of its file in the place of its weights."""
        return replace(self.model, tensors=Steps(self.model.tensors))

    @cached_property
    def format_steps(self) -> Model:
        """The base with the steps of the formats that its tensors were rounded to."""
        formats = {
            tensor_pair.base: change.format
            for tensor_pair, change in self.changes
            if tensor_pair.base is not None and tensor_pair.views is None and change.format is not None
        }
        return replace(self.base, tensors=Steps(self.base.tensors, formats))

    def was_rounded(self, view: View) -> bool:
        """Whether the tensor of a view, as a whole, was rounded."""
        return any(
            tensor_pair.views is None and change.format is not None
            for tensor_pair, change in self.changes_of(view)
        )

    def whole_tensor_change(self, mine: View, theirs: View) -> TensorChange | None:
        """What became of a tensor that is the whole of a map in both models."""
        pairs = (self.base, mine), (self.model, theirs)
        sizes = [prod(of.tensors.shapes[view.tensor]) for of, view in pairs]
        changes = [change for tensor_pair, change in self.changes_of(mine) if tensor_pair.views is None]
        return changes[0] if changes and sizes == [mine.elements, theirs.elements] else None


def _chain(view: View) -> list[View]:
    """The view and those that are applied before it."""
    return [view, *(_chain(view.after) if view.after else [])]


def gain_of(models: ModelPair, model: Model, norm: Norm | None) -> Reals:
    """What steps are multiplied by: 1 where nothing is folded in."""
    if not models.applied or norm is None:
        return np.ones((1, 1))
    return np.abs(model.gain(norm))[:, None]


def unknown_norm(model: Model) -> InputError:
    return InputError(
        f"{model.tensors.source}: the norms before its maps are not known; leave applied out "
        "to compare them as they are stored"
    )
