"""Trajectories: alignment and loss against time, error against samples, spectra one above the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import polars as pl

from attnlaw.core.result import Result
from attnlaw.core.settings import setting_fields
from attnlaw.render.charts.figure import HEIGHT, WIDTH, Figure
from attnlaw.render.charts.labels import MOST_CASES, independent_settings, rows_by_case, varying_settings
from attnlaw.render.charts.lines import draw_lines, line_charts
from attnlaw.render.charts.style import PALETTE, inline_data
from attnlaw.render.charts.view import (
    ChartView,
    Drawing,
    average_repetitions,
    has_values,
    rows_with_same_settings,
    with_series,
)
from attnlaw.verbs.dynamics import TIMES

LABELS = {quantity.name: quantity.label for quantity in TIMES}
POINTS_NOTE = "Points: SGD, with one standard error."
IGNORED_SETTINGS = ("times", "simulate", "seeds", "sensing", "batch", "spectrum", "statics")
SHORT_LABELS = {
    "student ": "",
    "attention ": "",
    "output ": "",
    "learning rate ": "η = ",
    "target exponent ": "γ = ",
}
# Who learns what: other settings may follow from these (a direct student has no width).
LEARNER_SETTINGS = ("student", "attention", "tokens", "output")


def learning(result: Result) -> list[Figure]:
    """Alignment and loss against time, one line for each setting that varies."""
    view = ChartView(result)
    return view.figures(
        "learning",
        "How attention learns",
        "Alignment with the target and loss on fresh clean labels against time. Lines: theory in the "
        "limit of large dimension.",
        _trajectories(view, "time", {"alignment": False, "prediction_error": True}),
    )


def cost(result: Result) -> list[Figure]:
    """Error against samples, where several learning rates were run."""
    view = ChartView(result)
    rows = view.frame("trajectory")
    if not has_values(rows, "samples") or rows["learning_rate"].n_unique() == 1:
        return []
    return view.figures(
        "cost",
        "What one pass costs",
        "Error against samples seen once each, for several learning rates.",
        _trajectories(view, "samples", {"estimation_error": True}),
    )


def runs(result: Result) -> list[Figure]:
    """The alignment of trained students, where no theory stands beside them."""
    view = ChartView(result)
    drawings = line_charts(view, view.frame("runs"), "time", "alignment")
    return view.figures("runs", "How trained students align", "", drawings)


def _trajectories(view: ChartView, x: str, panels: dict[str, bool]) -> Iterator[Drawing]:
    """Panels of quantities over `x`, each with whether its axis is logarithmic."""
    rows = view.frame("trajectory")
    if has_values(rows, x, *panels):
        for case, part in _split_rows(view, rows.filter(pl.col(x) > 0)):
            yield _draw_trajectories(view, case, part, x, panels)


def _split_rows(view: ChartView, rows: pl.DataFrame) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    """The rows; too many lines for one figure are parted by the first setting that leaves few in each."""
    by = _line_settings(view, rows)
    if _count_lines(rows, by) <= MOST_CASES:
        yield {}, rows
        return
    for name in by:
        parts = list(rows_by_case(rows, [name])) if rows[name].n_unique() <= MOST_CASES else []
        if parts and all(_count_lines(part, _line_settings(view, part)) <= MOST_CASES for _, part in parts):
            yield from parts
            return


def _count_lines(rows: pl.DataFrame, by: list[str]) -> int:
    return rows.select(by).n_unique() if by else 1


def _varied_settings(view: ChartView, rows: pl.DataFrame) -> list[str]:
    """The settings that differ between lines, who learns what first."""
    names = [name for name in varying_settings(rows, view.settings) if name not in IGNORED_SETTINGS]
    return sorted(names, key=lambda name: name not in LEARNER_SETTINGS)


def _line_settings(view: ChartView, rows: pl.DataFrame) -> list[str]:
    """Those of them that tell lines apart."""
    return independent_settings(rows, _varied_settings(view, rows), [])


def _hide_defaults(view: ChartView, rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The rows with settings that go without saying null."""
    known = setting_fields(view.verb.settings)
    there = {name: known[name].default for name in names if name in rows.columns}
    shown = [pl.col(name).replace(default, None) for name, default in there.items() if default is not None]
    return rows.with_columns(shown)


def _draw_trajectories(
    view: ChartView, case: dict[str, Any], rows: pl.DataFrame, x: str, panels: dict[str, bool]
) -> Drawing:
    # Lines are named by what tells them apart, and by what else is not as it would be untold.
    by = _line_settings(view, rows)
    more = [name for name in _varied_settings(view, rows) if name not in by]
    plain = partial(_hide_defaults, view, names=more)
    by += more
    lines = {y: _lines(view, plain(rows), x, y, by) for y in panels}
    if x == "samples":
        lines = {y: _with_statics(view, *coloured_lines) for y, coloured_lines in lines.items()}
    points = {y: _points(view, rows, x, y, by, plain) for y in panels}

    def draw() -> Any:
        import altair as alt

        drawn = []
        for y, log_y in panels.items():
            line_rows, colours = lines[y]
            chart = draw_lines(
                line_rows.filter(pl.col("y") > 0) if log_y else line_rows,
                LABELS[x],
                LABELS[y],
                colours,
                points=points[y],
                log_x=True,
                log_y=log_y,
                with_dots=False,
            )
            drawn.append(chart)
        return alt.hconcat(*drawn, spacing=28) if len(drawn) > 1 else drawn[0]

    ending = POINTS_NOTE if any(frame is not None for frame in points.values()) else ""
    return Drawing(draw, case, ending)


def _lines(
    view: ChartView, rows: pl.DataFrame, x: str, y: str, by: list[str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """The theory; its own errors are smaller than a line and are left to the table."""
    means = average_repetitions(rows.drop_nulls([x, y]), x, y, by)
    line_rows, colours = with_series(view, means.with_columns(error=pl.lit(None, dtype=pl.Float64)), by)
    return _shorten_series(line_rows).sort("x", maintain_order=True), {
        _shorten_label(name): hue for name, hue in colours.items()
    }


def _shorten_series(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with series that fit a legend."""
    return rows.with_columns(pl.col("series").map_elements(_shorten_label, return_dtype=pl.String))


def _shorten_label(name: str) -> str:
    for long, short in SHORT_LABELS.items():
        name = name.replace(long, short)
    return name


def _with_statics(
    view: ChartView, lines: pl.DataFrame, colours: dict[str, str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """The lines with those of students that may keep their samples."""
    beside = view.frame("statics")
    if not has_values(beside, "minimiser_error"):
        return lines, colours
    known = {"minimiser of as many, best decay": "minimiser_error", "Bayes-optimal": "bayes_error"}
    more = [
        beside.select(x="samples", y=column, error=pl.lit(None, dtype=pl.Float64), series=pl.lit(name))
        for name, column in known.items()
    ]
    greys = dict(zip(known, ("#000000", "#999999"), strict=True))
    return pl.concat([lines.select("x", "y", "error", "series"), *more]), colours | greys


def _points(
    view: ChartView,
    rows: pl.DataFrame,
    x: str,
    y: str,
    by: list[str],
    hide_defaults: Callable[[pl.DataFrame], pl.DataFrame],
) -> pl.DataFrame | None:
    if view.simulation is None:
        return None
    measured = view.simulation.frame("runs")
    if not has_values(measured, x, y, "simulate"):
        return None
    runs = rows_with_same_settings(
        measured.filter(pl.col(x) > 0).drop_nulls(y), rows, [x, *by, *IGNORED_SETTINGS], view
    )
    if not runs.height:
        return None
    points, _ = with_series(view, average_repetitions(hide_defaults(runs), x, y, [*by, "simulate"]), by)
    names = [f"SGD, d = {size}" for size in points["simulate"]]
    return _shorten_series(points).with_columns(size=pl.Series(names, dtype=pl.String))


def spectra(result: Result) -> list[Figure]:
    """A ridge of densities, the earliest at the bottom, eigenvalues of SGD behind them, and a spike."""
    view = ChartView(result)
    rows = view.complete(view.frame("spectra"), "x", "density")
    names = [name for name in view.other_settings(rows, ["time"]) if name not in IGNORED_SETTINGS]
    figures = []
    for case, case_rows in rows_by_case(rows, names) if rows.height else ():
        tracks = view.frame("tracks")
        if tracks.height:
            tracks = rows_with_same_settings(tracks, case_rows, ["time"], view)
        values = None if view.simulation is None else view.simulation.frame("eigenvalues")
        if values is not None and values.height:
            values = rows_with_same_settings(values, case_rows, ["time", *IGNORED_SETTINGS], view)
        caption = (
            "Densities of the student's eigenvalues at five times, the latest on top; a triangle is "
            "where the target's spike is seen."
        )
        if values is not None and values.height:
            caption += " Bars: eigenvalues of students trained by SGD."
        draw = partial(ridge, case_rows, tracks, values, view.verb.label("x"))
        figures.append(view.figure("spectra", "The spectrum on its way", caption, draw, case))
    return figures


def ridge(rows: pl.DataFrame, tracks: pl.DataFrame, values: pl.DataFrame | None, x: str) -> Any:
    """`rows`: time, x, density; `tracks`: time, location; `values`: time, eigenvalue."""
    import altair as alt

    times = sorted(rows["time"].unique())
    right = float(rows["x"].max())  # type: ignore[arg-type]
    if tracks.height and tracks["location"].count():
        right = max(right, float(tracks["location"].max()))  # type: ignore[arg-type]
    left = min(float(rows["x"].min()), 0.0)  # type: ignore[arg-type]
    scale = alt.Scale(domain=[left, 1.05 * right], nice=False)
    panels = []
    for i, time in enumerate(reversed(times)):
        curve = rows.filter(pl.col("time") == time)
        # A peak at zero would flatten all else: it is cut at four times the mean height beyond it.
        inner = curve.filter(pl.col("x") > 0.05 * pl.col("x").max())
        top = 1.3 * float(inner["density"].max())  # type: ignore[arg-type]
        hue = PALETTE[len(times) - 1 - i]
        last = i == len(times) - 1
        across = alt.X(
            "x:Q", title=x if last else None, scale=scale, axis=alt.Axis(labels=last, ticks=last, grid=False)
        )
        up = alt.Y("density:Q", title=None, scale=alt.Scale(domain=[0, top]), axis=None)
        layers = []
        if values is not None and values.height:
            layers.append(_bars(values.filter(pl.col("time") == time), right, across, top))
        line = alt.Chart(inline_data(curve.select("x", "density").to_dicts()))
        layers.append(line.mark_line(clip=True, color=hue).encode(x=across, y=up))
        seen = (
            tracks.filter((pl.col("time") == time) & pl.col("location").is_not_null())
            if tracks.height
            else None
        )
        if seen is not None and seen.height:
            places = [{"x": place, "density": 0.08 * top} for place in seen["location"]]
            mark = alt.Chart(inline_data(places)).mark_point(
                shape="triangle-down", filled=True, size=60, color="#000000"
            )
            layers.append(mark.encode(x=across, y=up))
        title = alt.TitleParams(f"τ = {time:.3g}", anchor="end", dy=14, frame="group")
        panels.append(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT // 3, title=title))
    return alt.vconcat(*panels, spacing=2).resolve_scale(y="independent")


def _bars(values: pl.DataFrame, right: float, across: Any, top: float) -> Any:
    """A histogram as a density, those at zero left out of the picture and not out of the count."""
    import altair as alt
    import numpy as np

    edges = np.linspace(0.0, 1.05 * right, 49)
    count, _ = np.histogram(values["eigenvalue"].to_numpy(), bins=edges)
    width = edges[1] - edges[0]
    bars = [
        {
            "x": float(low),
            "x2": float(low + width),
            "density": min(float(n / (values.height * width)), top),
            "low": 0.0,
        }
        for low, n in zip(edges[:-1], count, strict=True)
        if n
    ]
    base = alt.Chart(inline_data(bars)).mark_rect(color="#B8C9D9", clip=True)
    return base.encode(x=across, x2="x2:Q", y=alt.Y("density:Q", axis=None), y2="low:Q")
