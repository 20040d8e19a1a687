"""Charts of a comparison: sizes, ranks and alignment of updates, and the spectrum of the largest one."""

from __future__ import annotations

from functools import partial
from typing import Any

import polars as pl

from attnlaw.analysis.diff.summary import percent
from attnlaw.render.charts.cells import cell_maps
from attnlaw.render.charts.encodings import EXTENT, colour_encoding, dash_encoding, inline_data, log_axis
from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import PALETTE
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart
from attnlaw.render.model_names import name_models

LOCATION = ("model", "layer", "stack", "kind", "head", "expert")


@chart(
    "The largest change, compared with noise",
    "Singular values of the change, from the largest to the smallest, relative to the largest of the base. "
    "Values below 1/10,000 of the first are not drawn. Dashed: noise of the same size in the same place. "
    "If a line starts above the dashes and falls below them, the change has a few strong directions, like "
    "that of an adapter. A line that follows the dashes looks like noise.",
    prepare=name_models,
)
def worst_update(view: ChartView) -> Drawings:
    """Draw the singular values of the largest change in each model."""
    maps, spectra = view.frame("diff", "size"), view.frame("diff_spectra")
    for (model,), model_maps in maps.group_by("model", maintain_order=True):
        worst = model_maps.filter(pl.col("size") > 0).sort("size", descending=True).head(1)
        spectrum = worst.select(LOCATION).join(spectra, on=LOCATION, how="inner", nulls_equal=True)
        if not spectrum.height or spectrum["update_values"][0] is None:
            continue
        row = spectrum.row(0, named=True)
        kind = view.value_labels.label_of("kind", row["kind"])
        head = "" if row["head"] is None else f" head {row['head']}"
        note = f"Here: layer {row['layer']} {kind}{head}, which changed by {percent(worst['size'][0])}."
        yield Drawing(partial(by_rank, row), {"model": model} if view.rows.height > 1 else {}, note)


@chart(
    "Which layers changed",
    "Mean size of the changes in each layer, |model − base| / |base|, by kind of matrix. A layer at 0 did "
    "not change. Lines of equal height mean that all layers were trained equally. A peak means "
    "that one layer changed most.",
    prepare=name_models,
)
def sizes(view: ChartView) -> Drawings:
    return line_charts(view, view.frame("diff"), "layer", "size", ["kind"])


head_chart = partial(chart, on_page=False, prepare=name_models)


@head_chart("Sizes of updates", "Each cell is a head or matrix; brighter means a larger change.")
def heads_size(view: ChartView) -> Drawings:
    return _head_maps(view, "size")


@head_chart(
    "Ranks of updates",
    "Number of directions in which each change is larger than the rounding of the file. If there are only "
    "a few in every cell, the change looks like an adapter.",
)
def heads_rank(view: ChartView) -> Drawings:
    return _head_maps(view, "rank")


@head_chart(
    "Alignment of updates",
    "How much of the change is along the base's leading input directions, in standard deviations above "
    "that of random changes. Values between -4 and 4 can be chance.",
)
def heads_z(view: ChartView) -> Drawings:
    return _head_maps(view, "z_left")


def _head_maps(view: ChartView, colour: str) -> Drawings:
    return cell_maps(view, view.frame("diff"), ["head", "expert"], "layer", colour, "kind")


def by_rank(row: dict[str, Any]) -> alt.Chart:
    names = {"change": "update_values", "noise of the same size": "noise_values"}
    points = [
        {"series": name, "rank": rank, "value": value}
        for name, column in names.items()
        for rank, value in enumerate(row[column] or [], start=1)
        if value > 0
    ]
    top = max(point["value"] for point in points)
    shown = [point for point in points if point["value"] > 1e-4 * top]
    y = alt.Y("value:Q", title="singular value / largest of the base")
    axis = log_axis((point["value"] for point in shown), minExtent=EXTENT)
    lines = alt.Chart(inline_data(shown)).mark_line(clip=True)
    return lines.encode(
        x=alt.X("rank:Q", title="number of the singular value, largest first (rank)"),
        y=y.scale(type="log", nice=False).axis(axis),
        color=colour_encoding(dict(zip(names, (PALETTE[0], PALETTE[7]), strict=True))),
        strokeDash=dash_encoding("series", dict(zip(names, ([1, 0], [5, 4]), strict=True))),
    ).properties(width=420, height=240)
