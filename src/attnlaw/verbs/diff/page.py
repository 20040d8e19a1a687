"""The page of a comparison: the verdict first, then maps of heads with the chosen update, tensors, rows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import polars as pl

from attnlaw.core.tables import short_names
from attnlaw.render.charts.data import ChartData
from attnlaw.render.charts.labels import format_short
from attnlaw.render.pages.page import Section, explorer_section, page_html, rows_section
from attnlaw.render.pages.payload import pack_arrays, plain_columns
from attnlaw.render.pages.section import section_html
from attnlaw.verbs.diff.charts import PLACE

# Quantities that can be mapped, how a map of them is read, and how its colours are chosen.
MAPPED: dict[str, dict[str, Any]] = {
    "size": {"read": "Bright cells changed most.", "zero": True},
    "z_left": {"read": "Beyond 4 or -4 it is no chance: the update keeps to them, or avoids them."},
    "z_right": {"read": "Beyond 4 or -4 it is no chance."},
    "rank": {"read": "Few of many: a low-rank update, as an adapter makes.", "zero": True},
    "cosine": {"read": "Near 1 the map points where it did; near 0 it is another map."},
    "scale": {"read": "A whole map below 1 is what weight decay does."},
    "stable_rank": {"read": "Near 1, one direction carries the update."},
    "z_top": {"read": "Below -4 it shrank, above 4 it grew, by more than noise of that size explains."},
    "intruders_left": {"read": "Values near each other mix under any update, and count.", "zero": True},
    "new_left": {"read": "Bright cells learned a direction that the base did not have.", "zero": True},
}
# Numbers of the chosen map.
FACTS = (
    *("size", "size_2", "cosine", "scale", "rank", "stable_rank", "effective_rank", "floor", "k"),
    *("share_left", "z_left", "share_right", "z_right", "overlap_left", "overlap_right", "z_top", "moved"),
    *("intruders_left", "intruders_right", "new_left", "new_right", "matched_head"),
)
# Columns of the page's table; the download has all.
SHOWN = (
    *("model", "stack", "layer", "head", "expert", "kind", "size", "rank", "cosine", "scale", "stable_rank"),
    *("z_left", "z_right", "z_top", "moved", "new_left", "new_right"),
)
TENSORS = ("tensor", "verdict", "format", "rank", "size", "sqnr_db", "unchanged", "dtype_model")
MOST_TENSORS = 25  # of a model that the page lists


def diff_page(source: ChartData, sections: Sequence[Section], note: str) -> str:
    """The page of one or several models that were compared with a base."""
    maps, tensors = source.tables["diff"], source.tables["diff_tensors"]
    names = list(dict.fromkeys(source.rows["model"]))
    base = source.rows["base"][0]
    lead = f"{maps.height} maps and {tensors.height} tensors, against {base}. {note}".strip()
    parts = [
        _verdicts(source),
        explorer_section("Heads and maps"),
        *sections,
        _tensors(source, tensors, names),
        rows_section("Maps", "qk layer=3 size>0.2"),
    ]
    return page_html(source.verb.title, lead, parts, _payload(source, names))


def _verdicts(source: ChartData) -> Section:
    """What happened to every model, in a sentence each, with the counts behind it."""
    short = short_names(source.rows["model"])
    cards = []
    for row in source.rows.iter_rows(named=True):
        counts = [
            f"<div><dt>{escape(quantity.label)}</dt>"
            f'<dd title="{escape(quantity.description)}">{row[quantity.name]}</dd></div>'
            for quantity in source.verb.quantities
            if quantity.name.startswith("tensors_") and row[quantity.name]
        ]
        title = f"<h3>{escape(short[row['model']])}</h3>" if source.rows.height > 1 else ""
        cards.append(
            f'<div class="card">{title}<p class="verdict">{escape(row["verdict"] or "")}</p>'
            f'<dl class="numbers">{"".join(counts)}</dl></div>'
        )
    return Section("verdict", "Verdict", section_html("verdict", "What happened", *cards))


def _tensors(source: ChartData, tensors: pl.DataFrame, names: Sequence[str]) -> Section:
    """The stored tensors of every model that changed, worst first."""
    short = short_names(names)
    heads = "".join(f'<th scope="col">{escape(source.verb.label(name))}</th>' for name in TENSORS)
    blocks = []
    for model in names:
        changed = tensors.filter(pl.col("model") == model, pl.col("verdict") != "identical")
        damaged = pl.col("verdict") == "non-finite"
        worst = changed.sort(damaged, "size", descending=True, nulls_last=True).head(MOST_TENSORS)
        lines = []
        for row in worst.iter_rows(named=True):
            cells = "".join(f"<td>{escape(_cell(row[name]))}</td>" for name in TENSORS[1:])
            lines.append(f'<tr><th scope="row">{escape(row["tensor"])}</th>{cells}</tr>')
        title = f"<h3>{escape(short[model])}</h3>" if len(names) > 1 else ""
        rest = changed.height - worst.height
        more = f"<p class='note'>{rest} more in diff_tensors.parquet.</p>" if rest > 0 else ""
        body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
        content = body if lines else "<p>Every tensor is identical.</p>"
        blocks.append(f'{title}<div class="card wide meanings" tabindex="0">{content}{more}</div>')
    return Section("tensors", "Tensors", section_html("tensors", "Stored tensors, worst first", *blocks))


def _cell(value: Any) -> str:
    return "" if value is None else format_short(value)


def _payload(source: ChartData, names: Sequence[str]) -> dict[str, Any]:
    """What the script draws: maps, the update of each with noise of its size, and how they are called."""
    table = next(table_spec for table_spec in source.verb.tables if table_spec.name == "diff")
    known = {column.name: column for column in table.columns}
    kinds = known["kind"].choices or {}
    index, short = {name: place for place, name in enumerate(names)}, short_names(names)
    spectra = source.tables["diff_spectra"].select(*PLACE, "update_values", "noise_values")
    maps = source.tables["diff"].join(spectra, on=PLACE, how="left", nulls_equal=True, maintain_order="left")
    columns = plain_columns(maps.drop("case", "update_values", "noise_values", strict=False))
    columns["model"] = [index[name] for name in columns["model"]]
    return {
        "quantities": [
            {"key": name, "name": known[name].label, "log": False}
            | {
                "says": f"{known[name].description[:1].upper()}{known[name].description[1:]}. {how['read']}",
                **how,
            }
            for name, how in MAPPED.items()
        ],
        "facts": [(name, known[name].label) for name in FACTS],
        "names": {"kind": {name: kind.label for name, kind in kinds.items()}},
        "groups": {name: kind.group for name, kind in kinds.items()},
        "laws": {},
        "models": [{"name": name, "short": short[name]} for name in names],
        "columns": columns,
        "spectra": pack_arrays(maps["update_values"].to_list()),
        "noise": pack_arrays(maps["noise_values"].to_list()),
        "curves": pack_arrays([None] * maps.height),
        "fits": None,
        "shown": [(name, known[name].label) for name in SHOWN],
        "leading": "size",
        "worst": True,
        "view": "rank",
    }
