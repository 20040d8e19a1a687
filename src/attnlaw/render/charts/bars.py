"""Stacked bars, and dots on one axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from attnlaw.render.charts.figure import WIDTH, colour_encoding
from attnlaw.render.charts.style import as_title, inline_data


def bars(rows: pl.DataFrame, x: str, y: str, colours: Mapping[str, str], title: str = "") -> Any:
    """Stacked shares: `rows` has x, part and value."""
    import altair as alt

    chart = alt.Chart(inline_data(rows.to_dicts()), title=as_title(title) if title else alt.Undefined)
    return (
        chart.mark_bar()
        .encode(
            x=alt.X("x:O", title=x, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("value:Q", title=y, axis=alt.Axis(values=[0, 0.5, 1])),
            color=colour_encoding(colours, "part", legend_for_one=True),
            order=alt.Order("place:Q"),
        )
        .properties(width=WIDTH, height=120 if title else 200)
    )


def dots(rows: pl.DataFrame, axis: str, colours: Mapping[str, str]) -> Any:
    """Every value as a dot on one axis: `rows` has line, value and series."""
    import altair as alt

    order = list(dict.fromkeys(rows["line"]))
    return (
        alt.Chart(inline_data(rows.to_dicts()))
        .mark_point(filled=True, size=50, opacity=0.9)
        .encode(
            x=alt.X("value:Q", title=axis, scale=alt.Scale(zero=False)),
            y=alt.Y("line:N", title=None, sort=order, axis=alt.Axis(labelLimit=260, grid=True)),
            color=colour_encoding(colours),
        )
        .properties(width=320, height=alt.Step(20))
    )
