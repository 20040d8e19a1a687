"""Charts of margins: D of every input, where kappa sits, and measured amplification beside the worst case."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import polars as pl

from attnlaw.core.result import Result
from attnlaw.render.charts.cells import cell_maps
from attnlaw.render.charts.figure import HEIGHT, WIDTH, Figure, colour_encoding
from attnlaw.render.charts.style import LETTER, inline_data, integer_axis, log_ticks
from attnlaw.render.charts.view import ChartView, with_series

STEP = 24  # pixels of a bar
MAX_WIDTH = 620
LOG_AXIS_RATIO = 10.0  # values further apart than this have a logarithmic axis
AXIS_PADDING = 1.2  # of a logarithmic axis
# Measured amplification and its worst case: dashes of their lines.
LINES = {"log10_measured": [1, 0], "log10_worst_case": [5, 3]}


def margins_distances(result: Result) -> list[Figure]:
    """D of every input, sorted, a line of dots for each model, with its geometric mean."""
    view = ChartView(result)
    figures = []
    rows = view.frame("margins")
    for case, case_rows in view.cases(rows, ["model", "input"]):
        positive_rows = case_rows.filter(pl.col("distance").is_finite() & (pl.col("distance") > 0))
        if not positive_rows.height:
            continue
        caption = (
            "Inputs sorted by D: a small change flips the first. Dashed: the geometric mean, the "
            "number that ranks models of one task, trained to a similar loss, on the same inputs."
        )
        if lost := case_rows.height - positive_rows.height:
            caption += f" Not drawn: {lost} with a margin or a gradient of 0."
        placed, colours = with_series(view, positive_rows.select("model", "distance"), ["model"])
        draw = partial(sorted_dots, placed, view.verb.axis, colours)
        figures.append(view.figure("margins_distances", "D of every input", caption, draw, case))
    return figures


def sorted_dots(rows: pl.DataFrame, label: Any, colours: Mapping[str, str]) -> Any:
    """Dots of `distance` over the share of inputs below, and a line at the geometric mean, by `series`."""
    import altair as alt

    place = (pl.col("distance").rank("ordinal") - 0.5) / pl.len()
    points = rows.select("series", "distance", share=place.over("series"))
    means = rows.group_by("series", maintain_order=True).agg(mean=pl.col("distance").log().mean().exp())
    ends = [rows["distance"].min() / AXIS_PADDING, rows["distance"].max() * AXIS_PADDING]  # type: ignore[operator]
    up = alt.Scale(type="log", domain=ends, nice=False)
    dots = (
        alt.Chart(inline_data(points.to_dicts()))
        .mark_circle(size=22, opacity=0.85)
        .encode(
            x=alt.X("share:Q", title="share of inputs below", axis=alt.Axis(format="%", tickCount=5)),
            y=alt.Y("distance:Q", title=label("distance"), scale=up, axis=alt.Axis(format="~g", tickCount=6)),
            color=colour_encoding(colours),
        )
    )
    lines = (
        alt.Chart(inline_data(means.to_dicts()))
        .mark_rule(strokeDash=[5, 3], strokeWidth=1.4)
        .encode(y=alt.Y("mean:Q", scale=up), color=colour_encoding(colours))
    )
    return alt.layer(lines, dots).properties(width=WIDTH, height=HEIGHT)


def margins_kappa(result: Result) -> list[Figure]:
    """Bars of kappa, one for each layer and each map outside of layers."""
    view = ChartView(result)
    figures = []
    rows = view.complete(view.frame("kappa_layers"), "kappa")
    for case, case_rows in view.cases(rows, ["model", "layer", "kappa"]):
        placed, colours = with_series(view, case_rows.select("model", "place", "kappa"), ["model"])
        figure = view.figure(
            "margins_kappa",
            "Where a margin could be lost",
            "κ of a layer's maps, and of each map outside of layers, the median over inputs: 1/κ is "
            "the relative error of the weights that could flip an input, to first order. It tells where; D "
            "ranks.",
            partial(bars_by_place, placed, view.verb.axis, colours),
            case,
        )
        figures.append(figure)
    return figures


def bars_by_place(rows: pl.DataFrame, label: Any, colours: Mapping[str, str]) -> Any:
    """Bars of `kappa` over `place`, side by side for several `series`; logarithmic over a decade and more."""
    import altair as alt

    places = list(dict.fromkeys(rows["place"]))
    known = rows.filter(pl.col("kappa").is_finite() & (pl.col("kappa") > 0))
    ends = (known["kappa"].min(), known["kappa"].max()) if known.height else (1.0, 1.0)
    decades = ends[1] > LOG_AXIS_RATIO * ends[0]  # type: ignore[operator]
    up = alt.Y("kappa:Q", title=label("kappa"), scale=alt.Scale(zero=True))
    if decades:
        low = 10.0 ** math.floor(math.log10(ends[0]))  # type: ignore[arg-type]
        scale = alt.Scale(type="log", domain=[low, ends[1]], nice=False, clamp=True)
        axis = alt.Axis(format="~g", values=log_ticks([low, ends[1]]))  # type: ignore[list-item]
        up = alt.Y("kappa:Q", title=f"{label('kappa')} (logarithmic)", scale=scale, axis=axis)
        known = known.with_columns(floor=pl.lit(low))
    foot = {"y2": "floor:Q"} if decades else {}
    several = {"xOffset": alt.XOffset("series:N", sort=list(colours))} if len(colours) > 1 else {}
    step = STEP if not several else 12 * len(colours)
    width = max(WIDTH, min(MAX_WIDTH, step * len(places)))
    turned = LETTER * max(map(len, places)) > width / len(places)
    return (
        alt.Chart(
            inline_data(known.select("series", "place", "kappa", *(["floor"] if decades else [])).to_dicts())
        )
        .mark_bar()
        .encode(
            x=alt.X(
                "place:N",
                title=label("layer"),
                sort=places,
                axis=alt.Axis(labelAngle=-40 if turned else 0, labelLimit=110),
            ),
            y=up,
            **foot,
            color=colour_encoding(colours),
            **several,
        )
        .properties(width=width, height=HEIGHT)
    )


def margins_amplification(result: Result) -> list[Figure]:
    """log10 of amplification by layer: measured and worst case in one figure."""
    view = ChartView(result)
    figures = []
    rows = view.complete(view.frame("amplification"), "log10_measured")
    for case, case_rows in view.cases(rows, ["model", "layer"]):
        placed, colours = with_series(view, case_rows.select("model", "layer", *LINES), ["model"])
        figure = view.figure(
            "margins_amplification",
            "Amplification, measured and worst case",
            "How much a small change of what a layer reads can move the logits: median over inputs, "
            "and the worst case by the weights alone (in another norm).",
            partial(two_lines, placed, view.verb.axis, colours),
            case,
        )
        figures.append(figure)
    return figures


def margins_directions(result: Result) -> list[Figure]:
    view = ChartView(result)
    drawings = cell_maps(
        view,
        view.frame("directions"),
        ["head"],
        "layer",
        "directions_share",
        "kind",
        domain=(0.0, 1.0),
        tooltip=("layer", "head", "directions", "p_measured", "p", "log10_scale_measured", "log10_scale"),
    )
    return view.figures(
        "margins_directions",
        "Effective directions of heads",
        "The share of a head's singular values that count at the scale measured on these inputs; "
        "the rest move margins too little to be worth their rank. It describes; it does not rank models.",
        drawings,
    )


def two_lines(rows: pl.DataFrame, label: Any, colours: Mapping[str, str]) -> Any:
    """Lines of both columns of `LINES` over `layer`: dashes tell them apart, colours the `series`."""
    import altair as alt

    long = rows.unpivot([*LINES], index=["series", "layer"], variable_name="line").drop_nulls("value")
    points = long.with_columns(pl.col("line").replace_strict({name: label(name) for name in LINES}))
    dash = alt.StrokeDash(
        "line:N",
        title=None,
        scale=alt.Scale(domain=[label(name) for name in LINES], range=list(LINES.values())),
        legend=alt.Legend(symbolType="stroke", symbolSize=250),
    )
    base = alt.Chart(inline_data(points.to_dicts())).encode(
        x=alt.X(
            "layer:Q", title=label("layer"), scale=alt.Scale(nice=False), axis=integer_axis(rows["layer"])
        ),
        y=alt.Y("value:Q", title="log₁₀ of amplification"),
        color=colour_encoding(colours),
    )
    dots = base.mark_circle(size=24)
    return alt.layer(base.mark_line().encode(strokeDash=dash), dots).properties(width=WIDTH, height=HEIGHT)
