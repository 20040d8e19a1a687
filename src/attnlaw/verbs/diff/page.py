"""The HTML page of a comparison: verdicts, heads with a choice of update, stored tensors, and all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from attnlaw.analysis.diff.summary import verdict_text
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

# Quantities that the reader can choose, how to read the picture, and how its colours are scaled.
MAPPED: dict[str, dict[str, Any]] = {
    "size": {"read": "Bright cells changed most.", "zero": True, "log": False},
    "z_left": {"read": "Beyond 4 or -4 it is no chance: the update keeps to them, or avoids them."},
    "z_right": {"read": "Beyond 4 or -4 it is no chance."},
    "rank": {"read": "Few of many: a low-rank update, as an adapter makes.", "zero": True},
    "cosine": {"read": "Near 1 the map points where it did; near 0 it is another map."},
    "scale": {"read": "A whole map below 1 is what weight decay does."},
    "stable_rank": {"read": "Near 1, one direction carries the update.", "log": False},
    "z_top": {"read": "Below -4 it shrank, above 4 it grew, by more than noise of that size explains."},
    "intruders_left": {"read": "Values near each other mix under any update, and count.", "zero": True},
    "new_left": {"read": "Bright cells learned a direction that the base did not have.", "zero": True},
}
# Numbers that the page shows for the chosen map.
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
MOST_TENSORS = 25  # number of tensors that the page lists for a model
LOCATION = ("case", "layer", "stack", "kind", "head", "expert")
# Columns that a notebook shows.
NOTEBOOK_COLUMNS = ("model", *LOCATION[1:], "size", "cosine", "stable_rank", "moved")


def page(result: Result, figures: Sequence[Figure]) -> str:
    """Return the HTML page of one or several models that were compared with a base."""
    result = name_models(result)
    rows = result.finished_rows
    maps, tensors = result.finished_table("diff"), result.finished_table("diff_tensors")
    lead = [
        f"{maps.height} maps and {tensors.height} tensors, against {rows['base'][0]}.",
        failure_sentence(result.rows),
    ]
    sections = [
        _verdicts(result, rows),
        explorer_section("Heads and maps"),
        figure_section("part-1", "Figures", figures),
        _tensors(result, rows, tensors),
        rows_section("Maps", "qk layer=3 size>0.2"),
    ]
    return page_html(result.verb.title, lead, sections, _payload(result, rows, maps))


def _verdicts(result: Result, rows: pl.DataFrame) -> Section:
    short = short_names(rows["model"])
    counted = [quantity for quantity in result.verb.quantities if quantity.name.startswith("tensors_")]
    cards = [
        {
            "name": short[row["model"]] if rows.height > 1 else None,
            "sentences": [row[name] for name in ("verdict", "compared", "next_step") if row[name]],
            "counts": [(quantity, row[quantity.name]) for quantity in counted if row[quantity.name]],
        }
        for row in rows.iter_rows(named=True)
    ]
    return Section("verdict", "What happened", macros("verbs/diff/page.html").verdicts(cards), "Verdict")


def _tensors(result: Result, rows: pl.DataFrame, tensors: pl.DataFrame) -> Section:
    short = short_names(rows["model"])
    models = []
    for case, model in rows.select("case", "model").iter_rows():
        changed = tensors.filter(pl.col("case") == case, pl.col("verdict") != "identical")
        damaged = pl.col("verdict") == "non-finite"
        worst = changed.sort(damaged, "size", descending=True, nulls_last=True).head(MOST_TENSORS)
        lines = [
            ["" if value is None else format_short(value) for value in line.values()]
            for line in (
                {name: verdict_text(row) if name == "verdict" else row[name] for name in TENSORS}
                for row in worst.iter_rows(named=True)
            )
        ]
        models.append((short[model] if rows.height > 1 else None, lines, changed.height - worst.height))
    heads = [result.verb.label(name) for name in TENSORS]
    body = macros("verbs/diff/page.html").tensors(heads, models)
    return Section("tensors", "Stored tensors, worst first", body, "Tensors")


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
    """Return HTML that shows what happened to every model, and the maps that changed most."""
    summaries = (case.summary for case in result if "sentence" in case.summary)
    lines = [(summary["model"], summary["sentence"]) for summary in summaries]
    maps = result.finished_table("diff").sort("size", descending=True, nulls_last=True)
    models: Markup = macros("notebook.html").models(lines)
    return models + frame_html(maps, NOTEBOOK_COLUMNS)
