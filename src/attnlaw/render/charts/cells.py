"""Maps of cells, and fields of cells over two numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from attnlaw.render.charts.figure import HEIGHT, WIDTH, palette, panel_title
from attnlaw.render.charts.labels import format_short
from attnlaw.render.charts.style import PALETTE, as_title, inline_data
from attnlaw.render.charts.view import ChartView, Drawing

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


def cell_maps(
    view: ChartView,
    rows: pl.DataFrame,
    x: Sequence[str],
    y: str,
    colour: str,
    panel: str | None = None,
    *,
    scale: str = "linear",
    domain: tuple[float, float] | None = None,
    tooltip: Sequence[str] = (),
) -> Iterator[Drawing]:
    """Maps of `colour` (a number, or the name of a variant) over x and y, one for each setting that varies.

    Args:
        x: columns of which the map has whichever are there (`head` and `expert`).
        panel: a column; each of its values has a panel with a scale of its own.
        scale: that of the colours ("linear", "sqrt", "log"), `domain` its ends.
        tooltip: columns that a cell shows under the pointer.
    """
    needed = [colour, y, *(x if len(x) == 1 else ())]
    variants = view.value_labels.variants.get(colour)
    shades = Shades(scale, domain, None if variants is None else _variant_colours(variants))
    for case, case_rows in view.cases(view.complete(rows, *needed), [*x, y]):
        yield Drawing(partial(_draw_map, view, case_rows, x, y, colour, panel, shades, tooltip), case)


def _draw_map(
    view: ChartView,
    rows: pl.DataFrame,
    x: Sequence[str],
    y: str,
    colour: str,
    panel: str | None,
    shades: Shades,
    tooltip: Sequence[str],
) -> Any:
    import altair as alt

    axis = view.verb.axis
    if shades.scale == "log":
        rows = rows.filter(pl.col(colour) > 0)
    panels: list[Any] = []
    for (value,), group in rows.group_by(panel, maintain_order=True) if panel else [(("",), rows)]:
        across = [name for name in x if group[name].count()]
        drawn = draw_cells(
            group.select(
                x=joined_columns(group, x),
                y=y,
                colour=colour,
                told=cell_texts(view, group, tooltip) if tooltip else pl.lit(None, dtype=pl.String),
            ),
            axis(across[0]) if across else None,
            axis(y),
            shades,
            title=view.value_labels.label_of(panel or "", value),
            legend=None if shades.categories or panel else axis(colour),
            upright_labels=len(across) > 1,
            hide_labels=bool(panels),
        )
        panels.append(drawn)
    drawn = alt.hconcat(*panels, spacing=12)
    if shades.categories:
        return drawn
    # Every panel has colours of its own: what they show is written once, above them.
    titled = drawn.properties(title=as_title(axis(colour))) if panel else drawn
    return titled.resolve_scale(color="independent")


def _variant_colours(variants: Mapping[str, Any]) -> dict[str, str]:
    """The colour of every variant by its name."""
    chosen = palette(variants)
    places = {name: getattr(variant, "colour", None) for name, variant in variants.items()}
    return {name: chosen[name] if at is None else PALETTE[at] for name, at in places.items()}


def joined_columns(rows: pl.DataFrame, names: Sequence[str]) -> pl.Expr:
    """Whichever of the columns have values, as one label."""
    columns = [name for name in names if rows[name].count()]
    if len(columns) == 1:
        return pl.col(columns[0])
    return pl.concat_str(columns, separator=" · ") if columns else pl.lit(None, dtype=pl.String)


def cell_texts(view: ChartView, rows: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """What cells show under the pointer: the named columns with their values."""
    labels = {name: view.verb.label(name) for name in names}
    texts = [
        "; ".join(f"{labels[name]} {format_short(row[name])}" for name in labels if row[name] is not None)
        for row in rows.select(names).iter_rows(named=True)
    ]
    return pl.Series("told", texts, dtype=pl.String)


def draw_cells(
    rows: pl.DataFrame,
    x: str | None,
    y: str | None,
    shades: Shades,
    *,
    title: str = "",
    legend: str | None = None,
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
    columns, lines = (rows["x"].n_unique() if rows["x"].count() else 1), rows["y"].n_unique()
    most = max(rows["x"].n_unique(), lines)
    described = rows["told"].count() > 0
    side = max(1, min(300 // most, max(26, 200 // most))) if described else CELL
    across = (
        {
            "x": alt.X(
                "x:O", title=x, sort=None, axis=alt.Axis(labelAngle=-90 if upright_labels else 0, **plain)
            )
        }
        if rows["x"].count()
        else {"x": alt.value(0), "x2": alt.value("width")}
    )
    edge = {} if described else {"stroke": "white", "strokeWidth": 1}
    chart = alt.Chart(inline_data(rows.to_dicts()), title=panel_title(title) if title else alt.Undefined)
    height = side * lines
    drawn = chart.mark_rect(aria=described, **edge).encode(
        y=up, color=shades.encoding("colour", legend, min(height, 160)), **across
    )
    return (drawn.encode(description="told:N") if described else drawn).properties(
        width=side * columns, height=height
    )


def is_evenly_spaced(values: pl.Series) -> bool:
    """Whether the values are three or more of equal distance, which `draw_field` takes for granted."""
    steps = np.diff(values.unique().sort().to_numpy())
    return steps.size > 1 and bool(np.allclose(steps, steps[0], rtol=1e-6))


def draw_field(rows: pl.DataFrame, lines: pl.DataFrame, x: str, y: str, legend: str, shades: Shades) -> Any:
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
