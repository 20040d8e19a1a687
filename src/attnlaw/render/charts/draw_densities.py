"""Declared densities: laws side by side, or one law over the histogram of what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl

from attnlaw.core.chart_specs import Density
from attnlaw.render.charts.data import ChartData, rows_with_same_settings, simulation_label
from attnlaw.render.charts.densities import INFINITE, densities, spectrum
from attnlaw.render.charts.figure import GREY, Figure
from attnlaw.render.charts.labels import format_setting, rows_by_case, varying_settings
from attnlaw.render.charts.style import PALETTE

DASHED = "The dashed line is the limit of infinite width."


def draw_densities(chart: Density, source: ChartData) -> Iterator[Figure]:
    rows = source.frame(chart.table)
    if not source.has_values(rows, chart.x, chart.y):
        if chart.atom is not None and source.rows.height == 1 and source.rows[chart.atom][0] == 1.0:
            yield from _draw_spectrum(chart, source, {}, source.rows)  # nothing is left but the atom
        return
    points = rows.drop_nulls([chart.x, chart.y])
    apart = [name for name in (chart.by, chart.panel) if name is not None]
    for case, case_rows in rows_by_case(
        points, source.other_settings(points, apart) if apart else varying_settings(points, source.settings)
    ):
        yield from (
            _draw_laws(chart, source, case, case_rows)
            if chart.by
            else _draw_spectrum(chart, source, case, case_rows)
        )


def _draw_laws(
    chart: Density, source: ChartData, case: Mapping[str, Any], rows: pl.DataFrame
) -> Iterator[Figure]:
    """A line for every value of a setting, a panel for every value of another, of first repetitions."""
    import altair as alt

    assert chart.by is not None
    by, panel = chart.by, chart.panel
    ratio = chart.ratio if chart.ratio is not None and source.has_values(rows, chart.ratio) else None
    if panel is not None and rows[by].dtype.is_float() and rows[by].is_finite().any():
        # A panel of the limit alone has nothing to compare.
        rows = rows.filter(pl.col(by).is_finite().any().over(panel))
    first = rows.filter(
        pl.col(source.key) == pl.col(source.key).first().over(by, *([panel] if panel else []))
    )
    if ratio and first[by].dtype.is_float():
        parts = first.partition_by(panel, maintain_order=True) if panel else [first]
        first = pl.concat([_fill_ratios(part, chart.x, chart.y, ratio, by) for part in parts])
    values = sorted(first[by].unique().to_list())
    names = {value: format_setting(value) for value in values}
    colours = {
        name: "#000000" if name == INFINITE else PALETTE[i % (len(PALETTE) - 1)]
        for i, name in enumerate(names.values())
    }
    placed = first.select(
        *([panel] if panel else []),
        x=pl.col(chart.x),
        density=pl.col(chart.y),
        ratio=pl.col(ratio) if ratio else None,
        series=pl.col(by).replace_strict(names, return_dtype=pl.String),
    )
    if chart.guide is not None and source.has_values(first, chart.guide[0]):
        column, name = chart.guide
        last = first.filter(pl.col(by) == (pl.col(by).max().over(panel) if panel else pl.col(by).max()))
        guides = last.select(
            *([panel] if panel else []),
            x=pl.col(chart.x),
            density=pl.col(column),
            ratio=pl.col(ratio) * pl.col(column) / pl.col(chart.y) if ratio else None,
            series=pl.lit(name),
        )
        placed, colours = pl.concat([placed, guides]), colours | {name: GREY}
    groups = sorted(placed.group_by(panel), key=lambda pair: pair[0]) if panel else [(("",), placed)]

    def draw() -> Any:
        panels = [
            densities(
                group.select("x", "density", "ratio", "series"),
                source.verb.axis(chart.x),
                colours,
                source.verb.axis(by),
                source.verb.axis(ratio) if ratio else None,
                f"{panel.replace('_', ' ')} {format_setting(value)}" if panel else "",
            )
            for (value,), group in groups
        ]
        return alt.concat(*panels, columns=1 if ratio else 2)

    limit = INFINITE in colours and len(colours) > 1
    yield source.figure(chart, case, draw, DASHED if limit else "")


def _fill_ratios(rows: pl.DataFrame, x: str, y: str, ratio: str, by: str) -> pl.DataFrame:
    """Tasks of a study know their own law alone: their ratios are to the limit's line, between its points."""
    import numpy as np

    limit = rows.filter(pl.col(by).is_infinite() & (pl.col(y) > 0)).sort(x)
    if not limit.height or not rows[ratio].null_count():
        return rows
    line = np.interp(rows[x], limit[x], np.log(limit[y].to_numpy()), left=np.nan, right=np.nan)
    ratios = pl.Series(rows[y].to_numpy() / np.exp(line)).fill_nan(None)
    return rows.with_columns(pl.col(ratio).fill_null(ratios))


def _draw_spectrum(
    chart: Density, source: ChartData, case: Mapping[str, Any], rows: pl.DataFrame
) -> Iterator[Figure]:
    """One line over the histogram of what the verb beside it measured at the same settings."""
    key = rows[source.key][0]
    key_rows = source.rows.filter(pl.col(source.key) == key)
    row = key_rows.row(0, named=True)
    density = (
        source.tables[chart.table or ""]
        .filter(pl.col(source.key) == key)
        .select(
            x=pl.col(chart.x), density=pl.col(chart.y), detail=pl.col(chart.detail) if chart.detail else None
        )
    )
    values, name, notes = None, "", []
    if chart.bars is not None and source.simulation_data is not None:
        table, column = chart.bars
        students = rows_with_same_settings(source.simulation_data.rows, key_rows, [], source)
        drawn = source.simulation_data.tables.get(table, pl.DataFrame())
        if students.height and source.has_values(drawn, column):
            kept = drawn.filter(pl.col(source.key).is_in(students[source.key].to_list()))
            values = kept[column].drop_nulls().to_list()
            sizes = sorted(students[chart.sizes].unique()) if chart.sizes else []
            name = simulation_label(source.simulation_data, chart.sizes or "", sizes)
            notes.append("Bars: measured ones, those at zero left out.")
    outliers = row.get(chart.outliers) if chart.outliers else None
    places = [] if outliers is None else outliers if isinstance(outliers, list) else [outliers]
    if places:
        notes.append("The triangle is where an outlier is predicted.")
    draw = partial(
        spectrum,
        density,
        source.verb.axis(chart.x),
        values,
        atom=(row.get(chart.atom) if chart.atom else None) or 0.0,
        outliers=places,
        name=name,
    )
    yield source.figure(chart, case, draw, " ".join(notes))
