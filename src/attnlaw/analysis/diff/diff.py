"""Compare a model with its base: open both, compare them, and put the results into tables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.columns import location_row
from attnlaw.analysis.diff.columns import DIFF, DIFF_SPECTRA, DIFF_TENSORS
from attnlaw.analysis.diff.compare import ModelComparison, compare
from attnlaw.analysis.diff.matching import TensorPair
from attnlaw.analysis.diff.summary import summarize
from attnlaw.analysis.diff.tensors import TensorChange
from attnlaw.checkpoints.adapters import is_adapter
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import ModelSource, open_model, single_model_path
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import InputError, printable
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.quantity import column_kinds
from attnlaw.core.tables import quantity_frame
from attnlaw.spectra.measure import Selection


@dataclass(frozen=True, eq=False)
class Diff:
    """A model compared with its base. `attnlaw.analysis.diff.columns` declares the columns of the tables."""

    quantities: dict[str, Any]
    maps: pl.DataFrame
    tensors: pl.DataFrame
    spectra: pl.DataFrame

    def __repr__(self) -> str:
        return f"<Diff {self.quantities['verdict']}>"


def diff(
    base: ModelSource,
    settings: ModelSettings,
    match: bool = True,
    applied: bool = False,
    progress: Progress = no_progress,
) -> Diff:
    """Compare a checkpoint with its base: every stored tensor, every head and every feed-forward matrix.

    A model that is a LoRA adapter is added to the base. If `match`, heads and neurons in another order are
    looked for. If `applied`, the norms before the matrices are folded into them.

    >>> import numpy as np
    >>> block = {"in_proj_weight": np.tile(np.eye(4), (3, 1)), "out_proj.weight": 2 * np.eye(4)}
    >>> found = diff(block, ModelSettings(model={**block, "out_proj.weight": 3 * np.eye(4)}, heads=2))
    >>> found.maps.select("kind", "head", pl.col("size", "scale").round(9)).rows()
    [('qk', 0, 0.0, 1.0), ('qk', 1, 0.0, 1.0), ('vo', 0, 0.5, 1.5), ('vo', 1, 0.5, 1.5)]
    """
    first, second = open_both(base, settings)
    if not first.network.layers:
        raise InputError(
            f"{first.tensors.source}: has no layers, so nothing can be compared with it; give a whole model "
            "as the base"
        )
    selection = Selection.from_settings(settings, first.network)
    comparison = compare(first, second, selection, settings.jobs, match, applied, progress)
    name = printable(settings.title)
    maps = [{**location_row(name, location), **change.numbers} for location, change in comparison.maps]
    tensors = [_tensor_row(name, pair, first, second) for pair in comparison.tensors]
    return Diff(
        summarize(comparison),
        quantity_frame(DIFF, maps),
        quantity_frame(DIFF_TENSORS, tensors),
        quantity_frame(DIFF_SPECTRA, _spectra(name, comparison)),
    )


def open_both(base: ModelSource, settings: ModelSettings) -> tuple[Model, Model]:
    """Open the base and the model, which has the sizes of the base if it has no config.json."""
    unscaled = settings.unscaled
    first = open_model(base, settings.heads, None, settings.map, unscaled=unscaled)
    path = Path(settings.model) if isinstance(settings.model, str | os.PathLike) else None
    if settings.adapter is None and path is not None and is_adapter(single_model_path(path)):
        return first, open_model(
            base, settings.heads, settings.title, settings.map, settings.model, unscaled=unscaled
        )
    options = settings.heads, settings.name, settings.map, settings.adapter
    return first, open_model(settings.model, *options, sizes_from=base, unscaled=unscaled)


def _tensor_row(
    name: str, pair: tuple[TensorPair, TensorChange], base: Model, model: Model
) -> dict[str, Any]:
    tensor_pair, change = pair
    sides = list(zip((base.tensors, model.tensors), tensor_pair.tensors, strict=True))
    dtypes = [None if tensor is None else of.dtype(tensor) for of, tensor in sides]
    numbers = {name: getattr(change, name) for name in column_kinds(DIFF_TENSORS) if hasattr(change, name)}
    return {
        **numbers,
        "model": name,
        "tensor": printable(tensor_pair.name),
        "shape": next(list(of.shapes[tensor]) for of, tensor in sides if tensor is not None),
        "dtype_base": dtypes[0],
        "dtype_model": dtypes[1],
        "format": change.code if change.format is None else change.format.name,
        "source": None if change.source is None else printable(change.source),
    }


def _spectra(name: str, comparison: ModelComparison) -> list[dict[str, Any]]:
    rows = []
    for location, map_change in comparison.maps:
        values = [None if part is None else part.tolist() for part in (map_change.values, map_change.null)]
        rows.append({**location_row(name, location), "update_values": values[0], "noise_values": values[1]})
    return rows
