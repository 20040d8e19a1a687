"""Declared curves: lines of theory, points of what was measured beside it, thresholds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from attnlaw.base.charts import Curves
from attnlaw.report.curve_marks import curves
from attnlaw.report.labels import MOST_CASES, cases, varied
from attnlaw.report.marks import Figure
from attnlaw.report.source import Source, averaged, called, distinct, measured_name, same_settings

POINTS = (
    "Points: measured, with one standard error; where they lie on the lines, the theory holds at that size."
)
# More points of a line than this are not marked by dots.
MOST_DOTS = 40


def draw_curves(chart: Curves, source: Source) -> Iterator[Figure]:
    rows = source.frame(chart.table)
    if not source.has(rows, chart.x, chart.y, *([chart.needs] if chart.needs else [])):
        return
    told = rows.drop_nulls([chart.x, chart.y, *([chart.needs] if chart.needs else [])])
    if told[chart.x].dtype.is_float():
        told = told.filter(pl.col(chart.x).is_finite())
    if chart.log:
        told = told.filter(pl.col(chart.y) > 0)
    if chart.log or chart.log_x:
        told = told.filter(pl.col(chart.x) > 0)
    if distinct(told[chart.x]) < 2:
        return
    by = varied(told, chart.tellers)
    others = source.others(told, [chart.x, *by])
    points = _points(chart, source)
    if points is None and not by and others and told.select(others).n_unique() <= MOST_CASES:
        by, others = others, []
    for case, own in cases(told, others):
        if distinct(own[chart.x]) < 2:
            continue
        measured = None if points is None else same_settings(points, own, [chart.x, *by], source)
        yield _curve(chart, source, case, own, by, measured)


def _curve(
    chart: Curves,
    source: Source,
    case: Mapping[str, Any],
    rows: pl.DataFrame,
    by: list[str],
    measured: pl.DataFrame | None,
) -> Figure:
    quantity = source.quantity(chart.y, chart.table)
    lines, colours = called(source, averaged(rows, chart.x, chart.y, by, quantity), by)
    lines = lines.sort("x", maintain_order=True)
    spread = None if measured is None or not measured.height else _measured(chart, source, measured, by)
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
        dotted=max(longest) <= MOST_DOTS,
    )
    return source.figure(chart, case, draw, " ".join(filter(None, notes)))


def _thresholds(chart: Curves, source: Source, rows: pl.DataFrame) -> pl.DataFrame:
    """x and name of every threshold that the rows tell; those that differ by line say whose they are."""
    found: dict[tuple[float, str], None] = {}
    clean = () if chart.clean is None or rows[chart.clean[0]].max() else chart.clean[1]
    for column in (*clean, *chart.thresholds):
        if not source.has(rows, column):
            continue
        by = chart.tellers[:1]
        places = rows.select(column, *by).unique(maintain_order=True)
        one = places[column].n_unique() == 1
        for row in places.drop_nulls(column).iter_rows(named=True):
            whose = "" if one or not by else f" ({source.names.of(by[0], row[by[0]])})"
            found[row[column], f"{source.verb.axis(column)}{whose}"] = None
    schema = {"x": pl.Float64, "name": pl.String}
    return pl.DataFrame(list(found), schema=schema, orient="row")


def _points(chart: Curves, source: Source) -> pl.DataFrame | None:
    """The rows of the verb beside it that have what the chart shows."""
    if chart.points is None or source.beside is None:
        return None
    rows = source.beside.rows
    needed = [chart.x, chart.y, chart.points]
    return rows.drop_nulls(needed) if source.has(rows, *needed) else None


def _measured(chart: Curves, source: Source, rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Means of the verb beside it by size, with their errors, and the name of each size."""
    assert source.beside is not None
    assert chart.points is not None
    quantity = source.beside.quantity(chart.y)
    told, _ = called(source, averaged(rows, chart.x, chart.y, [*by, chart.points], quantity), by)
    sized = told.sort(chart.points, maintain_order=True)
    ending = " (± s.e.)" if sized["error"].count() else ""
    sizes = [f"{measured_name(source.beside, chart.points, [size])}{ending}" for size in sized[chart.points]]
    return sized.with_columns(size=pl.Series(sizes, dtype=pl.String))
