"""The page of a comparison: the verdict first, then maps of heads with the chosen update, tensors, rows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import polars as pl

from attnlaw.base.tables import short_names
from attnlaw.report.diff_charts import PLACE
from attnlaw.report.explorer import pack, plain_columns
from attnlaw.report.labels import brief
from attnlaw.report.page import Section, explorer_section, page, rows_section
from attnlaw.report.source import Source
from attnlaw.report.titled import titled

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


def diff_page(source: Source, sections: Sequence[Section], note: str) -> str:
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
    return page(source.verb.title, lead, parts, _payload(source, names))


def _verdicts(source: Source) -> Section:
    """What happened to every model, in a sentence each, with the counts behind it."""
    short = short_names(source.rows["model"])
    cards = []
    for row in source.rows.iter_rows(named=True):
        counts = [
            f'<div><dt>{escape(one.label)}</dt><dd title="{escape(one.meaning)}">{row[one.name]}</dd></div>'
            for one in source.verb.quantities
            if one.name.startswith("tensors_") and row[one.name]
        ]
        title = f"<h3>{escape(short[row['model']])}</h3>" if source.rows.height > 1 else ""
        cards.append(
            f'<div class="card">{title}<p class="verdict">{escape(row["verdict"] or "")}</p>'
            f'<dl class="numbers">{"".join(counts)}</dl></div>'
        )
    return Section("verdict", "Verdict", titled("verdict", "What happened", *cards))


def _tensors(source: Source, tensors: pl.DataFrame, names: Sequence[str]) -> Section:
    """The stored tensors of every model that changed, worst first."""
    short = short_names(names)
    heads = "".join(f'<th scope="col">{escape(source.verb.label(name))}</th>' for name in TENSORS)
    blocks = []
    for model in names:
        own = tensors.filter(pl.col("model") == model, pl.col("verdict") != "identical")
        damaged = pl.col("verdict") == "non-finite"
        worst = own.sort(damaged, "size", descending=True, nulls_last=True).head(MOST_TENSORS)
        lines = []
        for row in worst.iter_rows(named=True):
            cells = "".join(f"<td>{escape(_cell(row[name]))}</td>" for name in TENSORS[1:])
            lines.append(f'<tr><th scope="row">{escape(row["tensor"])}</th>{cells}</tr>')
        title = f"<h3>{escape(short[model])}</h3>" if len(names) > 1 else ""
        rest = own.height - worst.height
        more = f"<p class='note'>{rest} more in diff_tensors.parquet.</p>" if rest > 0 else ""
        body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
        told = body if lines else "<p>Every tensor is identical.</p>"
        blocks.append(f'{title}<div class="card wide meanings" tabindex="0">{told}{more}</div>')
    return Section("tensors", "Tensors", titled("tensors", "Stored tensors, worst first", *blocks))


def _cell(value: Any) -> str:
    return "" if value is None else brief(value)


def _payload(source: Source, names: Sequence[str]) -> dict[str, Any]:
    """What the script draws: maps, the update of each with noise of its size, and how they are called."""
    table = next(one for one in source.verb.tables if one.name == "diff")
    known = {one.name: one for one in table.columns}
    kinds = known["kind"].choices or {}
    index, short = {name: place for place, name in enumerate(names)}, short_names(names)
    spectra = source.tables["diff_spectra"].select(*PLACE, "update_values", "noise_values")
    maps = source.tables["diff"].join(spectra, on=PLACE, how="left", nulls_equal=True, maintain_order="left")
    columns = plain_columns(maps.drop("case", "update_values", "noise_values", strict=False))
    columns["model"] = [index[name] for name in columns["model"]]
    return {
        "quantities": [
            {"key": name, "name": known[name].label, "log": False}
            | {"says": f"{known[name].meaning[:1].upper()}{known[name].meaning[1:]}. {how['read']}", **how}
            for name, how in MAPPED.items()
        ],
        "facts": [(name, known[name].label) for name in FACTS],
        "names": {"kind": {name: kind.label for name, kind in kinds.items()}},
        "groups": {name: kind.group for name, kind in kinds.items()},
        "laws": {},
        "models": [{"name": name, "short": short[name]} for name in names],
        "columns": columns,
        "spectra": pack(maps["update_values"].to_list()),
        "noise": pack(maps["noise_values"].to_list()),
        "curves": pack([None] * maps.height),
        "fits": None,
        "shown": [(name, known[name].label) for name in SHOWN],
        "leading": "size",
        "worst": True,
        "view": "rank",
    }
