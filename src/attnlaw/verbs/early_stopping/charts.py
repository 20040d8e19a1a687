"""Charts of learned coefficients: factors that stop early, compared with a soft threshold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import polars as pl

from attnlaw.render.charts.encodings import GREY, PANEL, colour_encoding, inline_data
from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import palette
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart

# If a study has many thresholds, those nearest to these are drawn, the latest time first.
DRAWN_THRESHOLDS = {"flow": (0.5, 1.0, 2.0), "soft": (1.0,)}


@chart(
    "How much of each coefficient is learned",
    "True coefficients (x axis) and the coefficients that small factors learn (y axis), for three stopping "
    "times. Small coefficients are not learned; large ones are learned completely. Weight decay (a soft "
    "threshold) always takes a part away. The dashed line shows training without stopping.",
    name="map",
)
def stopping_map(view: ChartView) -> Drawings:
    """Draw learned over true coefficients, if the rows differ only in threshold and rule."""
    rows = view.frame("map")
    if view.other_settings(rows, ["rule", "threshold", "coefficient"]):
        return
    lines = [
        rule_rows.filter(pl.col("threshold") == threshold).with_columns(
            series=pl.lit(_line_name(view, rule, threshold))
        )
        for rule, wanted in DRAWN_THRESHOLDS.items()
        if (rule_rows := rows.filter(pl.col("rule") == rule)).height
        for threshold in _nearest(rule_rows["threshold"], wanted)
    ]
    if lines:
        line_rows = pl.concat(lines).select("series", "coefficient", "learned")
        yield Drawing(partial(draw_stopping_map, line_rows, view.verb.axis))


@chart(
    "When to stop",
    "Risk at each threshold; each stopping time corresponds to a threshold. Left of the minimum, training "
    "stopped too late and learned noise; right of it, training stopped too early and missed signals. Weight "
    "decay (a soft threshold) takes a part of every signal away.",
)
def stopping(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "threshold", "risk", ["rule"], sizes="dimension")


def draw_stopping_map(rows: pl.DataFrame, label: Callable[[str], str]) -> alt.LayerChart:
    """Draw the learned coefficient against the true one, with the identity as a dashed line."""
    most = rows["coefficient"].max()
    x = alt.X("coefficient:Q", title=label("coefficient"), scale=alt.Scale(domain=[0, most]))
    y = alt.Y("learned:Q", title=label("learned"), scale=alt.Scale(domain=[0, most]))
    ends = alt.Chart(inline_data([{"coefficient": end, "learned": end} for end in (0, most)]))
    identity = ends.mark_line(color=GREY, strokeWidth=1, strokeDash=[4, 3]).encode(x=x, y=y)
    shade = colour_encoding(palette(rows["series"]), symbolType="stroke")
    lines = alt.Chart(inline_data(rows)).mark_line().encode(x=x, y=y, color=shade)
    return alt.layer(identity, lines).properties(**PANEL)


def _nearest(values: pl.Series, wanted: tuple[float, ...]) -> list[float]:
    known = values.unique().to_list()
    return list(dict.fromkeys(min(known, key=lambda value: abs(value - place)) for place in wanted))


def _line_name(view: ChartView, rule: str, threshold: float) -> str:
    row = view.rows.filter((pl.col("rule") == rule) & (pl.col("threshold") == threshold)).row(0, named=True)
    if row["time"] is None:
        return f"{view.value_labels.label_of('rule', rule)}, c = {threshold:g}"
    return f"stopped at time {row['time']:.3g} (c = {threshold:g})"
