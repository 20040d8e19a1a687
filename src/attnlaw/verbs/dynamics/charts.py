"""Charts of `dynamics`: alignment and loss over time, error over samples, and spectra above each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from attnlaw.core.errors import InputError
from attnlaw.core.progress import no_progress
from attnlaw.core.quantity import column_kinds
from attnlaw.core.settings import setting_fields
from attnlaw.core.tables import nan_to_null, to_frame, to_schema
from attnlaw.render.charts.densities import ridge_panel
from attnlaw.render.charts.lines import draw_beside, draw_lines, line_charts
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import PALETTE
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart, has_values
from attnlaw.render.describe_rows import MOST_CASES, independent_settings, rows_by_case, varying_settings
from attnlaw.verbs.dynamics import TIMES, DynamicsSettings, solve

LABELS = {quantity.name: quantity.axis or quantity.label for quantity in TIMES}
POINTS_NOTE = (
    "Points: students trained by SGD, with one standard error. If the theory holds, they are on the line."
)
CURVE_POINTS = 60  # times at which a line of theory is computed, at least
IGNORED_SETTINGS = ("times", "simulate", "seeds", "sensing", "batch", "spectrum", "statics")
SHORT_LABELS = {
    "student ": "",
    "attention ": "",
    "output ": "",
    "learning rate ": "η = ",
    "target exponent ": "γ = ",
}
# These come first: other settings may follow from them (a direct student has no width).
LEARNER_SETTINGS = ("student", "attention", "tokens", "output")
# Students that keep their samples, with the columns of their errors and their colours.
STATIC_STUDENTS = {
    "minimiser of as many samples, best decay": ("minimiser_error", "#000000"),
    "Bayes-optimal": ("bayes_error", "#999999"),
}


@chart(
    "How attention learns",
    "Alignment with the target (1 is best: equal except for the scale) and loss of new samples (0 is "
    "best) over time. Lines: theory in the limit of large dimension.",
)
def learning(view: ChartView) -> Drawings:
    """Draw alignment and loss over time, with a line for each combination of settings."""
    return _trajectories(view, "time", {"alignment": False, "prediction_error": True})


@chart(
    "Error after one pass of SGD",
    "Error after each number of samples, each seen once, for several learning rates. Lower is better: 0 is "
    "the target itself. A larger learning rate needs fewer samples, as long as the error keeps falling.",
)
def cost(view: ChartView) -> Drawings:
    """Draw the error over the number of samples, if the cases have several learning rates."""
    if view.frame("trajectory")["learning_rate"].n_unique() > 1:
        yield from _trajectories(view, "samples", {"estimation_error": True})


@chart(
    "How trained students align",
    "Alignment of trained students with the target over time: 1 is best, equal except for the scale.",
)
def runs(view: ChartView) -> Drawings:
    """Draw the alignment of trained students, if there is no theory to compare with."""
    return line_charts(view, view.frame("runs"), "time", "alignment")


def _trajectories(view: ChartView, x: str, panels: dict[str, bool]) -> Drawings:
    """Draw a panel for each quantity against the column `x`. `panels` says which axes are logarithmic."""
    every = _more_times(view, view.frame("trajectory"))
    if not has_values(every, x, *panels):
        return
    for case, rows in _split_rows(view, every.filter(pl.col(x) > 0)):
        # A line is named by the settings that distinguish it, and by others that differ from their default.
        by = _line_settings(view, rows)
        more = [name for name in _varied_settings(view, rows) if name not in by]
        plain = partial(_hide_defaults, view, names=more)
        drawn, note = [], ""
        for y, log_y in panels.items():
            lines, colours = _lines(view, plain(rows), x, y, [*by, *more])
            points = _points(view, rows, x, y, [*by, *more], plain)
            note = note if points is None else POINTS_NOTE
            draw = partial(
                draw_lines,
                lines.filter(pl.col("y") > 0) if log_y else lines,
                LABELS[x],
                LABELS[y],
                colours,
                points=points,
                log_x=True,
                log_y=log_y,
                with_dots=False,
            )
            drawn.append(draw)
        yield Drawing(partial(draw_beside, drawn), case, note)


def _more_times(view: ChartView, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the trajectories at more times, if they have few and attnlaw still computes the same."""
    parts = []
    for case in rows.partition_by("case", maintain_order=True):
        row = view.rows.filter(pl.col("case") == case["case"][0]).row(0, named=True)
        parts.append(_dense(view, row, case) if 2 < case.height <= CURVE_POINTS else case)
    return pl.concat(parts, how="diagonal_relaxed") if parts else rows


def _dense(view: ChartView, row: dict[str, Any], rows: pl.DataFrame) -> pl.DataFrame:
    known = {name: row.get(column) for name, column in view.verb.setting_columns.items()}
    given = {name: value for name, value in known.items() if value is not None}
    try:
        first, last, count = given["times"].split(":")
        # The times of the rows are among the new ones.
        more = (int(count) - 1) * -(-CURVE_POINTS // (int(count) - 1)) + 1
        times = f"{first}:{last}:{more}"
        case = DynamicsSettings(**given | {"times": times, "spectrum": False, "statics": False})
        path = solve(case, no_progress).rows
    except (InputError, KeyError, ValueError):
        return rows
    dense = nan_to_null(to_frame(path, to_schema(column_kinds(TIMES))))
    step = (dense.height - 2) // (rows.height - 2)
    again = [0, *range(1, dense.height, step)]
    old, new = rows["alignment"].to_numpy(), dense["alignment"][again].to_numpy()
    if old.shape != new.shape or not np.allclose(old, new, rtol=1e-3, atol=1e-3, equal_nan=True):
        return rows
    kept = rows.head(1).drop(*(name for name in dense.columns if name in rows.columns))
    return kept.join(dense, how="cross")


def _split_rows(view: ChartView, rows: pl.DataFrame) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    """Yield all rows, or their parts by one setting, so that each figure has few lines; or nothing."""
    if _has_few_lines(view, rows):
        yield {}, rows
        return
    for name in _line_settings(view, rows):
        parts = list(rows_by_case(rows, [name])) if rows[name].n_unique() <= MOST_CASES else []
        if parts and all(_has_few_lines(view, part) for _, part in parts):
            yield from parts
            return


def _has_few_lines(view: ChartView, rows: pl.DataFrame) -> bool:
    by = _line_settings(view, rows)
    return not by or rows.select(by).n_unique() <= MOST_CASES


def _varied_settings(view: ChartView, rows: pl.DataFrame) -> list[str]:
    """Return the settings that differ between lines, with `LEARNER_SETTINGS` first."""
    names = [name for name in varying_settings(rows, view.settings) if name not in IGNORED_SETTINGS]
    return sorted(names, key=lambda name: name not in LEARNER_SETTINGS)


def _line_settings(view: ChartView, rows: pl.DataFrame) -> list[str]:
    return independent_settings(rows, _varied_settings(view, rows), [])


def _hide_defaults(view: ChartView, rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Replace default values of settings by null, so that no label mentions them."""
    known = setting_fields(view.verb.settings)
    there = {name: known[name].default for name in names if name in rows.columns}
    shown = [pl.col(name).replace(default, None) for name, default in there.items() if default is not None]
    return rows.with_columns(shown)


def _lines(
    view: ChartView, rows: pl.DataFrame, x: str, y: str, by: list[str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return the lines of the theory, and their colours by name; over samples, with static students."""
    means, colours = view.mean_lines(rows.drop_nulls([x, y]), x, y, by)
    no_error = pl.lit(None, dtype=pl.Float64)
    lines = _shorten_series(means.with_columns(error=no_error)).sort("x", maintain_order=True)
    hues = {_shorten_label(name): hue for name, hue in colours.items()}
    statics = view.frame("statics")
    if x != "samples" or not has_values(statics, "minimiser_error"):
        return lines, hues
    more = [
        statics.select(x="samples", y=column, error=no_error, series=pl.lit(name))
        for name, (column, _) in STATIC_STUDENTS.items()
    ]
    greys = {name: grey for name, (_, grey) in STATIC_STUDENTS.items()}
    return pl.concat([lines.select("x", "y", "error", "series"), *more]), hues | greys


def _shorten_series(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col("series").map_elements(_shorten_label, return_dtype=pl.String))


def _shorten_label(name: str) -> str:
    for long, short in SHORT_LABELS.items():
        name = name.replace(long, short)
    return name


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
    measured = view.simulation.frame("runs", y, "simulate").filter(pl.col(x) > 0)
    students = view.same_settings(measured, rows, [x, *by, *IGNORED_SETTINGS])
    if not students.height:
        return None
    points, _ = view.mean_lines(hide_defaults(students), x, y, by, "simulate")
    return _shorten_series(points).with_columns(size=pl.format("SGD, d = {}", "simulate"))


@chart(
    "The spectrum over time",
    "Densities of the student's eigenvalues at five times, the latest on top. A triangle shows the target's "
    "large eigenvalue (spike) once it is visible. The eigenvalues that reach their final place first were "
    "learned first.",
)
def spectra(view: ChartView) -> Drawings:
    """Draw the spectrum at several times, with bars for trained students and triangles for spikes."""
    rows = view.frame("spectra", "x", "density")
    names = [name for name in view.other_settings(rows, ["time"]) if name not in IGNORED_SETTINGS]
    for case, case_rows in rows_by_case(rows, names):
        tracks = view.same_settings(view.frame("tracks", "location"), case_rows, ["time"])
        values = pl.DataFrame()
        if view.simulation is not None:
            eigenvalues = view.simulation.frame("eigenvalues")
            values = view.same_settings(eigenvalues, case_rows, ["time", *IGNORED_SETTINGS])
        note = "Bars: eigenvalues of students trained by SGD." if values.height else ""
        yield Drawing(partial(ridge, case_rows, tracks, values, view.verb.label("x")), case, note)


def ridge(rows: pl.DataFrame, tracks: pl.DataFrame, values: pl.DataFrame, x: str) -> alt.VConcatChart:
    """Draw a panel for each time: densities, visible spikes, and eigenvalues of trained students."""
    times = sorted(rows["time"].unique())
    right = max([*rows["x"], *tracks["location"]])
    scale = alt.Scale(domain=[min([*rows["x"], 0.0]), 1.05 * right], nice=False)
    panels = []
    for i, time in enumerate(times):
        curve = rows.filter(pl.col("time") == time)
        # A peak at zero would flatten the rest, so the axis ends at 1.3 times the largest height beyond it.
        inner = curve.filter(pl.col("x") > 0.05 * pl.col("x").max())
        top = 1.3 * max(inner["density"])
        axis = alt.Axis(labels=i == 0, ticks=i == 0, grid=False)
        bars = _bars(values.filter(pl.col("time") == time), right, top) if values.height else []
        seen = tracks.filter(pl.col("time") == time)["location"]
        panel = ridge_panel(
            f"τ = {time:.3g}",
            curve.select("x", "density"),
            alt.X("x:Q", title=None if i else x, scale=scale, axis=axis),
            alt.Y("density:Q", title=None, scale=alt.Scale(domain=[0, top]), axis=None),
            bars=bars,
            marks=[{"x": place, "density": 0.08 * top} for place in seen],
            hue=PALETTE[i],
            clip=True,
        )
        panels.append(panel)
    return alt.vconcat(*reversed(panels), spacing=2).resolve_scale(y="independent")


def _bars(values: pl.DataFrame, right: float, top: float) -> list[dict[str, float]]:
    """Return the bars of a histogram, normalised as a density that also counts values out of the picture."""
    edges = np.linspace(0.0, 1.05 * right, 49)
    count, _ = np.histogram(values["eigenvalue"].to_numpy(), bins=edges)
    width = edges[1] - edges[0]
    heights = np.minimum(count / (values.height * width), top)
    return [
        {"x": float(low), "x2": float(low + width), "density": float(height), "low": 0.0}
        for low, height in zip(edges[:-1], heights, strict=True)
        if height
    ]
