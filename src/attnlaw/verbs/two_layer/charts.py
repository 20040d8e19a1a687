"""Chart of the risk of two linear layers that fit every label, against their scale at the start."""

from __future__ import annotations

from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.view import ChartView, Drawings, chart


@chart(
    "The price of a large start",
    "Risk of two linear layers that fit every label, against their scale at the start. A small start ends in "
    "the interpolator of least norm, and a long tail of weak directions makes that benign.",
)
def scale(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "scale", "excess", ["weak"], sizes="samples", log=True)
