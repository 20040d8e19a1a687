"""Trajectories: alignment and loss against time, error against samples, spectra one above the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.report.curve_marks import curves
from attnlaw.report.labels import MOST_CASES, cases, free, varied
from attnlaw.report.marks import HEIGHT, WIDTH, Figure
from attnlaw.report.source import Source, averaged, called, same_settings
from attnlaw.report.style import PALETTE, inline

if TYPE_CHECKING:
    from attnlaw.base.charts import Own

POINTS = "Points: SGD, with one standard error."
DROPPED = ("times", "simulate", "seeds", "sensing", "batch", "spectrum", "statics")


def learning(chart: Own, source: Source) -> Iterator[Figure]:
    """Alignment and loss against time, one line for each setting that varies."""
    panels = {"alignment": False, "prediction_error": True}
    yield from _against(chart, source, "time", panels)


def cost(chart: Own, source: Source) -> Iterator[Figure]:
    """Error against samples, where several learning rates were run."""
    rows = source.frame("trajectory")
    if source.has(rows, "samples") and rows["learning_rate"].n_unique() > 1:
        yield from _against(chart, source, "samples", {"estimation_error": True})


def _against(chart: Own, source: Source, x: str, panels: dict[str, bool]) -> Iterator[Figure]:
    rows = source.frame("trajectory")
    if not source.has(rows, x, *panels):
        return
    told = rows.filter(pl.col(x) > 0)
    by = free(told, [name for name in varied(told, source.settings) if name not in DROPPED], [])
    if told.select(by).n_unique() > MOST_CASES if by else False:
        return
    lines = {y: _lines(source, told, x, y, by) for y in panels}
    if x == "samples":
        lines = {y: _with_statics(source, *found) for y, found in lines.items()}
    points = {y: _points(source, told, x, y, by) for y in panels}

    def draw() -> Any:
        import altair as alt

        drawn = []
        for y, log_y in panels.items():
            own, colours = lines[y]
            chart = curves(
                own.filter(pl.col("y") > 0) if log_y else own,
                _label(source, x, "trajectory"),
                _label(source, y, "trajectory"),
                colours,
                points=points[y],
                log_x=True,
                log_y=log_y,
                dotted=False,
            )
            drawn.append(chart)
        return alt.hconcat(*drawn, spacing=28) if len(drawn) > 1 else drawn[0]

    more = POINTS if any(one is not None for one in points.values()) else ""
    yield source.figure(chart, {}, draw, more)


def _label(source: Source, name: str, table: str) -> str:
    quantity = source.quantity(name, table)
    return name if quantity is None else quantity.label


def _lines(
    source: Source, rows: pl.DataFrame, x: str, y: str, by: list[str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """The theory; its own errors are smaller than a line and are left to the table."""
    found = averaged(rows.drop_nulls([x, y]), x, y, by, source.quantity(y, "trajectory"))
    own, colours = called(source, found.with_columns(error=pl.lit(None, dtype=pl.Float64)), by)
    return _short(own).sort("x", maintain_order=True), {_brief(name): hue for name, hue in colours.items()}


def _short(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with series that fit a legend."""
    return rows.with_columns(pl.col("series").map_elements(_brief, return_dtype=pl.String))


def _brief(name: str) -> str:
    for long, short in (("student ", ""), ("learning rate ", "η = "), ("target exponent ", "γ = ")):
        name = name.replace(long, short)
    return name


def _with_statics(
    source: Source, lines: pl.DataFrame, colours: dict[str, str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """The lines with those of students that may keep their samples."""
    beside = source.frame("statics")
    if not source.has(beside, "minimiser_error"):
        return lines, colours
    known = {"minimiser of as many, best decay": "minimiser_error", "Bayes-optimal": "bayes_error"}
    more = [
        beside.select(x="samples", y=column, error=pl.lit(None, dtype=pl.Float64), series=pl.lit(name))
        for name, column in known.items()
    ]
    greys = dict(zip(known, ("#000000", "#999999"), strict=True))
    return pl.concat([lines.select("x", "y", "error", "series"), *more]), colours | greys


def _points(source: Source, rows: pl.DataFrame, x: str, y: str, by: list[str]) -> pl.DataFrame | None:
    beside = source.beside
    if beside is None:
        return None
    measured = beside.frame("runs")
    if not beside.has(measured, x, y, "simulate"):
        return None
    own = same_settings(measured.filter(pl.col(x) > 0).drop_nulls(y), rows, [x, *by, *DROPPED], source)
    if not own.height:
        return None
    found, _ = called(source, averaged(own, x, y, [*by, "simulate"], beside.quantity(y, "runs")), by)
    names = [f"SGD, d = {size}" for size in found["simulate"]]
    return _short(found).with_columns(size=pl.Series(names, dtype=pl.String))


def spectra(chart: Own, source: Source) -> Iterator[Figure]:
    """A ridge of densities, the earliest at the bottom, eigenvalues of SGD behind them, and a spike."""
    rows = source.frame("spectra")
    if not source.has(rows, "x", "density"):
        return
    names = [name for name in source.others(rows, ["time"]) if name not in DROPPED]
    for case, own in cases(rows, names):
        tracks = source.frame("tracks")
        if tracks.height:
            tracks = same_settings(tracks, own, ["time"], source)
        values = None
        if source.beside is not None:
            measured = source.beside.frame("eigenvalues")
            if source.has(measured, "eigenvalue"):
                values = same_settings(measured, own, ["time", *DROPPED], source)
        draw = partial(ridge, own, tracks, values, _label(source, "x", "spectra"))
        more = "" if values is None or not values.height else "Bars: eigenvalues of students trained by SGD."
        yield source.figure(chart, case, draw, more)


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
        own = rows.filter(pl.col("time") == time)
        # A peak at zero would flatten all else: it is cut at four times the mean height beyond it.
        inner = own.filter(pl.col("x") > 0.05 * pl.col("x").max())
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
        line = alt.Chart(inline(own.select("x", "density").to_dicts()))
        layers.append(line.mark_line(clip=True, color=hue).encode(x=across, y=up))
        seen = (
            tracks.filter((pl.col("time") == time) & pl.col("location").is_not_null())
            if tracks.height
            else None
        )
        if seen is not None and seen.height:
            places = [{"x": place, "density": 0.08 * top} for place in seen["location"]]
            mark = alt.Chart(inline(places)).mark_point(
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
    base = alt.Chart(inline(bars)).mark_rect(color="#B8C9D9", clip=True)
    return base.encode(x=across, x2="x2:Q", y=alt.Y("density:Q", axis=None), y2="low:Q")
