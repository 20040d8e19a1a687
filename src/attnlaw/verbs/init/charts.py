"""Charts of `init`: measures of each layer with a band over initialisations, and over depth and width."""

from __future__ import annotations

from functools import partial

import polars as pl

from attnlaw.render.charts.encodings import (
    PANEL,
    colour_encoding,
    dash_encoding,
    inline_data,
    integer_axis,
    log_axis,
    panel_title,
)
from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart
from attnlaw.render.describe_rows import MOST_CASES, rows_by_case
from attnlaw.verbs.init import LIMIT_WIDTH

DASHES = {"finite width": [1, 0], "infinite width": [4, 4]}
FINITE, INFINITE = DASHES
DARK = "#222222"
# The measures that may have a panel, and whether its axis is logarithmic. The first two that vary by layer
# are drawn; after norms, lengths do not vary.
PANELS = {"rms": True, "cosine": False, "entropy": False}


@chart(
    "Layer by layer",
    "How signals and tokens change from layer to layer before training. Lines: means over initialisations. "
    "Bands: 90% of initialisations. In a good initialisation, signals neither explode nor vanish, and the "
    "mean cosine stays well below 1. At 1 all tokens are alike (rank collapse).",
)
def init_layers(view: ChartView) -> Drawings:
    """Draw two panels for each model, with bands for finite widths and dashed lines for the limit."""
    rows = view.frame("layers", "rms")
    if rows["layer"].n_unique() < 2:
        return
    others = view.other_settings(rows, ["width", "model", "depth", "layer"])
    for case, case_rows in rows_by_case(rows, ["model"] if rows["model"].n_unique() > 1 else []):
        by = [name for name in ("depth", *others) if case_rows[name].n_unique() > 1]
        by += ["width"] if case_rows.filter(pl.col("width") != LIMIT_WIDTH)["width"].n_unique() > 1 else []
        if by and case_rows.select(by).n_unique() > MOST_CASES:
            continue
        first = case_rows.unique([*by, "width", "layer"], keep="first", maintain_order=True)
        note = "Dashed: the limit of infinite width." if (first["width"] == LIMIT_WIDTH).any() else ""
        yield Drawing(partial(_panels, *view.with_series(first, by), view), case, note)


@chart(
    "Tokens against depth",
    "How similar tokens are after the last layer, for models of different depth: 1 means that all are "
    "parallel (rank collapse), so lower is better.",
)
def init_depth(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "depth", "cosine")


@chart(
    "Tokens against width",
    "How similar tokens are after the last layer, if the model is scaled to other widths. A flat line means "
    "that the width does not matter.",
)
def init_width(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "model_width", "cosine", log_x=True)


@chart(
    "Spread over initialisations at each width",
    "How much the mean cosine between tokens differs from one initialisation to the next. The spread falls "
    "as the width grows, down to that of the infinite-width limit.",
)
def init_width_spread(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "model_width", "cosine_spread", log=True)


@chart(
    "Initial loss for each standard deviation of the weights",
    "A good start is near the loss of a uniform guess, which is the logarithm of the vocabulary size.",
)
def init_std(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "std", "loss", log_x=True)


def _panels(rows: pl.DataFrame, colours: dict[str, str], view: ChartView) -> alt.HConcatChart:
    drawn = [name for name in PANELS if rows[name].count() and not _is_constant(rows[name].drop_nulls())]
    return alt.hconcat(*(_panel(rows, colours, name, view) for name in drawn[:2]), spacing=28)


def _is_constant(values: pl.Series) -> bool:
    lowest, highest = (float(end) for end in (values.min(), values.max()))  # type: ignore[arg-type]
    return highest - lowest <= 1e-6 * abs(highest)


def _panel(rows: pl.DataFrame, colours: dict[str, str], name: str, view: ChartView) -> alt.LayerChart:
    table = next(table_spec for table_spec in view.verb.tables if table_spec.name == "layers")
    title = next(column.axis for column in table.columns if column.name == name)
    shown = rows.drop_nulls(name).select(
        "layer",
        "series",
        y=name,
        low=f"{name}_low",
        high=f"{name}_high",
        law=pl.when(pl.col("width") == LIMIT_WIDTH).then(pl.lit(INFINITE)).otherwise(pl.lit(FINITE)),
    )
    scale = alt.Scale(type="log", nice=False, padding=8) if PANELS[name] else alt.Scale(zero=False)
    axis = log_axis(shown["y"]) if PANELS[name] else alt.Undefined
    up = alt.Y("y:Q", title=None, scale=scale, axis=axis)
    across = alt.X("layer:Q", title="layer", axis=integer_axis(shown["layer"]), scale=alt.Scale(nice=False))
    laws = {law: DASHES[law] for law in shown["law"]}
    legend = {"symbolType": "stroke", "symbolSize": 400, "symbolStrokeWidth": 2} if len(laws) > 1 else {}
    base = alt.Chart(inline_data(shown)).encode(x=across)
    finite = base.transform_filter(alt.datum.law != INFINITE).encode(color=colour_encoding(colours))
    low = alt.Y("low:Q", title=None, scale=scale)
    band = finite.mark_area(opacity=0.25).encode(y=low, y2="high:Q", detail="law:N")
    limit = base.transform_filter(alt.datum.law == INFINITE)
    limit = limit.encode(color=colour_encoding(colours) if len(colours) > 1 else alt.value(DARK))
    dashes = dash_encoding("law", laws, **legend)
    lines = [part.mark_line(strokeWidth=1.6).encode(y=up, strokeDash=dashes) for part in (finite, limit)]
    return alt.layer(band, *lines).properties(title=panel_title(title), **PANEL)
