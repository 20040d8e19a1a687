"""Charts of margins: D of every input, kappa by layer, and measured and worst-case amplification."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import polars as pl

from attnlaw.render.charts.cells import cell_maps
from attnlaw.render.charts.encodings import (
    HEIGHT,
    WIDTH,
    colour_encoding,
    dash_encoding,
    inline_data,
    integer_axis,
    log_axis,
)
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import LETTER
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart

STEP = 24  # pixels of a bar
MAX_WIDTH = 620
LOG_AXIS_RATIO = 10.0  # the axis is logarithmic if the largest value is more times the smallest
AXIS_PADDING = 1.2  # factor at both ends of a logarithmic axis
# Dashes of the lines of measured and worst-case amplification.
LINES = {"log10_measured": [1, 0], "log10_worst_case": [5, 3]}
Label = Callable[[str], str]


@chart(
    "D of every input",
    "Inputs sorted by relative margin (D). The predictions on the left are closest to flipping. Dashed: the "
    "geometric mean of a model, which compares models of one task, trained to a similar loss, on the same "
    "inputs. Higher is better.",
)
def margins_distances(view: ChartView) -> Drawings:
    """Draw D of all inputs in increasing order, and its geometric mean, for each model."""
    for case, case_rows in view.cases(view.frame("margins"), ["model", "input"]):
        positive_rows = case_rows.filter(pl.col("distance").is_finite() & (pl.col("distance") > 0))
        lost = case_rows.height - positive_rows.height
        placed, colours = view.with_series(positive_rows.select("model", "distance"), ["model"])
        if placed.height:
            note = f"Not drawn: {lost} with a margin or a gradient of 0." if lost else ""
            yield Drawing(partial(sorted_dots, placed, view.verb.axis, colours), case, note)


def sorted_dots(rows: pl.DataFrame, label: Label, colours: Mapping[str, str]) -> alt.LayerChart:
    """Draw each `distance` over the share of inputs below it, and a line at each geometric mean."""
    place = (pl.col("distance").rank("ordinal") - 0.5) / pl.len()
    points = rows.select("series", "distance", share=place.over("series"))
    means = rows.group_by("series", maintain_order=True).agg(mean=pl.col("distance").log().mean().exp())
    ends = [min(rows["distance"]) / AXIS_PADDING, max(rows["distance"]) * AXIS_PADDING]
    up, hue = alt.Scale(type="log", domain=ends, nice=False), colour_encoding(colours)
    ticks = alt.Axis(format="~g", tickCount=6)
    dots = alt.Chart(inline_data(points)).mark_circle(size=22, opacity=0.85)
    dots = dots.encode(
        x=alt.X("share:Q", title="share of inputs with smaller D", axis=alt.Axis(format="%", tickCount=5)),
        y=alt.Y("distance:Q", title=label("distance"), scale=up, axis=ticks),
        color=hue,
    )
    lines = alt.Chart(inline_data(means)).mark_rule(strokeDash=[5, 3], strokeWidth=1.4)
    lines = lines.encode(y=alt.Y("mean:Q", scale=up), color=hue)
    return alt.layer(lines, dots).properties(width=WIDTH, height=HEIGHT)


@chart(
    "Where the margin depends on the weights",
    "Condition number (κ) of each layer and of each linear map outside the layers, median over inputs. To "
    "first order, a relative change of the weights by 1/κ could flip a prediction. High bars are sensitive "
    "places; use D, not κ, to compare models.",
)
def margins_kappa(view: ChartView) -> Drawings:
    """Draw bars of kappa for each layer and each linear map outside of layers."""
    for case, case_rows in view.cases(view.frame("kappa_layers", "kappa"), ["model", "layer", "kappa"]):
        placed, colours = view.with_series(case_rows.select("model", "place", "kappa"), ["model"])
        yield Drawing(partial(bars_by_place, placed, view.verb.axis, colours), case)


def bars_by_place(rows: pl.DataFrame, label: Label, colours: Mapping[str, str]) -> alt.Chart:
    """Draw bars of `kappa` for each `place` and `series`, on a logarithmic axis if they span a decade."""
    places = list(dict.fromkeys(rows["place"]))
    known = rows.filter(pl.col("kappa").is_finite() & (pl.col("kappa") > 0))
    known = known.select("series", "place", "kappa")
    least, most = min(known["kappa"], default=1.0), max(known["kappa"], default=1.0)
    up, foot = {"y": alt.Y("kappa:Q", title=label("kappa"), scale=alt.Scale(zero=True))}, {}
    if most > LOG_AXIS_RATIO * least:
        low = 10.0 ** math.floor(math.log10(least))
        scale = alt.Scale(type="log", domain=[low, most], nice=False, clamp=True)
        title, axis = f"{label('kappa')} (logarithmic)", log_axis([low, most])
        up, foot = {"y": alt.Y("kappa:Q", title=title, scale=scale, axis=axis)}, {"y2": "floor:Q"}
        known = known.with_columns(floor=pl.lit(low))
    several = {"xOffset": alt.XOffset("series:N", sort=list(colours))} if len(colours) > 1 else {}
    step = 12 * len(colours) if several else STEP
    width = max(WIDTH, min(MAX_WIDTH, step * len(places)))
    turned = LETTER * max(map(len, places)) > width / len(places)
    axis = alt.Axis(labelAngle=-40 if turned else 0, labelLimit=110)
    x = alt.X("place:N", title=label("layer"), sort=places, axis=axis)
    bars = alt.Chart(inline_data(known)).mark_bar().encode(x=x, color=colour_encoding(colours))
    return bars.encode(**up, **foot, **several).properties(width=width, height=HEIGHT)


@chart(
    "Amplification, measured and worst case",
    "How much a small change of a layer's input moves the logits, as log10. Solid: median over these "
    "inputs. Dashed: upper bound from the weights alone, in another norm. A large gap means that the upper "
    "bound says little here.",
)
def margins_amplification(view: ChartView) -> Drawings:
    """Draw log10 of the measured and the worst-case amplification for each layer."""
    rows = view.frame("amplification", "log10_measured")
    for case, case_rows in view.cases(rows, ["model", "layer"]):
        placed, colours = view.with_series(case_rows.select("model", "layer", *LINES), ["model"])
        yield Drawing(partial(two_lines, placed, view.verb.axis, colours), case)


def two_lines(rows: pl.DataFrame, label: Label, colours: Mapping[str, str]) -> alt.LayerChart:
    """Draw the two columns that `LINES` names, by layer. Dashes distinguish columns, colours the `series`."""
    labels = {name: label(name) for name in LINES}
    long = rows.unpivot([*LINES], index=["series", "layer"], variable_name="line").drop_nulls("value")
    points = long.with_columns(pl.col("line").replace_strict(labels))
    dashes = {labels[name]: dash for name, dash in LINES.items()}
    ticks = integer_axis(rows["layer"])
    base = alt.Chart(inline_data(points)).encode(
        x=alt.X("layer:Q", title=label("layer"), scale=alt.Scale(nice=False), axis=ticks),
        y=alt.Y("value:Q", title="amplification (log₁₀)"),
        color=colour_encoding(colours),
    )
    dash = dash_encoding("line", dashes, symbolType="stroke", symbolSize=250)
    lines = base.mark_line().encode(strokeDash=dash)
    return alt.layer(lines, base.mark_circle(size=24)).properties(width=WIDTH, height=HEIGHT)


@chart(
    "Effective directions of heads",
    "Share of a head's singular values that matter on these inputs; the others hardly change the margins. "
    "This share describes a model and does not rank models.",
)
def margins_directions(view: ChartView) -> Drawings:
    rows, share = view.frame("directions"), "directions_share"
    tooltip = ("layer", "head", "directions", "p_measured", "p", "log10_scale_measured", "log10_scale")
    return cell_maps(view, rows, ["head"], "layer", share, "kind", domain=(0.0, 1.0), tooltip=tooltip)
