"""Trajectories: alignment and loss against time, error against samples, spectra one above the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.base.settings import declared
from attnlaw.report.curve_marks import curves
from attnlaw.report.labels import MOST_CASES, cases, free, varied
from attnlaw.report.marks import HEIGHT, WIDTH, Figure
from attnlaw.report.source import Source, averaged, called, same_settings
from attnlaw.report.style import PALETTE, inline

if TYPE_CHECKING:
    from attnlaw.base.charts import Own

POINTS = "Points: SGD, with one standard error."
DROPPED = ("times", "simulate", "seeds", "sensing", "batch", "spectrum", "statics")
SHORT = {
    "student ": "",
    "attention ": "",
    "output ": "",
    "learning rate ": "η = ",
    "target exponent ": "γ = ",
}
# Who learns what: other settings may follow from these (a direct student has no width).
KINDS = ("student", "attention", "tokens", "output")


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
    if source.has(rows, x, *panels):
        for case, own in _parts(source, rows.filter(pl.col(x) > 0)):
            yield _panels(chart, source, case, own, x, panels)


def _parts(source: Source, rows: pl.DataFrame) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    """The rows; too many lines for one figure are parted by the first setting that leaves few in each."""
    by = _apart(source, rows)
    if _lines_of(rows, by) <= MOST_CASES:
        yield {}, rows
        return
    for name in by:
        parts = list(cases(rows, [name])) if rows[name].n_unique() <= MOST_CASES else []
        if parts and all(_lines_of(own, _apart(source, own)) <= MOST_CASES for _, own in parts):
            yield from parts
            return


def _lines_of(rows: pl.DataFrame, by: list[str]) -> int:
    return rows.select(by).n_unique() if by else 1


def _differing(source: Source, rows: pl.DataFrame) -> list[str]:
    """The settings that differ between lines, who learns what first."""
    found = [name for name in varied(rows, source.settings) if name not in DROPPED]
    return sorted(found, key=lambda name: name not in KINDS)


def _apart(source: Source, rows: pl.DataFrame) -> list[str]:
    """Those of them that tell lines apart."""
    return free(rows, _differing(source, rows), [])


def _unless_default(source: Source, rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The rows with settings that go without saying null."""
    known = declared(source.verb.settings)
    there = {name: known[name].default for name in names if name in rows.columns}
    shown = [pl.col(name).replace(default, None) for name, default in there.items() if default is not None]
    return rows.with_columns(shown)


def _panels(
    chart: Own, source: Source, case: dict[str, Any], told: pl.DataFrame, x: str, panels: dict[str, bool]
) -> Figure:
    # Lines are named by what tells them apart, and by what else is not as it would be untold.
    by = _apart(source, told)
    more = [name for name in _differing(source, told) if name not in by]
    plain = partial(_unless_default, source, names=more)
    by += more
    lines = {y: _lines(source, plain(told), x, y, by) for y in panels}
    if x == "samples":
        lines = {y: _with_statics(source, *found) for y, found in lines.items()}
    points = {y: _points(source, told, x, y, by, plain) for y in panels}

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

    ending = POINTS if any(one is not None for one in points.values()) else ""
    return source.figure(chart, case, draw, ending)


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
    for long, short in SHORT.items():
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


def _points(
    source: Source,
    rows: pl.DataFrame,
    x: str,
    y: str,
    by: list[str],
    plain: Callable[[pl.DataFrame], pl.DataFrame],
) -> pl.DataFrame | None:
    beside = source.beside
    if beside is None:
        return None
    measured = beside.frame("runs")
    if not beside.has(measured, x, y, "simulate"):
        return None
    own = same_settings(measured.filter(pl.col(x) > 0).drop_nulls(y), rows, [x, *by, *DROPPED], source)
    if not own.height:
        return None
    found, _ = called(source, averaged(plain(own), x, y, [*by, "simulate"], beside.quantity(y, "runs")), by)
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
