"""Charts of a comparison that are like no other: the spectrum of an update over that of noise of its size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.render.charts.figure import EXTENT, Figure, colour_encoding
from attnlaw.render.charts.style import PALETTE, inline_data, log_ticks

if TYPE_CHECKING:
    from attnlaw.core.chart_specs import CustomChart
    from attnlaw.render.charts.data import ChartData

PLACE = ("model", "layer", "stack", "kind", "head", "expert")


def worst_update(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """Of every model, the map whose update is largest."""
    maps, spectra = source.frame("diff"), source.frame("diff_spectra")
    if not source.has_values(maps, "size") or not source.has_values(spectra, "update_values"):
        return
    for model in dict.fromkeys(maps["model"]):
        worst_map = (
            maps.filter(pl.col("model") == model, pl.col("size") > 0).sort("size", descending=True).head(1)
        )
        spectrum = worst_map.select(PLACE).join(spectra, on=PLACE, how="inner", nulls_equal=True)
        if spectrum.height and spectrum["update_values"][0] is not None:
            row = spectrum.row(0, named=True)
            case = {"model": model} if source.rows.height > 1 else {}
            kind = source.value_labels.label_of("kind", row["kind"])
            place = " ".join(
                [f"layer {row['layer']}", kind, *([] if row["head"] is None else [f"head {row['head']}"])]
            )
            size = f"{100 * worst_map['size'][0]:.3g} percent"
            yield source.figure(chart, case, partial(by_rank, row), f"Here: {place}, of size {size}.")


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
