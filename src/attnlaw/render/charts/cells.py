"""Maps of cells, and fields of cells over two numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from attnlaw.render.charts.figure import HEIGHT, WIDTH, panel_title
from attnlaw.render.charts.style import inline_data

CELL = 15
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 1])


@dataclass(frozen=True)
class Shades:
    """How the colours of cells are chosen: by a scale of numbers, or one for each category."""

    scale: str = "linear"
    domain: tuple[float, float] | None = None
    categories: Mapping[str, str] | None = None

    def encoding(self, column: str, title: str | None, length: int = 110) -> Any:
        import altair as alt

        if self.categories is not None:
            scale = alt.Scale(domain=list(self.categories), range=list(self.categories.values()))
            legend = alt.Legend(orient="bottom", direction="horizontal", symbolType="square")
            return alt.Color(f"{column}:N", title=title, scale=scale, legend=legend)
        ends = alt.Undefined if self.domain is None else list(self.domain)
        return alt.Color(
            f"{column}:Q",
            title=title,
            scale=alt.Scale(type=self.scale, scheme="viridis", domain=ends),
            legend=alt.Legend(gradientLength=length, tickCount=3, format=".3~g"),
        )


def cells(
    rows: pl.DataFrame,
    x: str | None,
    y: str | None,
    shades: Shades,
    *,
    title: str = "",
    legend: str | None = None,
    side: int = CELL,
    upright_labels: bool = False,
    hide_labels: bool = False,
) -> Any:
    """Cells of two categories: `rows` has x (null: one column), y, colour, and `told`, what a cell says.

    Titles of the axes are `x` and `y`. `upright_labels`: labels below the x axis are upright.
    `hide_labels`: the y axis has no labels.
    """
    import altair as alt

    plain = {"ticks": False, "domain": False, "grid": False, "labelOverlap": True}
    down = alt.Axis(labels=not hide_labels, **plain) if not hide_labels else alt.Axis(labelOpacity=0, **plain)
    up = alt.Y("y:O", title=None if hide_labels else y, sort=None, axis=down)
    columns = rows["x"].n_unique() if rows["x"].count() else 1
    across = (
        {
            "x": alt.X(
                "x:O", title=x, sort=None, axis=alt.Axis(labelAngle=-90 if upright_labels else 0, **plain)
            )
        }
        if rows["x"].count()
        else {"x": alt.value(0), "x2": alt.value("width")}
    )
    described = rows["told"].count() > 0
    edge = {"stroke": "white", "strokeWidth": 1} if side >= CELL and not described else {}
    chart = alt.Chart(inline_data(rows.to_dicts()), title=panel_title(title) if title else alt.Undefined)
    height = side * rows["y"].n_unique()
    drawn = chart.mark_rect(aria=described, **edge).encode(
        y=up, color=shades.encoding("colour", legend, min(height, 160)), **across
    )
    return (drawn.encode(description="told:N") if described else drawn).properties(
        width=side * columns, height=height
    )


def field(rows: pl.DataFrame, lines: pl.DataFrame, x: str, y: str, legend: str, shades: Shades) -> Any:
    """A field of cells over two evenly spaced numbers, and lines across it.

    `rows`: x, y, colour. `lines`: x, y, name.
    """
    import altair as alt

    ends, steps = {}, {}
    for name in ("x", "y"):
        grid = rows[name].unique().sort()
        step = float(grid[1] - grid[0])
        steps[name] = step
        ends[name] = [float(grid[0]) - step / 2, float(grid[-1]) + step / 2]
    low, high = shades.domain or (-math.inf, math.inf)
    placed = rows.select(
        # Cells overlap a little: exact neighbours leave hairlines between them.
        left=pl.col("x") - steps["x"] / 2,
        right=pl.col("x") + steps["x"] * 0.6,
        low=pl.col("y") - steps["y"] / 2,
        high=pl.col("y") + steps["y"] * 0.6,
        shown=pl.col("colour").clip(low, high),
    )
    x_scale, y_scale = (alt.Scale(domain=ends[name], nice=False) for name in ("x", "y"))
    heat = (
        alt.Chart(inline_data(placed.to_dicts()))
        .mark_rect(clip=True)
        .encode(
            x=alt.X("left:Q", title=x, scale=x_scale),
            x2="right:Q",
            y=alt.Y("low:Q", title=y, scale=y_scale),
            y2="high:Q",
            color=shades.encoding("shown", legend),
        )
    )
    names = list(dict.fromkeys(lines["name"]))
    rules = (
        alt.Chart(inline_data(lines.to_dicts()))
        .mark_line(clip=True, color="white", strokeWidth=1.8)
        .encode(
            x=alt.X("x:Q", scale=x_scale),
            y=alt.Y("y:Q", scale=y_scale),
            strokeDash=alt.StrokeDash(
                "name:N",
                title=None,
                scale=alt.Scale(domain=names, range=[DASHES[i % len(DASHES)] for i in range(len(names))]),
                legend=alt.Legend(symbolStrokeColor="black", symbolSize=250),
            ),
        )
    )
    return alt.layer(heat, *([rules] if names else [])).properties(width=WIDTH, height=HEIGHT)
