"""Phases, learning curves, spectra and scaling laws; and what an error is made of."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from attnlaw.core.result import Result
from attnlaw.render.charts.cells import Shades, draw_field, is_evenly_spaced
from attnlaw.render.charts.densities import draw_spectrum
from attnlaw.render.charts.figure import HEIGHT, WIDTH, Figure, colour_encoding, palette
from attnlaw.render.charts.labels import rows_by_case, varying_settings
from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.style import inline_data, log_ticks
from attnlaw.render.charts.view import ChartView, has_values, rows_with_same_settings, simulation_label

INTERPOLATION = "threshold_interpolation"
RECOVERIES = ("threshold_recovery", "threshold_feasibility", "threshold_bayes", "threshold_direct")
NO_LINE = pl.DataFrame(schema={"x": pl.Float64, "density": pl.Float64, "detail": pl.Int64})
SCALING_COLUMNS = ("observations", "estimation_error", "leading_error")
PARTS = ("approximation_error", "underfitting_error", "overfitting_error")


def phases(result: Result) -> list[Figure]:
    """The phase diagram, where ranks and samples make an even grid."""
    view = ChartView(result)
    rows = view.complete(view.rows, "relative_error", "alpha", "target_rank")
    return [
        view.figure(
            "phases",
            "Phase diagram",
            "Error over that of predicting nothing, by target rank and samples: dark is learned. White "
            "lines are thresholds, where learning changes its nature.",
            partial(_draw_phases, view, case_rows),
            case,
        )
        for case, case_rows in view.cases(rows, ["target_rank", "alpha"])
        if is_evenly_spaced(case_rows["target_rank"]) and is_evenly_spaced(case_rows["alpha"])
    ]


def _draw_phases(view: ChartView, rows: pl.DataFrame) -> Any:
    axis = view.verb.axis
    ranks = rows.unique("target_rank", keep="first", maintain_order=True).sort("target_rank")
    thresholds = [
        ranks.select(x="target_rank", y=column, name=pl.lit(axis(column))).drop_nulls("y")
        for column in (*RECOVERIES, INTERPOLATION)
    ]
    return draw_field(
        rows.select(x="target_rank", y="alpha", colour="relative_error"),
        pl.concat(thresholds),
        axis("target_rank"),
        axis("alpha"),
        axis("relative_error"),
        Shades(domain=(0.0, 1.0)),
    )


def learning(result: Result) -> list[Figure]:
    """Learning curves, unless a phase diagram shows the same; not of a power law."""
    if phases(result):
        return []
    view = ChartView(result)
    drawings = line_charts(
        view,
        view.complete(view.rows, "target_rank"),
        "alpha",
        "estimation_error",
        ["student", "attention", "pairs"],
        sizes="simulate",
        thresholds=partial(_thresholds, view),
    )
    caption = "Lines: theory in the limit of large dimension."
    return view.figures("learning", "Learning curves", caption, drawings)


def _thresholds(view: ChartView, rows: pl.DataFrame) -> pl.DataFrame:
    """x and name of every threshold; those that differ by student say whose they are.

    Recovery is a threshold of clean labels.
    """
    thresholds: dict[tuple[float, str], None] = {}
    for column in (INTERPOLATION,) if rows["noise"].max() else (*RECOVERIES, INTERPOLATION):
        places = rows.select(column, "student").unique(maintain_order=True)
        alone = places[column].n_unique() == 1
        for place, student in places.drop_nulls(column).iter_rows():
            whose = "" if alone else f" ({view.value_labels.label_of('student', student)})"
            thresholds[place, f"{view.verb.axis(column)}{whose}"] = None
    return pl.DataFrame(list(thresholds), schema={"x": pl.Float64, "name": pl.String}, orient="row")


def rank(result: Result) -> list[Figure]:
    view = ChartView(result)
    return view.figures(
        "rank",
        "Rank against the width of the factors",
        "Share of values that are not zero. Off the diagonal weight decay, not width, cuts the rank.",
        line_charts(view, view.rows, "width", "rank_fraction", sizes="simulate"),
    )


def smallest(result: Result) -> list[Figure]:
    view = ChartView(result)
    return view.figures(
        "smallest",
        "Smallest value that is kept",
        "Away from zero width, not weight decay, cut the rank.",
        line_charts(view, view.rows, "width", "smallest_value"),
    )


def scaling(result: Result) -> Figure | None:
    """Error against N/d, with the fitted and the predicted exponent of every line."""
    view = ChartView(result)
    # What is not above zero has no place on logarithmic axes.
    rows = view.complete(view.rows, *SCALING_COLUMNS).filter(pl.all_horizontal(pl.col(SCALING_COLUMNS) > 0))
    names = view.other_settings(rows, ["alpha"])
    lines = [
        line.sort("observations").with_columns(label=pl.lit(_exponents(view, line, names)))
        for _, line in (rows.group_by(names, maintain_order=True) if names else [((), rows)])
        if line["observations"].n_unique() > 1
    ]
    if not lines:
        return None
    drawn = pl.concat(lines).select("label", "estimation_error", "observations", "leading_error")
    return view.figure(
        "scaling",
        "Scaling laws",
        "Error against the observations for targets whose eigenvalues fall as a power: full "
        "equations (lines), leading-order law (dashed). Exponents are fitted to the lines, with an error "
        "where the digits show it; predicted ones stand in brackets.",
        partial(scaling_law, drawn, view.verb.axis("estimation_error")),
    )


def scaling_law(rows: pl.DataFrame, y: str) -> Any:
    """Full equations as lines, the leading-order law dashed, on logarithmic axes.

    `rows`: observations, label, estimation_error, leading_error.
    """
    import altair as alt

    ticks = alt.Axis(values=log_ticks(rows["observations"]), format="~g")
    scale = alt.Scale(type="log", nice=False)
    across = alt.X("observations:Q", title="observations N/d", scale=scale, axis=ticks)
    lowest = min(rows["estimation_error"].to_list() + rows["leading_error"].to_list())
    decades = [10.0**power for power in range(math.floor(math.log10(lowest)), 2)]
    up = alt.Y("estimation_error:Q", title=y, scale=scale, axis=alt.Axis(values=decades, format="~g"))
    hue = colour_encoding(palette(rows["label"]), "label", legend_for_one=True)
    base = alt.Chart(inline_data(rows.to_dicts())).encode(x=across, color=hue)
    dashed = base.mark_line(strokeDash=[4, 3], strokeWidth=1.1)
    both = alt.layer(base.mark_line().encode(y=up), dashed.encode(y=alt.Y("leading_error:Q", scale=scale)))
    title = "full equations (solid) and leading order (dashed)"
    return both.properties(width=WIDTH, height=HEIGHT, title=title)


def split(result: Result) -> list[Figure]:
    """Parts of the error over the samples, stacked, unless there is a phase diagram; not of a power law."""
    if phases(result):
        return []
    view = ChartView(result)
    axis = view.verb.axis
    figures = []
    rows = view.complete(view.rows, "alpha", "target_rank", *PARTS)
    for case, case_rows in view.cases(rows, ["alpha"]):
        if case_rows["alpha"].n_unique() == 1:
            continue
        long = case_rows.select("alpha", *PARTS).unpivot(PARTS, index="alpha", variable_name="part")
        long = long.with_columns(pl.col("part").replace_strict({name: axis(name) for name in PARTS}))
        figure = view.figure(
            "split",
            "What the error is made of",
            "Parts of the error over the samples (a definition of ours): modes that were found but not "
            "exactly, what is missing along the target, what was learned beside it.",
            partial(draw_parts, long, axis("alpha"), axis("estimation_error")),
            case,
            on_page=False,
        )
        figures.append(figure)
    return figures


def draw_parts(rows: pl.DataFrame, x: str, y: str) -> Any:
    """Areas of `value` over `alpha` that add up, a colour for each `part`."""
    import altair as alt

    names = rows["part"].unique(maintain_order=True)
    base = alt.Chart(inline_data(rows.to_dicts())).mark_area()
    return base.encode(
        x=alt.X("alpha:Q", title=x, scale=alt.Scale(nice=False)),
        y=alt.Y("sum(value):Q", title=y, stack="zero"),
        color=colour_encoding(palette(names), "part", legend_for_one=True),
    ).properties(width=WIDTH, height=HEIGHT)


def _exponents(view: ChartView, rows: pl.DataFrame, names: list[str]) -> str:
    """A line's label: its setting, the fitted power of N/d with its standard error, the predicted one."""
    slope, error = _slope(rows["observations"], rows["estimation_error"])
    fitted = f"{slope:.2f} ± {error:.2f}" if error is not None and error >= 0.005 else f"{slope:.2f}"
    predicted = rows["predicted_exponent"][0]
    exponents = (fitted if predicted is None else f"{fitted} ({predicted:.2f})").replace("-", "−")
    setting = view.value_labels.describe({name: rows[name][0] for name in names}).replace(
        "target exponent", "γ"
    )
    return f"{setting}: {exponents}" if setting else exponents


def _slope(x: pl.Series, y: pl.Series) -> tuple[float, float | None]:
    """The slope of a line through the logarithms, and its standard error beyond two points."""
    a, b = (np.log(values.to_numpy()) - np.log(values.to_numpy()).mean() for values in (x, y))
    slope = float(a @ b / (a @ a))
    left = float(((b - slope * a) ** 2).sum())
    return slope, math.sqrt(left / (a.size - 2) / float(a @ a)) if a.size > 2 else None


def spectrum(result: Result) -> list[Figure]:
    """The predicted density over what students of the same settings have, each setting once."""
    view = ChartView(result)
    lines = view.complete(view.frame("predicted_spectra"), "x", "density")
    if not lines.height:  # nothing is left but the atom, if that
        alone = view.rows.height == 1 and view.rows["atom_at_zero"][0] == 1.0
        return [_spectrum(view, {}, view.rows, NO_LINE)] if alone else []
    figures = []
    for case, case_lines in rows_by_case(lines, varying_settings(lines, view.settings)):
        first = pl.col("case") == case_lines["case"][0]
        density = lines.filter(first).select("x", "density", detail="interval")
        figures.append(_spectrum(view, case, view.rows.filter(first), density))
    return figures


def _spectrum(view: ChartView, case: dict[str, Any], rows: pl.DataFrame, density: pl.DataFrame) -> Figure:
    """The figure of the case whose row is given."""
    row = rows.row(0, named=True)
    caption = ["Line: the predicted density of the learned matrix's eigenvalues."]
    values, name = None, ""
    if view.simulation is not None:
        students = rows_with_same_settings(view.simulation.rows, rows, [], view)
        drawn = view.simulation.frame("eigenvalues")
        if students.height and has_values(drawn, "eigenvalue"):
            kept = drawn.filter(pl.col("case").is_in(students["case"].to_list()))
            values = kept["eigenvalue"].drop_nulls().to_list()
            name = simulation_label(view.simulation, "simulate", sorted(students["simulate"].unique()))
            caption.append("Bars: measured ones, those at zero left out.")
    outliers = row["outlier_locations"] or []
    if outliers:
        caption.append("The triangle is where an outlier is predicted.")
    draw = partial(
        draw_spectrum,
        density,
        view.verb.axis("x"),
        values,
        atom=row["atom_at_zero"] or 0.0,
        outliers=outliers,
        name=name,
    )
    return view.figure("spectrum", "Spectrum of the learned matrix", " ".join(caption), draw, case)


def eigenvalues(result: Result) -> list[Figure]:
    """The histogram of what trained students have, where no theory stands beside them."""
    view = ChartView(result)
    rows = view.frame("eigenvalues")
    if not has_values(rows, "eigenvalue"):
        return []
    figures = []
    for case, case_rows in rows_by_case(rows, varying_settings(rows, view.settings)):
        name = simulation_label(view, "simulate", sorted(case_rows["simulate"].drop_nulls().unique()))
        values, label = case_rows["eigenvalue"].to_list(), view.verb.label("eigenvalue")
        figure = view.figure(
            "eigenvalues",
            "Spectrum of trained matrices",
            "Eigenvalues of all students, those at zero left out.",
            partial(draw_spectrum, NO_LINE, label, values, name=name),
            case,
        )
        figures.append(figure)
    return figures
