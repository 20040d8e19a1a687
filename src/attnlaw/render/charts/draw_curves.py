"""Declared curves: lines of theory, points of what was measured beside it, thresholds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from attnlaw.core.chart_specs import Curves
from attnlaw.render.charts.curves import curves
from attnlaw.render.charts.data import (
    ChartData,
    average_repetitions,
    count_distinct,
    rows_with_same_settings,
    simulation_label,
    with_series,
)
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.labels import MOST_CASES, rows_by_case, varying_settings

POINTS = (
    "Points: measured, with one standard error; where they lie on the lines, the theory holds at that size."
)
# More points of a line than this are not marked by dots.
MOST_DOTS = 40


def draw_curves(chart: Curves, source: ChartData) -> Iterator[Figure]:
    rows = source.frame(chart.table)
    if not source.has_values(rows, chart.x, chart.y, *([chart.needs] if chart.needs else [])):
        return
    usable_rows = rows.drop_nulls([chart.x, chart.y, *([chart.needs] if chart.needs else [])])
    if usable_rows[chart.x].dtype.is_float():
        usable_rows = usable_rows.filter(pl.col(chart.x).is_finite())
    if chart.log:
        usable_rows = usable_rows.filter(pl.col(chart.y) > 0)
    if chart.log or chart.log_x:
        usable_rows = usable_rows.filter(pl.col(chart.x) > 0)
    if count_distinct(usable_rows[chart.x]) < 2:
        return
    by = varying_settings(usable_rows, chart.line_columns)
    others = source.other_settings(usable_rows, [chart.x, *by])
    points = _simulation_rows(chart, source)
    if points is None and not by and others and usable_rows.select(others).n_unique() <= MOST_CASES:
        by, others = others, []
    for case, case_rows in rows_by_case(usable_rows, others):
        if count_distinct(case_rows[chart.x]) < 2:
            continue
        measured = (
            None if points is None else rows_with_same_settings(points, case_rows, [chart.x, *by], source)
        )
        yield _curve(chart, source, case, case_rows, by, measured)


def _curve(
    chart: Curves,
    source: ChartData,
    case: Mapping[str, Any],
    rows: pl.DataFrame,
    by: list[str],
    measured: pl.DataFrame | None,
) -> Figure:
    quantity = source.quantity(chart.y, chart.table)
    lines, colours = with_series(source, average_repetitions(rows, chart.x, chart.y, by, quantity), by)
    lines = lines.sort("x", maintain_order=True)
    spread = (
        None if measured is None or not measured.height else _average_by_size(chart, source, measured, by)
    )
    longest = lines.group_by("series").len()["len"].to_list()
    thresholds = _thresholds(chart, source, rows)
    notes = [
        "" if spread is None else POINTS,
        "Dotted lines are thresholds." if thresholds.height else "",
        "Bars are one standard error." if spread is None and lines["error"].count() else "",
    ]
    draw = partial(
        curves,
        lines,
        source.verb.axis(chart.x),
        source.verb.axis(chart.y),
        colours,
        points=spread,
        thresholds=thresholds,
        log=chart.log,
        log_x=chart.log_x,
        slope=chart.slope,
        from_zero=chart.points is not None,
        with_dots=max(longest) <= MOST_DOTS,
    )
    return source.figure(chart, case, draw, " ".join(filter(None, notes)))


def _thresholds(chart: Curves, source: ChartData, rows: pl.DataFrame) -> pl.DataFrame:
    """x and name of every threshold that the rows tell; those that differ by line say whose they are."""
    thresholds: dict[tuple[float, str], None] = {}
    clean = () if chart.clean is None or rows[chart.clean[0]].max() else chart.clean[1]
    for column in (*clean, *chart.thresholds):
        if not source.has_values(rows, column):
            continue
        by = chart.line_columns[:1]
        places = rows.select(column, *by).unique(maintain_order=True)
        is_single = places[column].n_unique() == 1
        for row in places.drop_nulls(column).iter_rows(named=True):
            whose = "" if is_single or not by else f" ({source.value_labels.label_of(by[0], row[by[0]])})"
            thresholds[row[column], f"{source.verb.axis(column)}{whose}"] = None
    schema = {"x": pl.Float64, "name": pl.String}
    return pl.DataFrame(list(thresholds), schema=schema, orient="row")


def _simulation_rows(chart: Curves, source: ChartData) -> pl.DataFrame | None:
    """The rows of the verb beside it that have what the chart shows."""
    if chart.points is None or source.simulation_data is None:
        return None
    rows = source.simulation_data.rows
    needed = [chart.x, chart.y, chart.points]
    return rows.drop_nulls(needed) if source.has_values(rows, *needed) else None


def _average_by_size(chart: Curves, source: ChartData, rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Means of the verb beside it by size, with their errors, and the name of each size."""
    assert source.simulation_data is not None
    assert chart.points is not None
    quantity = source.simulation_data.quantity(chart.y)
    means, _ = with_series(
        source, average_repetitions(rows, chart.x, chart.y, [*by, chart.points], quantity), by
    )
    sized = means.sort(chart.points, maintain_order=True)
    ending = " (± s.e.)" if sized["error"].count() else ""
    sizes = [
        f"{simulation_label(source.simulation_data, chart.points, [size])}{ending}"
        for size in sized[chart.points]
    ]
    return sized.with_columns(size=pl.Series(sizes, dtype=pl.String))
