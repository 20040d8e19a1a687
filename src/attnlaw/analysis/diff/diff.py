"""Compare a model with its base: open both, compare, and flatten what was found into rows, once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.diff.columns import DIFF, DIFF_SPECTRA, DIFF_TENSORS
from attnlaw.analysis.diff.compare import ModelComparison, compare
from attnlaw.analysis.diff.summary import summarize, summary_json
from attnlaw.analysis.diff.tensor_pairs import TensorPair
from attnlaw.analysis.diff.tensors import TensorChange
from attnlaw.checkpoints.adapters import is_adapter
from attnlaw.checkpoints.directories import single_model_path
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import MatrixLocation
from attnlaw.checkpoints.open import ModelSource, open_model
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import InputError, printable
from attnlaw.core.files import to_json, to_parquet
from attnlaw.core.model_tables import ModelTables
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.old_result import frame_html
from attnlaw.core.result_files import ROWS, save_results
from attnlaw.core.tables import quantity_frame
from attnlaw.spectra.measure import Selection

TABLES = {"diff": DIFF, "diff_tensors": DIFF_TENSORS, "diff_spectra": DIFF_SPECTRA}


# What a notebook shows of a map.
NOTEBOOK_COLUMNS = (
    "model",
    "layer",
    "stack",
    "kind",
    "head",
    "expert",
    "size",
    "cosine",
    "stable_rank",
    "moved",
)


@dataclass(frozen=True, eq=False)
class Diff(ModelTables, verb="diff"):
    """One or several models compared with a base: rows of maps, of tensors, of spectra, a summary each.

    `maps`, `tensors` and `spectra` are polars tables whose columns `attnlaw.analysis.diff.columns` lists;
    `cases` are the quantities of each model by name, `summaries` and `rows` what is saved of them.
    """

    summaries: tuple[dict[str, Any], ...]
    maps: pl.DataFrame
    tensors: pl.DataFrame
    spectra: pl.DataFrame
    cases: tuple[dict[str, Any], ...] = ()
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)

    def tables(self) -> dict[str, pl.DataFrame]:
        return dict(zip(TABLES, (self.maps, self.tensors, self.spectra), strict=True))

    def save(
        self, directory: str | os.PathLike[str], as_list: bool = False, figures: str | None = None
    ) -> Path:
        """Write the tables (parquet), summary.json and report.html; with `figures` ("pdf") figures/ too."""
        places = {name: place for place, name in enumerate(self.names)}
        case = pl.col("model").replace_strict(places, return_dtype=pl.Int64)
        files = {
            f"{name}.parquet": to_parquet(table.with_columns(case=case))
            for name, table in self.tables().items()
        }
        files[ROWS] = to_parquet(self.rows)
        files["summary.json"] = f"{to_json(self.as_json(as_list))}\n".encode()
        return save_results(directory, "diff", files, figures)

    def __repr__(self) -> str:
        sentences = (f"{summary['model']}: {summary['sentence']}" for summary in self.summaries)
        return f"<Diff {'; '.join(sentences)}>"

    def _repr_html_(self) -> str:
        lines = (
            f"<p><b>{escape(summary['model'])}</b>: {escape(summary['sentence'])}</p>"
            for summary in self.summaries
        )
        moved = self.maps.sort("size", descending=True, nulls_last=True)
        return f"{''.join(lines)}{frame_html(moved, NOTEBOOK_COLUMNS)}"


def diff(
    base: ModelSource,
    settings: ModelSettings,
    match: bool = True,
    applied: bool = False,
    progress: Progress = no_progress,
) -> Diff:
    """Compare a checkpoint with its base: every stored tensor, every head and feed-forward map.

    A LoRA adapter in the place of the model is added to the base. `match` finds heads and neurons that stand
    in another order, `applied` compares maps with the norms before them folded in.

    >>> import numpy as np
    >>> block = {"in_proj_weight": np.tile(np.eye(4), (3, 1)), "out_proj.weight": 2 * np.eye(4)}
    >>> found = diff(block, ModelSettings(model={**block, "out_proj.weight": 3 * np.eye(4)}, heads=2))
    >>> found.maps.select("kind", "head", pl.col("size", "scale").round(9)).rows()
    [('qk', 0, 0.0, 1.0), ('qk', 1, 0.0, 1.0), ('vo', 0, 0.5, 1.5), ('vo', 1, 0.5, 1.5)]
    """
    first, second = open_both(base, settings)
    if not first.network.layers:
        raise InputError(
            f"{first.tensors.source}: has no layers to compare with; give a whole model as the base"
        )
    selection = Selection.from_settings(settings, first.network)
    comparison = compare(first, second, selection, settings.jobs, match, applied, progress)
    name = printable(settings.title)
    values = summarize(comparison)
    tensors = [_tensor_row(name, pair, first, second) for pair in comparison.tensors]
    return Diff(
        ({"base": first.name, "model": name, **summary_json(values)},),
        quantity_frame(
            DIFF, [_map_row(name, place) | dict(map_change.numbers) for place, map_change in comparison.maps]
        ),
        quantity_frame(DIFF_TENSORS, tensors),
        quantity_frame(DIFF_SPECTRA, _spectra(name, comparison)),
        cases=(values,),
    )


def open_both(base: ModelSource, settings: ModelSettings) -> tuple[Model, Model]:
    """Both models; the adapter that settings name, or the model itself where it is one, is added."""
    first = open_model(base, settings.heads, None, settings.map)
    path = Path(settings.model) if isinstance(settings.model, str | os.PathLike) else None
    if settings.adapter is None and path is not None and is_adapter(single_model_path(path)):
        return first, open_model(base, settings.heads, settings.title, settings.map, settings.model)
    return first, open_model(settings.model, settings.heads, settings.name, settings.map, settings.adapter)


def _map_row(model: str, place: MatrixLocation) -> dict[str, Any]:
    return {"model": model, **vars(place)}


def _tensor_row(
    name: str, pair: tuple[TensorPair, TensorChange], base: Model, model: Model
) -> dict[str, Any]:
    tensor_pair, change = pair
    sides = zip((base, model), tensor_pair.tensors, strict=True)
    known = [None if tensor is None else (of.tensors, tensor) for of, tensor in sides]
    dtypes = [None if side is None else side[0].dtype(side[1]) for side in known]
    tensors, tensor = next(side for side in known if side is not None)
    return {
        "model": name,
        "tensor": printable(tensor_pair.name),
        "shape": list(tensors.shapes[tensor]),
        "dtype_base": dtypes[0],
        "dtype_model": dtypes[1],
        "verdict": change.verdict,
        "format": None if change.format is None else change.format.name,
        **{
            column: getattr(change, column)
            for column in ("rank", "size", "sqnr_db", "cosine", "unchanged", "max_change")
        },
    }


def _spectra(name: str, comparison: ModelComparison) -> list[dict[str, Any]]:
    rows = []
    for place, map_change in comparison.maps:
        values = [None if part is None else part.tolist() for part in (map_change.values, map_change.null)]
        rows.append({**_map_row(name, place), "update_values": values[0], "noise_values": values[1]})
    return rows
