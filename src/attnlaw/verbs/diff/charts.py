"""Charts of a comparison: sizes, ranks and alignment of updates, the largest one over noise of its size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import polars as pl

from attnlaw.core.result import Result
from attnlaw.render.charts.cells import cell_maps
from attnlaw.render.charts.figure import EXTENT, Figure, colour_encoding
from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.style import PALETTE, inline_data, log_ticks
from attnlaw.render.charts.view import ChartView, Drawing, has_values
from attnlaw.verbs.audit.names import name_models

PLACE = ("model", "layer", "stack", "kind", "head", "expert")


def worst_update(result: Result) -> list[Figure]:
    """Of every model, the map whose update is largest."""
    view = ChartView(name_models(result))
    maps, spectra = view.frame("diff"), view.frame("diff_spectra")
    if not has_values(maps, "size") or not has_values(spectra, "update_values"):
        return []
    figures = []
    for model in dict.fromkeys(maps["model"]):
        worst = (
            maps.filter(pl.col("model") == model, pl.col("size") > 0).sort("size", descending=True).head(1)
        )
        spectrum = worst.select(PLACE).join(spectra, on=PLACE, how="inner", nulls_equal=True)
        if not spectrum.height or spectrum["update_values"][0] is None:
            continue
        row = spectrum.row(0, named=True)
        kind = view.value_labels.label_of("kind", row["kind"])
        head = "" if row["head"] is None else f" head {row['head']}"
        figure = view.figure(
            "worst_update",
            "The largest update over its null",
            "Singular values of the update by rank, over the largest of the base. Dashed: noise of the "
            "same size in the same place. A line that starts above it and falls below it has few strong "
            "directions; one that follows it has none. "
            f"Here: layer {row['layer']} {kind}{head}, of size {100 * worst['size'][0]:.3g} percent.",
            partial(by_rank, row),
            {"model": model} if view.rows.height > 1 else {},
        )
        figures.append(figure)
    return figures


def sizes(result: Result) -> list[Figure]:
    view = ChartView(name_models(result))
    return view.figures(
        "sizes",
        "Sizes layer by layer",
        "The mean size of the updates of a layer, |M1 − M0| / |M0|, by kind of map.",
        line_charts(view, view.frame("diff"), "layer", "size", ["kind"]),
    )


def heads_size(result: Result) -> list[Figure]:
    view = ChartView(name_models(result))
    caption = "Each cell is a map; brighter means a larger update."
    return view.figures("heads_size", "Sizes of updates", caption, _head_maps(view, "size"), on_page=False)


def heads_rank(result: Result) -> list[Figure]:
    view = ChartView(name_models(result))
    caption = "Singular values of the update above the floor."
    return view.figures("heads_rank", "Ranks of updates", caption, _head_maps(view, "rank"), on_page=False)


def heads_z(result: Result) -> list[Figure]:
    view = ChartView(name_models(result))
    caption = "How far the update keeps to the base's leading input directions, in deviations of chance."
    return view.figures("heads_z", "Alignment of updates", caption, _head_maps(view, "z_left"), on_page=False)


def _head_maps(view: ChartView, colour: str) -> Iterator[Drawing]:
    return cell_maps(view, view.frame("diff"), ["head", "expert"], "layer", colour, "kind")


def by_rank(row: dict[str, Any]) -> Any:
    """Singular values of an update by rank, and dashed those of noise."""
    import altair as alt

    names = {"update": "update_values", "noise of its size": "noise_values"}
    points = [
        {"series": name, "rank": rank, "value": value}
        for name, column in names.items()
        for rank, value in enumerate(row[column] or [], start=1)
        if value > 0
    ]
    top = max(point["value"] for point in points)
    shown = [point for point in points if point["value"] > 1e-4 * top]
    dash = alt.StrokeDash(
        "series:N", scale=alt.Scale(domain=list(names), range=[[1, 0], [5, 4]]), legend=None
    )
    return (
        alt.Chart(inline_data(shown))
        .mark_line(clip=True)
        .encode(
            x=alt.X("rank:Q", title="rank"),
            y=alt.Y(
                "value:Q",
                title="singular value / largest of the base",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(
                    format="~g", minExtent=EXTENT, values=log_ticks(point["value"] for point in shown)
                ),
            ),
            color=colour_encoding(dict(zip(names, (PALETTE[0], PALETTE[7]), strict=True))),
            strokeDash=dash,
        )
        .properties(width=420, height=240)
    )
