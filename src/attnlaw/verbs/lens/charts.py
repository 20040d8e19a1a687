"""Charts of a lens: what moves each token, how sharp heads are, and what low ranks cost them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl

from attnlaw.analysis.forward.remarks import REMARK_KINDS
from attnlaw.render.charts.cells import Shades, cell_maps, cell_texts, draw_cells, joined_columns
from attnlaw.render.charts.encodings import (
    EXTENT,
    GREY,
    HEIGHT,
    WIDTH,
    colour_encoding,
    dash_encoding,
    inline_data,
    log_axis,
)
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import PALETTE, palette
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart

MARKS = {"beta_2": [2, 2], "beta_c": [6, 3]}
STEP = 26  # pixels for a layer
TICKS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200]
AXIS_PADDING = 1.2  # factor at both ends of a logarithmic axis
MIN_BETA = 0.05  # smaller values are drawn at the lower end of the axis
ERRORS = ("largest", "tail", "rms")
TARGET_ERROR = 0.01  # the same as for `rank_within`
ROUND_OFF = 1e-12  # smaller errors are not drawn
# Columns in the tooltips of cells.
HEAD_COLUMNS = (
    *("layer", "head", "beta", "beta_2", "beta_c", "perplexity", "participation_over_null"),
    *("participation_over_random", "largest_column_mean", "sink_token", "largest_logit", "logit_bound"),
    "spread_over_typical",
)
INPUT, OUTPUT = ("input", "input_token"), ("output", "output_token")
MAP_COLUMNS = (*OUTPUT, *INPUT, "norm", "norm_error", "share", "rollout")
ATTENTION_COLUMNS = (*OUTPUT, *INPUT, "weight")
MOST_TOKENS = 64  # tokens on the axes of a map of attention weights
MAPS_IN_A_ROW = 2


@chart(
    "Which tokens shape each output token",
    "Each row is an output token and sums to 1; each column is an input token (position · token). Left: "
    "the whole network, computed from its exact affine map on this input. Right: attention weights alone "
    "(rollout). Brighter cells have larger shares; colours follow the square root of the share. If the two "
    "differ, trust the left one.",
)
def lens_map(view: ChartView) -> Drawings:
    """Draw how much each input token adds to each output token, by the exact map and by rollout."""
    rows = view.frame("token_map", "share", "rollout", "output")
    for case, case_rows in view.cases(rows, [*INPUT, *OUTPUT]):
        yield Drawing(partial(_draw_token_maps, view, case_rows), case)


def _draw_token_maps(view: ChartView, rows: pl.DataFrame) -> alt.HConcatChart:
    axis, names = view.verb.axis, ("share", "rollout")
    shades = Shades("sqrt", (0.0, max(max(rows[name]) for name in names)))
    places = {"x": joined_columns(rows, INPUT), "y": joined_columns(rows, OUTPUT)}
    panels = [
        draw_cells(
            rows.select(**places, colour=name, text=cell_texts(view, rows, MAP_COLUMNS)),
            axis("input"),
            axis("output"),
            shades,
            title=axis(name),
            legend="share of the row",
            upright_labels=rows["input_token"].count() > 0,
            hide_labels=name != "share",
        )
        for name in names
    ]
    return alt.hconcat(*panels, spacing=24, bounds="flush")


@chart(
    "Where the most notable heads look",
    "Each row is a token that attends, each column a token that it attends to; rows sum to 1. A bright "
    "column is a token that all positions look at. A bright diagonal line is a fixed distance. Colours "
    "follow the square root.",
)
def head_attention(view: ChartView) -> Drawings:
    """Draw the attention weights of the most notable heads, in panels with the same colours."""
    for case, case_rows in view.cases(view.frame("head_attention"), ["layer", "head", *INPUT, *OUTPUT]):
        shown = case_rows.filter(pl.max_horizontal("input", "output") < MOST_TOKENS)
        tokens = case_rows["input"].n_unique()
        note = f"Drawn: the first {MOST_TOKENS} of {tokens} tokens; head_attention.parquet has all."
        yield Drawing(partial(_draw_attention, view, shown), case, note if tokens > MOST_TOKENS else "")


def _draw_attention(view: ChartView, rows: pl.DataFrame) -> alt.VConcatChart:
    case = rows["case"][0]
    panels: list[alt.Chart] = []
    remarks = view.frame("head_findings").filter(pl.col("case") == case)
    labels = {kind.name: kind.label for kind in REMARK_KINDS}
    rules: dict[tuple[int, int], list[str]] = {}
    for layer, head, rule in remarks.select("layer", "head", "rule").iter_rows():
        rules.setdefault((layer, head), []).append(labels.get(rule, rule))
    for (layer, head), group in rows.group_by("layer", "head", maintain_order=True):
        places = {"x": joined_columns(group, INPUT), "y": joined_columns(group, OUTPUT)}
        panels.append(
            draw_cells(
                group.select(**places, colour="weight", text=cell_texts(view, group, ATTENTION_COLUMNS)),
                "token attended to",
                "token that attends",
                Shades("sqrt", (0.0, 1.0)),
                title=": ".join([f"head {layer}.{head}", ", ".join(rules.get((layer, head), ["sharpest"]))]),
                legend="attention weight",
                upright_labels=True,
                hide_labels=len(panels) % MAPS_IN_A_ROW > 0,
            )
        )
    lines = [panels[start : start + MAPS_IN_A_ROW] for start in range(0, len(panels), MAPS_IN_A_ROW)]
    return alt.vconcat(*(alt.hconcat(*line, spacing=24, bounds="flush") for line in lines))


@chart(
    "Sharpness of each head",
    "Sharpness β divided by the threshold β_c. Above 1, a position looks at only a few tokens however long "
    "the text is. Hover over a cell for all numbers of its head.",
)
def head_sharpness(view: ChartView) -> Drawings:
    return _head_maps(view, "sharpness")


@chart(
    "Directions of attention, relative to random heads",
    "A value of 1 means that a head uses as many directions as an equally sharp random head. Far below "
    "1, all positions attend to the same few tokens. Above 1, positions attend to different tokens, as "
    "in a previous-token head. Similar tokens also lower the number, so each cell shows the ratio to random "
    "weights on the same tokens too.",
)
def head_participation(view: ChartView) -> Drawings:
    return _head_maps(view, "participation_over_null", scale="log")


@chart(
    "Largest share of attention on one token",
    "Share of a head's attention that its favourite token gets. Near 1, the head attends to little else.",
)
def head_sinks(view: ChartView) -> Drawings:
    return _head_maps(view, "largest_column_mean", domain=(0.0, 1.0))


def _head_maps(view: ChartView, colour: str, **shades: Any) -> Drawings:
    return cell_maps(view, view.frame("heads"), ["head"], "layer", colour, tooltip=HEAD_COLUMNS, **shades)


@chart(
    "Sharpness by layer",
    "Each dot is a head. Sharpness (β) is the spread of a position's logits. Above the dashed line, a "
    "position looks at only a few tokens however long the text is. Below the dotted line, laws of random "
    "attention can hold.",
)
def head_betas(view: ChartView) -> Drawings:
    """Draw the sharpness (beta) of every head for each layer."""
    for case, case_rows in view.cases(view.frame("heads", "beta"), ["layer", "head"]):
        yield Drawing(partial(beta_dots, case_rows, view.verb.axis), case)


def beta_dots(rows: pl.DataFrame, label: Callable[[str], str]) -> alt.LayerChart:
    """Draw a dot for each head at `layer` and `beta`, and a line at the largest value of each threshold."""
    points = rows.select("layer", "head", pl.col("beta").clip(lower_bound=MIN_BETA))
    marks = [{"beta": rows[name].max(), "mark": label(name)} for name in MARKS]
    shown = [*points["beta"], *(mark["beta"] for mark in marks)]
    domain = [min(shown) / AXIS_PADDING, max(shown) * AXIS_PADDING]
    scale = alt.Scale(type="log", domain=domain, nice=False)
    axis = alt.Axis(format="~g", minExtent=EXTENT, values=TICKS)
    up = alt.Y("beta:Q", title=label("beta"), scale=scale, axis=axis)
    across = alt.X("layer:O", title=label("layer"), axis=alt.Axis(labelAngle=0, labelOverlap=True))
    dots = alt.Chart(inline_data(points)).mark_circle(size=34, opacity=0.75, color=PALETTE[0])
    legend = {"symbolType": "stroke", "symbolStrokeColor": GREY, "symbolSize": 250}
    dash = dash_encoding("mark", {label(name): dashes for name, dashes in MARKS.items()}, **legend)
    lines = alt.Chart(inline_data(marks)).mark_rule(color=GREY, strokeWidth=1.3).encode(y=up, strokeDash=dash)
    width = max(220, min(620, STEP * rows["layer"].n_unique()))
    return alt.layer(lines, dots.encode(x=across, y=up)).properties(width=width, height=HEIGHT)


@chart(
    "Error of attention at low rank",
    "Errors if only the k largest singular values of a head's attention matrix are kept, for each k. Lines "
    "are medians over heads, bands are quartiles, dashed lines are the smallest and largest "
    "head. The root mean square (rms) error hides the worst weight; tail / n predicts it from the singular "
    "values alone. A worst weight below the grey line (0.01) is good.",
)
def entrywise(view: ChartView) -> Drawings:
    """Draw the errors of low-rank attention for all heads, if there are several ranks."""
    rows = view.frame("entrywise", *ERRORS)
    if rows["rank"].n_unique() > 1:
        for case, case_rows in view.cases(rows, ["layer", "head", "rank"]):
            yield Drawing(partial(error_bands, case_rows, view.verb.axis), case)


def error_bands(rows: pl.DataFrame, label: Callable[[str], str]) -> alt.LayerChart:
    """Draw each error over the rank: median over heads, quartiles as a band, smallest and largest head."""
    value, labels = pl.col("value"), {name: label(name) for name in ERRORS}
    summary = (
        rows.unpivot(ERRORS, index="rank", variable_name="error")
        .filter(value > ROUND_OFF)
        .group_by("error", "rank", maintain_order=True)
        .agg(
            least=value.min(),
            low=value.quantile(0.25, "linear"),
            median=value.median(),
            high=value.quantile(0.75, "linear"),
            most=value.max(),
        )
        .sort("rank")
        .with_columns(series=pl.col("error").replace_strict(labels))
    )
    ranks = sorted(rows["rank"].unique())
    ticks = alt.Axis(values=ranks, labelOverlap=True, format="d")
    x = alt.X("rank:Q", title=label("rank"), axis=ticks)
    x = x.scale(type="log", domain=[ranks[0], ranks[-1]], nice=False)
    shade = colour_encoding(palette(labels.values()), symbolOpacity=1, symbolType="stroke")
    base = alt.Chart(inline_data(summary)).encode(x=x, color=shade)
    span = [min(summary["least"]) / AXIS_PADDING, max(summary["most"]) * AXIS_PADDING]
    scale, axis = alt.Scale(type="log", domain=span), log_axis(span)

    def up(name: str) -> alt.Y:
        return alt.Y(f"{name}:Q", title="error of an attention weight", scale=scale, axis=axis)

    band = base.mark_area(opacity=0.2).encode(y=up("low"), y2="high:Q")
    dashed = base.mark_line(strokeWidth=0.8, strokeDash=[3, 2])
    ends = [dashed.encode(y=up(name)) for name in ("least", "most")]
    line = base.mark_line(strokeWidth=1.8).encode(y=up("median"))
    goal = alt.Chart(inline_data([{"goal": TARGET_ERROR}])).mark_rule(color=GREY).encode(y=up("goal"))
    return alt.layer(goal, band, *ends, line).properties(width=WIDTH, height=HEIGHT)
