"""Charts of a lens that are like no other: the temperature of heads over layers, what low ranks cost them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.render.charts.figure import EXTENT, GREY, HEIGHT, WIDTH, Figure, colour_encoding, palette
from attnlaw.render.charts.labels import rows_by_case
from attnlaw.render.charts.style import PALETTE, inline_data, log_ticks

if TYPE_CHECKING:
    from attnlaw.core.chart_specs import CustomChart
    from attnlaw.render.charts.data import ChartData

MARKS = {"beta_2": [2, 2], "beta_c": [6, 3]}
STEP = 26  # pixels of a layer
TICKS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200]
AXIS_PADDING = 1.2  # of the logarithmic axis
MIN_BETA = 0.05  # what is softer stands on the lower end of the axis
ERRORS = ("largest", "tail", "rms")
TARGET_ERROR = 0.01  # that of `rank_within`
ROUND_OFF = 1e-12  # what is below is left out of a logarithmic axis


def betas(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """beta against layer, a dot for every head, of every input."""
    rows = source.frame(chart.table)
    if not source.has_values(rows, "beta"):
        return
    for case, case_rows in rows_by_case(rows, source.other_settings(rows, ["layer", "head"])):
        yield source.figure(chart, case, partial(beta_dots, case_rows, source.verb.axis))


def beta_dots(rows: pl.DataFrame, label: Any) -> Any:
    """Dots of `beta` over `layer`, and lines at the marks, the largest where layers differ in one."""
    import altair as alt

    points = rows.select("layer", "head", pl.col("beta").clip(lower_bound=MIN_BETA))
    marks = [{"beta": rows[name].max(), "mark": label(name)} for name in MARKS]
    shown = [*points["beta"], *(mark["beta"] for mark in marks)]
    width = max(220, min(620, STEP * rows["layer"].n_unique()))
    up = alt.Y(
        "beta:Q",
        title=label("beta"),
        scale=alt.Scale(
            type="log", domain=[min(shown) / AXIS_PADDING, max(shown) * AXIS_PADDING], nice=False
        ),
        axis=alt.Axis(format="~g", minExtent=EXTENT, values=TICKS),
    )
    dots = (
        alt.Chart(inline_data(points.to_dicts()))
        .mark_circle(size=34, opacity=0.75, color=PALETTE[0])
        .encode(
            x=alt.X("layer:O", title=label("layer"), axis=alt.Axis(labelAngle=0, labelOverlap=True)), y=up
        )
    )
    dash = alt.StrokeDash(
        "mark:N",
        title=None,
        scale=alt.Scale(domain=[mark["mark"] for mark in marks], range=list(MARKS.values())),
        legend=alt.Legend(symbolType="stroke", symbolStrokeColor=GREY, symbolSize=250),
    )
    lines = alt.Chart(inline_data(marks)).mark_rule(color=GREY, strokeWidth=1.3).encode(y=up, strokeDash=dash)
    return alt.layer(lines, dots).properties(width=width, height=HEIGHT)


def entrywise(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """The errors of low ranks over the heads, of every input; of one rank the table tells as much."""
    rows = source.frame(chart.table)
    if not source.has_values(rows, *ERRORS) or rows["rank"].n_unique() < 2:
        return
    for case, case_rows in rows_by_case(rows, source.other_settings(rows, ["layer", "head", "rank"])):
        yield source.figure(chart, case, partial(error_bands, case_rows, source.verb.axis))


def error_bands(rows: pl.DataFrame, label: Any) -> Any:
    """Medians over heads of each error against the rank, in bands of quartiles; dashed: its ends."""
    import altair as alt

    value = pl.col("value")
    summary = (
        rows.unpivot(ERRORS, index="rank", variable_name="error")
        .filter(value > ROUND_OFF)
        .group_by("error", "rank", maintain_order=True)
        .agg(
            least=value.min(),
            low=value.quantile(0.25, "linear"),
            median=value.median(),
            high=value.quantile(0.75, "linear"),
            most=value.max(),
        )
        .sort("rank")
        .with_columns(series=pl.col("error").replace_strict({name: label(name) for name in ERRORS}))
    )
    ranks = sorted(rows["rank"].unique())
    x = alt.X(
        "rank:Q",
        title=label("rank"),
        scale=alt.Scale(type="log", domain=[ranks[0], ranks[-1]], nice=False),
        axis=alt.Axis(values=ranks, labelOverlap=True, format="d"),
    )
    shade = colour_encoding(palette(label(name) for name in ERRORS), symbolOpacity=1, symbolType="stroke")
    base = alt.Chart(inline_data(summary.to_dicts())).encode(x=x, color=shade)
    span = [min(summary["least"]) / AXIS_PADDING, max(summary["most"]) * AXIS_PADDING]
    scale = alt.Scale(type="log", domain=span)
    axis = alt.Axis(format="~g", values=log_ticks(span))

    def up(name: str) -> Any:
        return alt.Y(f"{name}:Q", title="error of an attention weight", scale=scale, axis=axis)

    band = base.mark_area(opacity=0.2).encode(y=up("low"), y2="high:Q")
    ends = [
        base.mark_line(strokeWidth=0.8, strokeDash=[3, 2]).encode(y=up(name)) for name in ("least", "most")
    ]
    line = base.mark_line(strokeWidth=1.8).encode(y=up("median"))
    goal = alt.Chart(inline_data([{"goal": TARGET_ERROR}])).mark_rule(color=GREY).encode(y=up("goal"))
    return alt.layer(goal, band, *ends, line).properties(width=WIDTH, height=HEIGHT)
