"""The steps of a monitored training run: a panel per quantity against the step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import polars as pl

from attnlaw.report.marks import Figure, colour, palette
from attnlaw.report.style import inline
from attnlaw.training.quantities import PANELS

CAPTION = (
    "Each quantity during training, by step. A stable rank that falls and outliers that appear mean that few "
    "directions take over; proxies that grow without end mean norms that do."
)


def step_figures(rows: pl.DataFrame) -> Iterator[Figure]:
    """One figure of the columns of `attnlaw.training.quantities`; none where nothing was measured."""
    told = {
        title: {name: label for name, label in lines.items() if name in rows.columns and rows[name].count()}
        for title, lines in PANELS.items()
    }
    panels = {title: lines for title, lines in told.items() if lines}
    if panels:
        yield Figure("steps", "Against the step", CAPTION, partial(step_charts, rows, panels))


def step_charts(rows: pl.DataFrame, panels: dict[str, dict[str, str]]) -> Any:
    """A panel per quantity, a line per group of matrices, dashes per model."""
    import altair as alt

    models = list(dict.fromkeys(rows["model"]))
    dash = alt.StrokeDash(
        "model:N", scale=alt.Scale(domain=models), legend=alt.Legend(title=None, symbolStrokeColor="#888888")
    )
    drawn = []
    for title, lines in panels.items():
        long = rows.unpivot(list(lines), index=["step", "model"], variable_name="series").drop_nulls("value")
        own = long.with_columns(pl.col("series").replace_strict(lines))
        chart = alt.Chart(inline(own.to_dicts()), title=title).mark_line(
            point=alt.OverlayMarkDef(size=14, filled=True)
        )
        encoded = chart.encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(tickCount=5, format="~s")),
            y=alt.Y(
                "value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(minExtent=30, tickCount=5)
            ),
            color=colour(palette(lines.values()), always=True),
        )
        dashed = encoded.encode(strokeDash=dash) if len(models) > 1 else encoded
        drawn.append(dashed.properties(width=230, height=150))
    return alt.concat(*drawn, columns=2).resolve_scale(color="independent")
