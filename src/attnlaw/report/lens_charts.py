"""The chart of a lens that is like no other: the temperature of every head over its layer, with marks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.report.labels import cases
from attnlaw.report.marks import EXTENT, GREY, HEIGHT, Figure
from attnlaw.report.style import PALETTE, inline

if TYPE_CHECKING:
    from attnlaw.base.charts import Own
    from attnlaw.report.source import Source

MARKS = {"beta_2": [2, 2], "beta_c": [6, 3]}
STEP = 26  # pixels of a layer
TICKS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200]
MARGIN = 1.2  # of the logarithmic axis
LEAST = 0.05  # what is softer stands on the lower end of the axis


def betas(chart: Own, source: Source) -> Iterator[Figure]:
    """beta against layer, a dot for every head, of every input."""
    rows = source.frame(chart.table)
    if not source.has(rows, "beta"):
        return
    for case, own in cases(rows, source.others(rows, ["layer", "head"])):
        yield source.figure(chart, case, partial(temperatures, own, source.verb.label))


def temperatures(rows: pl.DataFrame, label: Any) -> Any:
    """Dots of `beta` over `layer`, and lines at the marks, the largest where layers differ in one."""
    import altair as alt

    told = rows.select("layer", "head", pl.col("beta").clip(lower_bound=LEAST))
    marks = [{"beta": rows[name].max(), "mark": label(name)} for name in MARKS]
    shown = [*told["beta"], *(one["beta"] for one in marks)]
    width = max(220, min(620, STEP * rows["layer"].n_unique()))
    up = alt.Y(
        "beta:Q",
        title=label("beta"),
        scale=alt.Scale(type="log", domain=[min(shown) / MARGIN, max(shown) * MARGIN], nice=False),
        axis=alt.Axis(format="~g", minExtent=EXTENT, values=TICKS),
    )
    dots = (
        alt.Chart(inline(told.to_dicts()))
        .mark_circle(size=34, opacity=0.75, color=PALETTE[0])
        .encode(
            x=alt.X("layer:O", title=label("layer"), axis=alt.Axis(labelAngle=0, labelOverlap=True)), y=up
        )
    )
    dash = alt.StrokeDash(
        "mark:N",
        title=None,
        scale=alt.Scale(domain=[one["mark"] for one in marks], range=list(MARKS.values())),
        legend=alt.Legend(symbolType="stroke", symbolStrokeColor=GREY, symbolSize=250),
    )
    lines = alt.Chart(inline(marks)).mark_rule(color=GREY, strokeWidth=1.3).encode(y=up, strokeDash=dash)
    return alt.layer(lines, dots).properties(width=width, height=HEIGHT)
