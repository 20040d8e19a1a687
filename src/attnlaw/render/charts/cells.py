"""Heat maps over two categories, such as layers and heads, or over two numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from attnlaw.render.charts.encodings import HEIGHT, WIDTH, dash_encoding, inline_data, panel_title
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import PALETTE, as_title, palette
from attnlaw.render.charts.view import ChartView, Drawing, Drawings
from attnlaw.render.describe_rows import format_short

CELL = 15
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 1])


@dataclass(frozen=True)
class Shades:
    """How cells are coloured: a scale for numbers, or one colour for each category."""

    scale: str = "linear"
    domain: tuple[float, float] | None = None
    categories: Mapping[str, str] | None = None

    def encoding(self, column: str, title: str | None, length: int = 110) -> alt.Color:
        if self.categories is not None:
            scale = alt.Scale(domain=list(self.categories), range=list(self.categories.values()))
            legend = alt.Legend(orient="bottom", direction="horizontal", symbolType="square")
            return alt.Color(f"{column}:N", title=title, scale=scale, legend=legend)
        ends = alt.Undefined if self.domain is None else list(self.domain)
        scale = alt.Scale(type=self.scale, scheme="viridis", domain=ends)
        legend = alt.Legend(gradientLength=length, tickCount=3, format=".3~g")
        return alt.Color(f"{column}:Q", title=title, scale=scale, legend=legend)


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
) -> Drawings:
    """Yield a heat map of `colour` over `x` and `y` for each combination of the other settings.

    Columns of `x` that have values, such as `head` and `expert`, are joined into one axis. Each value of the
    column `panel` gets its own panel and colour scale, with the ends `domain` or those of the rows. Under the
    pointer, a cell shows the columns `tooltip`.
    """
    axis, variants = view.verb.axis, view.value_labels.variants.get(colour)
    shades = Shades(scale, domain, None if variants is None else _variant_colours(variants))

    def draw(case_rows: pl.DataFrame) -> Any:
        positive_rows = case_rows.filter(pl.col(colour) > 0) if scale == "log" else case_rows
        groups = positive_rows.group_by(panel, maintain_order=True) if panel else [(("",), positive_rows)]
        panels: list[Any] = []
        for (value,), group in groups:
            across = [name for name in x if group[name].count()]
            texts = cell_texts(view, group, tooltip) if tooltip else pl.lit(None, dtype=pl.String)
            drawn = draw_cells(
                group.select(x=joined_columns(group, x), y=y, colour=colour, text=texts),
                axis(across[0]) if across else None,
                axis(y),
                shades,
                title=view.value_labels.label_of(panel or "", value),
                legend=None if variants or panel else axis(colour),
                upright_labels=len(across) > 1,
                hide_labels=bool(panels),
            )
            panels.append(drawn)
        joined = alt.hconcat(*panels, spacing=12)
        if variants:
            return joined
        # Every panel has its own scale of colours. The title says once what they show.
        titled = joined.properties(title=as_title(axis(colour))) if panel else joined
        return titled.resolve_scale(color="independent")

    known = rows.drop_nulls([colour, y, *(x if len(x) == 1 else ())])
    for case, case_rows in view.cases(known, [*x, y]):
        yield Drawing(partial(draw, case_rows), case)


def _variant_colours(variants: Mapping[str, Any]) -> dict[str, str]:
    chosen = palette(variants)
    places = {name: getattr(variant, "colour", None) for name, variant in variants.items()}
    return {name: chosen[name] if at is None else PALETTE[at] for name, at in places.items()}


def joined_columns(rows: pl.DataFrame, names: Sequence[str]) -> pl.Expr:
    columns = [name for name in names if rows[name].count()]
    if len(columns) == 1:
        return pl.col(columns[0])
    return pl.concat_str(columns, separator=" · ") if columns else pl.lit(None, dtype=pl.String)


def cell_texts(view: ChartView, rows: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """Return the text that each cell shows under the pointer. The text names the columns and their values."""
    labels = {name: view.verb.label(name) for name in names}
    texts = [
        "; ".join(f"{labels[name]} {format_short(row[name])}" for name in labels if row[name] is not None)
        for row in rows.select(names).iter_rows(named=True)
    ]
    return pl.Series("text", texts, dtype=pl.String)


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
) -> alt.Chart:
    """Draw a grid of coloured cells for two categories. `x` and `y` are the titles of the axes.

    The rows have the columns x (null for a single column of cells), y, colour and text, which appears under
    the pointer.
    """
    plain = {"ticks": False, "domain": False, "grid": False, "labelOverlap": True}
    down = alt.Axis(**plain, **({"labelOpacity": 0} if hide_labels else {}))
    columns, lines = (rows["x"].n_unique() if rows["x"].count() else 1), rows["y"].n_unique()
    most = max(rows["x"].n_unique(), lines)
    described = rows["text"].count() > 0
    side = max(1, min(300 // most, max(26, 200 // most))) if described else CELL
    drawn = (
        alt.Chart(inline_data(rows), title=panel_title(title) if title else alt.Undefined)
        .mark_rect(aria=described, **({} if described else {"stroke": "white", "strokeWidth": 1}))
        .encode(
            y=alt.Y("y:O", title=None if hide_labels else y, sort=None, axis=down),
            color=shades.encoding("colour", legend, min(side * lines, 160)),
        )
        .properties(width=side * columns, height=side * lines)
    )
    if rows["x"].count():
        axis = alt.Axis(labelAngle=-90 if upright_labels else 0, **plain)
        drawn = drawn.encode(x=alt.X("x:O", title=x, sort=None, axis=axis))
    else:
        drawn = drawn.encode(x=alt.value(0), x2=alt.value("width"))
    return drawn.encode(description="text:N") if described else drawn


def is_evenly_spaced(values: pl.Series) -> bool:
    """Return whether there are at least three different values at equal distances, as `draw_field` needs."""
    steps = np.diff(values.unique().sort().to_numpy())
    return steps.size > 1 and bool(np.allclose(steps, steps[0], rtol=1e-6))


def draw_field(
    rows: pl.DataFrame, lines: pl.DataFrame, x: str, y: str, legend: str, shades: Shades
) -> alt.LayerChart:
    """Draw coloured cells over two evenly spaced numbers, with dashed white lines across them.

    `rows` has the columns x, y and colour, and `lines` has the columns x, y and name. `x`, `y` and `legend`
    are the titles of the axes and of the colour scale.
    """
    steps, scales = {}, {}
    for name in ("x", "y"):
        grid = rows[name].unique().sort().to_list()
        steps[name] = step = grid[1] - grid[0]
        scales[name] = alt.Scale(domain=[grid[0] - step / 2, grid[-1] + step / 2], nice=False)
    low, high = shades.domain or (-math.inf, math.inf)
    placed = rows.select(
        # Cells overlap a little, because exact neighbours leave hairlines between them.
        left=pl.col("x") - steps["x"] / 2,
        right=pl.col("x") + steps["x"] * 0.6,
        low=pl.col("y") - steps["y"] / 2,
        high=pl.col("y") + steps["y"] * 0.6,
        shown=pl.col("colour").clip(low, high),
    )
    heat = alt.Chart(inline_data(placed)).mark_rect(clip=True)
    heat = heat.encode(
        x=alt.X("left:Q", title=x, scale=scales["x"]),
        x2="right:Q",
        y=alt.Y("low:Q", title=y, scale=scales["y"]),
        y2="high:Q",
        color=shades.encoding("shown", legend),
    )
    names = dict.fromkeys(lines["name"])
    dashes = {name: DASHES[i % len(DASHES)] for i, name in enumerate(names)}
    rules = alt.Chart(inline_data(lines)).mark_line(clip=True, color="white", strokeWidth=1.8)
    rules = rules.encode(
        x=alt.X("x:Q", scale=scales["x"]),
        y=alt.Y("y:Q", scale=scales["y"]),
        strokeDash=dash_encoding("name", dashes, symbolStrokeColor="black", symbolSize=250),
    )
    return alt.layer(heat, *([rules] if names else [])).properties(width=WIDTH, height=HEIGHT)
