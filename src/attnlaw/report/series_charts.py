"""Charts of numbers against one other number: a study's setting, or the steps of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from attnlaw.report.style import PALETTE, inline


def series_chart(rows: pl.DataFrame, x: str, y: str, title: str) -> Any:
    """One line per value of the column `series`, y against x; a text on the x axis gives points only."""
    import altair as alt

    numeric = rows[x].dtype.is_numeric()
    base = alt.Chart(inline(rows.select(x, y, "series").to_dicts())).encode(
        x=alt.X(
            f"{x}:{'Q' if numeric else 'N'}",
            title=x.replace("_", " "),
            scale=alt.Scale(zero=False) if numeric else alt.Undefined,
        ),
        y=alt.Y(f"{y}:Q", title=title, scale=alt.Scale(zero=False)),
        color=_colour(alt, rows["series"]),
    )
    points = base.mark_point(filled=True, size=26)
    return (base.mark_line() + points if numeric else points).properties(width=340, height=220)


def step_charts(rows: pl.DataFrame, quantities: Sequence[str], columns: int = 3) -> Any:
    """Small panels, one per quantity, each against the training step with one line per model."""
    import altair as alt

    panels = []
    for quantity in quantities:
        known = rows.select("step", quantity, series="model").drop_nulls()
        panels.append(
            alt.Chart(
                inline(known.to_dicts()),
                title=alt.TitleParams(quantity.replace("_", " "), frame="group", anchor="start"),
            )
            .mark_line(point=alt.OverlayMarkDef(size=12, filled=True))
            .encode(
                x=alt.X("step:Q", title="step", axis=alt.Axis(tickCount=4, format="~s")),
                y=alt.Y(
                    f"{quantity}:Q",
                    title=None,
                    scale=alt.Scale(zero=False),
                    axis=alt.Axis(minExtent=30, tickCount=4),
                ),
                color=_colour(alt, rows["model"]),
            )
            .properties(width=200, height=130)
        )
    return alt.concat(*panels, columns=columns)


def _colour(alt: Any, series: pl.Series) -> Any:
    """One colour a series; a single series needs no legend."""
    names = list(dict.fromkeys(series))
    scale = alt.Scale(domain=names, range=[PALETTE[i % len(PALETTE)] for i in range(len(names))])
    return alt.Color("series:N", scale=scale, legend=alt.Legend(title=None) if len(names) > 1 else None)
