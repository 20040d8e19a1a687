"""Declared maps of cells, stacked bars and dots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from attnlaw.core.chart_specs import Bars, Cells, Dots
from attnlaw.render.charts.bars import bars, dots
from attnlaw.render.charts.cells import CELL, Shades, cells, field
from attnlaw.render.charts.data import ChartData, with_series
from attnlaw.render.charts.figure import Figure, palette
from attnlaw.render.charts.labels import format_short, rows_by_case
from attnlaw.render.charts.style import PALETTE, as_title


def draw_cells(chart: Cells, source: ChartData) -> Iterator[Figure]:
    rows = source.frame(chart.table)
    xs, ys = _as_tuple(chart.x), _as_tuple(chart.y)
    if not source.has_values(rows, *chart.colour, ys[0], *(xs if len(xs) == 1 else ())):
        return
    complete_rows = rows.drop_nulls([*chart.colour, ys[0], *(xs if len(xs) == 1 else ())])
    numbers = complete_rows[xs[0]].dtype.is_float()
    for case, case_rows in rows_by_case(complete_rows, source.other_settings(complete_rows, [*xs, *ys])):
        if not numbers:
            yield source.figure(chart, case, partial(_draw_panels, chart, source, case_rows))
        elif _is_evenly_spaced(case_rows[xs[0]]) and _is_evenly_spaced(case_rows[ys[0]]):
            yield source.figure(chart, case, partial(_draw_field, chart, source, case_rows))


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _is_evenly_spaced(values: pl.Series) -> bool:
    """Whether the values are three or more of equal distance, which cells of a diagram take for granted."""
    steps = np.diff(values.unique().sort().to_numpy())
    return steps.size > 1 and bool(np.allclose(steps, steps[0], rtol=1e-6))


def _draw_field(chart: Cells, source: ChartData, rows: pl.DataFrame) -> Any:
    x, y, (colour, *_) = str(chart.x), str(chart.y), chart.colour
    points = [
        {"x": row[x], "y": row[column], "name": source.verb.axis(column)}
        for column in chart.lines
        if source.has_values(rows, column)
        for row in rows.unique(x, keep="first", maintain_order=True).sort(x).iter_rows(named=True)
        if row[column] is not None
    ]
    lines = pl.DataFrame(points, schema={"x": pl.Float64, "y": pl.Float64, "name": pl.String})
    placed = rows.select(x=pl.col(x), y=pl.col(y), colour=pl.col(colour))
    label = source.verb.axis
    return field(placed, lines, label(x), label(y), label(colour), Shades(chart.scale, chart.domain))


def _draw_panels(chart: Cells, source: ChartData, rows: pl.DataFrame) -> Any:
    """Panels of cells side by side: those of several columns share a scale, those of several kinds do not."""
    import altair as alt

    several, variants = len(chart.colour) > 1, source.value_labels.variants.get(chart.colour[0])
    domain = (0.0, max(rows[name].max() for name in chart.colour)) if several else chart.domain  # type: ignore[type-var]
    shades = Shades(chart.scale, domain, None if variants is None else variant_colours(variants))  # type: ignore[arg-type]
    if chart.scale == "log":
        rows = rows.filter(pl.col(chart.colour[0]) > 0)
    groups = rows.group_by(chart.panel, maintain_order=True) if chart.panel else [(("",), rows)]
    panels: list[Any] = []
    for ((value,), group), column in product(groups, chart.colour):
        cell_rows = group.select(
            x=_join_columns(group, chart.x),
            y=_join_columns(group, chart.y),
            colour=pl.col(column),
            told=_description(chart, source, group),
        )
        xs = [name for name in _as_tuple(chart.x) if group[name].count()]
        most = max(cell_rows["x"].n_unique(), cell_rows["y"].n_unique())
        legend = chart.legend or (None if variants or chart.panel else source.verb.axis(column))
        panel = cells(
            cell_rows,
            source.verb.axis(xs[0]) if xs else None,
            source.verb.axis(_as_tuple(chart.y)[0]),
            shades,
            title=source.verb.axis(column)
            if several
            else source.value_labels.label_of(chart.panel or "", value),
            legend=legend,
            side=max(1, min(300 // most, max(26, 200 // most))) if chart.tooltip_columns else CELL,
            upright_labels=len(xs) > 1,
            hide_labels=bool(panels),
        )
        panels.append(panel)
    if several:
        return alt.hconcat(*panels, spacing=24, bounds="flush")
    drawn = alt.hconcat(*panels, spacing=12)
    if variants:
        return drawn
    # Every panel has colours of its own: what they show is told once, above them.
    named = drawn.properties(title=as_title(source.verb.axis(chart.colour[0]))) if chart.panel else drawn
    return named.resolve_scale(color="independent")


def variant_colours(variants: Mapping[str, Any]) -> dict[str, str]:
    """The colour of every variant by its name."""
    chosen = palette(variants)
    places = {name: getattr(variant, "colour", None) for name, variant in variants.items()}
    return {name: chosen[name] if at is None else PALETTE[at] for name, at in places.items()}


def _join_columns(rows: pl.DataFrame, names: str | tuple[str, ...]) -> pl.Expr:
    """Whichever of the columns are there, as one label."""
    columns = [name for name in _as_tuple(names) if rows[name].count()]
    if len(columns) == 1:
        return pl.col(columns[0])
    return pl.concat_str(columns, separator=" · ") if columns else pl.lit(None, dtype=pl.String)


def _description(chart: Cells, source: ChartData, rows: pl.DataFrame) -> pl.Series:
    """What a cell tells: the named columns with their values."""
    labels = {name: source.verb.label(name) for name in chart.tooltip_columns}
    lines = [
        "; ".join(f"{labels[name]} {format_short(row[name])}" for name in labels if row[name] is not None)
        for row in rows.select(chart.tooltip_columns).iter_rows(named=True)
    ]
    return pl.Series("told", lines or [None] * rows.height, dtype=pl.String)


def draw_bars(chart: Bars, source: ChartData) -> Iterator[Figure]:
    import altair as alt

    rows = source.frame(chart.table)
    parts = [name for name in chart.parts if source.has_values(rows, name)]
    if not parts or not source.has_values(rows, chart.x):
        return
    labels = {name: source.verb.axis(name) for name in parts}
    colours = palette(labels.values())
    long = rows.unpivot(parts, index=[chart.x, *([chart.panel] if chart.panel else [])], variable_name="part")
    shares = long.drop_nulls("value").with_columns(
        x=pl.col(chart.x),
        place=pl.col("part").replace_strict({name: i for i, name in enumerate(parts)}, return_dtype=pl.Int64),
        part=pl.col("part").replace_strict(labels),
    )
    several = chart.panel is not None and shares[chart.panel].n_unique() > 1
    groups = shares.group_by(chart.panel, maintain_order=True) if several else [(("",), shares)]

    def draw() -> Any:
        panels = [
            bars(
                group.select("x", "part", "place", "value"),
                source.verb.axis(chart.x),
                "share",
                colours,
                source.value_labels.label_of(chart.panel or "", value) if several else "",
            )
            for (value,), group in groups
        ]
        return panels[0] if len(panels) == 1 else alt.vconcat(*panels)

    yield source.figure(chart, {}, draw)


def draw_dots(chart: Dots, source: ChartData) -> Iterator[Figure]:
    rows = source.frame(chart.table)
    values = [name for name in chart.values if source.has_values(rows, name)]
    if not values or not source.has_values(rows, chart.by):
        return
    long = rows.unpivot(values, index=chart.by, variable_name="line").drop_nulls("value")
    points, colours = with_series(source, long, [chart.by])
    labels = {name: source.verb.axis(name) for name in values}
    placed = points.select("value", "series", line=pl.col("line").replace_strict(labels))
    yield source.figure(chart, {}, partial(dots, placed, chart.axis, colours))
