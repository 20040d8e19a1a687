"""Charts of `attention`: a draw with the density of its law, and the error and time of a readout."""

from __future__ import annotations

from functools import partial
from typing import Any

import polars as pl

from attnlaw.render.charts.densities import draw_histogram, histogram
from attnlaw.render.charts.encodings import PANEL, inline_data, panel_title
from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.packages import alt
from attnlaw.render.charts.style import PALETTE
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart, has_values
from attnlaw.render.describe_rows import varying_settings

SPIKE_NOTE = "The triangle marks an extra value, caused by keys of unequal length (not in the paper)."
X_TITLE = "singular value / root mean square"
ATOM_NOTE = "Zeros are not drawn; the title states their share."


@chart(
    "Singular values of random attention",
    "Bars: the singular values of one random layer. Line: the law. If the law holds, the line follows the "
    "bars.",
)
def spectra(view: ChartView) -> Drawings:
    """Draw one figure, with a panel for each layer that was drawn at random."""
    laws, values = view.frame("law_densities"), view.frame("drawn_values")
    if not (has_values(laws, "x", "density") and has_values(values, "value")):
        return
    settings = varying_settings(view.rows, [name for name in view.settings if name != "name"])
    drawn = view.rows.filter(pl.col("case").is_in(values["case"].to_list()))
    once = drawn.unique(["name", *settings], keep="first", maintain_order=True)
    panels = [
        _panel_data(view, row, laws, values, settings if row["name"] is None else [])
        for row in once.to_dicts()
    ]
    notes = [SPIKE_NOTE] if any(panel["spike"] is not None for panel in panels) else []
    notes += [ATOM_NOTE] if any(panel["atom"] > 0 for panel in panels) else []
    yield Drawing(partial(_draw_panels, panels), note=" ".join(notes))


@chart(
    "Error of a readout",
    "Error of ridge regression on the output of a random layer at each sharpness of attention, as the "
    "theory predicts it. Lower is better. Where two lines cross, the better shape changes.",
)
def readout(view: ChartView) -> Drawings:
    return _error_lines(view)


@chart(
    "Time of a readout",
    "Training time until a linear readout of a random layer reaches the chosen loss (gradient flow), as "
    "the theory predicts it. Lower is better.",
)
def arrival(view: ChartView) -> Drawings:
    """Draw the time that a readout needs to learn, unless its error is drawn in another chart."""
    if not any(_error_lines(view)):
        yield from line_charts(view, view.rows, "head_size", "arrival_time")


def _error_lines(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "beta", "coefficient_error")


def _panel_data(
    view: ChartView, row: dict[str, Any], laws: pl.DataFrame, values: pl.DataFrame, settings: list[str]
) -> dict[str, Any]:
    """Return the parts of one panel over s with `s^2 = x/mean`, where a hard edge is less steep."""
    key, mean, atom = row["case"], row["mean"], row["atom_at_zero"]
    every = (values.filter(pl.col("case") == key)["value"] / mean).sqrt().to_numpy()
    kept = every[every > 0] if atom > 0 else every
    s = (pl.col("x") / mean).sqrt()
    law = laws.filter(pl.col("case") == key).select(
        x=s, density=2 * s * mean * pl.col("density"), detail=pl.col("interval")
    )
    # The density is zero at its edges, except at a hard edge.
    ends = [
        {"x": (end / mean) ** 0.5, "density": 0.0, "detail": place // 2}
        for place, end in enumerate(row["edges"])
        if end > 0
    ]
    title = row["name"] or view.value_labels.describe({name: row[name] for name in settings})
    return {
        "title": title + (f" ({atom:.1%} zeros)" if atom > 0 else ""),
        "bars": histogram(kept, law["x"].to_numpy(), every.size, "drawn"),
        "line": sorted([*law.to_dicts(), *ends], key=lambda point: point["x"]),
        "spike": (row["spike"] / mean) ** 0.5 if row["spike"] and row["centring"] == "mean" else None,
        "atom": atom,
    }


def _draw_panels(panels: list[dict[str, Any]]) -> alt.ConcatChart:
    drawn = []
    for panel in panels:
        highest = max(bar["height"] for bar in panel["bars"])
        # A density without bound at a hard edge is cut.
        peak = max((point["density"] for point in panel["line"]), default=0.0)
        bars = draw_histogram(panel["bars"], max(1.25 * highest, min(1.05 * peak, 2 * highest)))
        line = alt.Chart(inline_data(panel["line"])).mark_line(color=PALETTE[0], clip=True)
        layers = [bars, line.encode(x=alt.X("x:Q", title=X_TITLE), y="density:Q", detail="detail:N")]
        if panel["spike"] is not None:
            mark = alt.Chart(inline_data([{"x": panel["spike"], "y": 0.0}])).mark_point(
                shape="triangle-up", size=60, filled=True, color=PALETTE[1]
            )
            layers.append(mark.encode(x="x:Q", y="y:Q"))
        drawn.append(alt.layer(*layers).properties(title=panel_title(panel["title"]), **PANEL))
    return alt.concat(*drawn, columns=2)
