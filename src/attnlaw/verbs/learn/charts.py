"""Scaling laws, error against observations for power-law targets; and what an error is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from attnlaw.render.charts.data import simulation_label
from attnlaw.render.charts.densities import spectrum
from attnlaw.render.charts.figure import HEIGHT, WIDTH, Figure, colour_encoding, palette
from attnlaw.render.charts.labels import rows_by_case, varying_settings
from attnlaw.render.charts.style import inline_data, log_ticks

if TYPE_CHECKING:
    from attnlaw.core.chart_specs import CustomChart
    from attnlaw.render.charts.data import ChartData


NO_LINE = pl.DataFrame(schema={"x": pl.Float64, "density": pl.Float64, "detail": pl.Int64})
SCALING_COLUMNS = ("observations", "estimation_error", "leading_error")


def scaling(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """Error against N/d, with the fitted and the predicted exponent of every line."""
    if not source.has_values(source.rows, *SCALING_COLUMNS):
        return
    # What is not above zero has no place on logarithmic axes.
    positive_rows = source.rows.filter(pl.all_horizontal(pl.col(SCALING_COLUMNS) > 0))
    names = source.other_settings(positive_rows, ["alpha"])
    lines = [
        line.sort("observations").with_columns(label=pl.lit(_exponents(source, line, names)))
        for _, line in (
            positive_rows.group_by(names, maintain_order=True) if names else [((), positive_rows)]
        )
        if line["observations"].n_unique() > 1
    ]
    if lines:
        rows = pl.concat(lines).select("label", "estimation_error", "observations", "leading_error")
        yield source.figure(chart, {}, partial(scaling_law, rows, source.verb.axis("estimation_error")))


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


PARTS = ("approximation_error", "underfitting_error", "overfitting_error")


def parts(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """Parts of the error over the samples, stacked, a figure for each other setting; not of a power law."""
    if not source.has_values(source.rows, "alpha", "target_rank", *PARTS):
        return
    rows = source.rows.drop_nulls(["alpha", "target_rank", *PARTS])
    for case, case_rows in rows_by_case(rows, source.other_settings(rows, ["alpha"])):
        if case_rows["alpha"].n_unique() > 1:
            label = source.verb.axis
            long = case_rows.select("alpha", *PARTS).unpivot(PARTS, index="alpha", variable_name="part")
            long = long.with_columns(pl.col("part").replace_strict({name: label(name) for name in PARTS}))
            titles = label("alpha"), label("estimation_error")
            yield source.figure(chart, case, partial(draw_parts, long, *titles))


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


def _exponents(source: ChartData, rows: pl.DataFrame, names: list[str]) -> str:
    """A line's label: its setting, the fitted power of N/d with its standard error, the predicted one."""
    slope, error = _slope(rows["observations"], rows["estimation_error"])
    fitted = f"{slope:.2f} ± {error:.2f}" if error is not None and error >= 0.005 else f"{slope:.2f}"
    predicted = rows["predicted_exponent"][0]
    exponents = (fitted if predicted is None else f"{fitted} ({predicted:.2f})").replace("-", "−")
    setting = source.value_labels.describe({name: rows[name][0] for name in names}).replace(
        "target exponent", "γ"
    )
    return f"{setting}: {exponents}" if setting else exponents


def _slope(x: pl.Series, y: pl.Series) -> tuple[float, float | None]:
    """The slope of a line through the logarithms, and its standard error beyond two points."""
    a, b = (np.log(values.to_numpy()) - np.log(values.to_numpy()).mean() for values in (x, y))
    slope = float(a @ b / (a @ a))
    left = float(((b - slope * a) ** 2).sum())
    return slope, math.sqrt(left / (a.size - 2) / float(a @ a)) if a.size > 2 else None


def eigenvalues(chart: CustomChart, source: ChartData) -> Iterator[Figure]:
    """The histogram of what trained students have, where no theory stands beside them."""
    rows = source.frame("eigenvalues")
    if not source.has_values(rows, "eigenvalue"):
        return
    for case, case_rows in rows_by_case(rows, varying_settings(rows, source.settings)):
        values, label = case_rows["eigenvalue"].to_list(), source.verb.label("eigenvalue")
        sizes = sorted(case_rows["simulate"].drop_nulls().unique())
        name = simulation_label(source, "simulate", sizes)
        yield source.figure(chart, case, partial(spectrum, NO_LINE, label, values, name=name))
