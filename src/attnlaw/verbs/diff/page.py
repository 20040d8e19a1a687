"""The HTML page of a comparison: the answer, maps of heads, figures, tensors, and all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from attnlaw.analysis.diff.columns import DIFF_TENSORS
from attnlaw.analysis.diff.places import join_words
from attnlaw.analysis.diff.summary import percent, verdict_text
from attnlaw.core.estimate import Outcome
from attnlaw.core.result import Result
from attnlaw.core.tables import short_names
from attnlaw.render.charts.figure import Figure
from attnlaw.render.describe_rows import failure_sentence, format_short
from attnlaw.render.model_names import name_models
from attnlaw.render.pages.html import macros
from attnlaw.render.pages.notebook import frame_html
from attnlaw.render.pages.page import (
    Section,
    explorer_data,
    explorer_section,
    figure_section,
    pack_arrays,
    page_html,
    rows_section,
)
from attnlaw.verbs.diff.answer import answer

# Quantities that the reader can choose, how to read the picture, and how its colours are scaled.
MAPPED: dict[str, dict[str, Any]] = {
    "size": {"read": "Bright cells changed most.", "zero": True, "log": False},
    "z_left": {
        "read": "Values between -4 and 4 can be chance. Above 4, the change is along these directions more "
        "than chance explains."
    },
    "z_right": {
        "read": "Values between -4 and 4 can be chance. Above 4, the change is along these directions more "
        "than chance explains."
    },
    "rank": {"read": "A few in every cell mean a low-rank update, like that of an adapter.", "zero": True},
    "cosine": {"read": "Near 1, the matrix acts almost as before; near 0, it acts completely differently."},
    "scale": {"read": "If all cells are below 1, the model shrank, as weight decay does."},
    "stable_rank": {"read": "Small values mean that the change has few directions.", "log": False},
    "z_top": {"read": "Below -4 it shrank and above 4 it grew by more than noise of that size explains."},
    "intruders_left": {
        "read": "Training always mixes directions with similar singular values, and they also count here.",
        "zero": True,
    },
    "new_left": {"read": "Bright cells learned directions that the base did not have.", "zero": True},
}
# Numbers that the page shows for the chosen head or matrix.
FACTS = (
    *("size", "size_2", "cosine", "scale", "rank", "stable_rank", "effective_rank", "floor", "k"),
    *("share_left", "z_left", "share_right", "z_right", "overlap_left", "overlap_right", "z_top", "moved"),
    *("intruders_left", "intruders_right", "new_left", "new_right", "matched_head"),
)
# Columns of the table on the page; the download has all columns.
SHOWN = (
    *("model", "stack", "layer", "head", "expert", "kind", "size", "rank", "cosine", "scale", "stable_rank"),
    *("z_left", "z_right", "z_top", "moved", "new_left", "new_right"),
)
TENSORS = ("tensor", "verdict", "size", "update_size", "roundings", "sqnr_db", "unchanged", "dtype_model")
SHARES = ("size", "update_size", "unchanged")
MOST_TENSORS = 25  # number of tensors that the page lists for a model
LOCATION = ("case", "layer", "stack", "kind", "head", "expert")
# Columns that a notebook shows.
NOTEBOOK_COLUMNS = ("model", *LOCATION[1:], "size", "cosine", "stable_rank", "moved")


def page(result: Result, figures: Sequence[Figure]) -> str:
    """Return the HTML page of one or several models that were compared with a base."""
    result = name_models(result)
    rows = result.finished_rows
    maps, tensors = result.finished_table("diff"), result.finished_table("diff_tensors")
    names = join_words(rows["model"].to_list())
    lead = [f"{names} compared with {rows['base'][0]}.", failure_sentence(result.rows)]
    sections = [
        explorer_section("Heads and matrices"),
        figure_section("part-1", "Figures", figures),
        _tensors(result, rows, tensors),
        rows_section("Matrices", "qk layer=3 size>0.2"),
    ]
    whole = answer(result, details=True)
    return page_html(result.verb.title, lead, sections, _payload(result, rows, maps), whole)


def _tensors(result: Result, rows: pl.DataFrame, tensors: pl.DataFrame) -> Section:
    short = short_names(rows["model"])
    counted = [quantity for quantity in result.verb.quantities if quantity.name.startswith("tensors_")]
    models = []
    for row in rows.iter_rows(named=True):
        changed = tensors.filter(pl.col("case") == row["case"], pl.col("verdict") != "identical")
        damaged = pl.col("verdict") == "non-finite"
        worst = changed.sort(damaged, "size", descending=True, nulls_last=True).head(MOST_TENSORS)
        lines = [
            [_cell(name, verdict_text(tensor) if name == "verdict" else tensor[name]) for name in TENSORS]
            for tensor in worst.iter_rows(named=True)
        ]
        models.append(
            {
                "name": short[row["model"]] if rows.height > 1 else None,
                "sentences": [row[name] for name in ("verdict", "compared") if rows.height > 1],
                "counts": [(quantity, row[quantity.name]) for quantity in counted if row[quantity.name]],
                "lines": lines,
                "rest": changed.height - worst.height,
            }
        )
    known = {column.name: column for column in DIFF_TENSORS}
    heads = [(known[name].label, known[name].description) for name in TENSORS]
    body = macros("verbs/diff/page.html").tensors(heads, models)
    return Section("tensors", "Stored tensors that changed most", body, "Tensors")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    return percent(value) if name in SHARES else format_short(value)


def _payload(result: Result, rows: pl.DataFrame, maps: pl.DataFrame) -> dict[str, Any]:
    spectra = result.finished_table("diff_spectra").select(*LOCATION, "update_values", "noise_values")
    whole = maps.join(spectra, on=LOCATION, how="left", nulls_equal=True, maintain_order="left")
    models = dict(rows.select("case", "model").iter_rows())
    return explorer_data(result.verb, models, maps, MAPPED, FACTS) | {
        "spectra": pack_arrays(whole["update_values"].to_list()),
        "noise": pack_arrays(whole["noise_values"].to_list()),
        "curves": pack_arrays([None] * whole.height),
        "fits": None,
        "shown": [(name, result.verb.label(name)) for name in SHOWN],
        "leading": "size",
        "worst": True,
        "view": "rank",
    }


def notebook_html(result: Result) -> Markup:
    """Return HTML with the answer, and with the heads and matrices that changed most."""
    rows = result.rows["status"] != Outcome.FAILED
    lines: Markup = macros("notebook.html").answer(answer(result).lines if rows.any() else ())
    maps = result.finished_table("diff").sort("size", descending=True, nulls_last=True)
    return lines + frame_html(maps, NOTEBOOK_COLUMNS)
