"""Chart of the risk of two linear layers that fit every label, against their scale at the start."""

from __future__ import annotations

from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.view import ChartView, Drawings, chart


@chart(
    "Risk of a large initialisation",
    "Risk of two linear layers that fit every label, for each initialisation scale. Lower is better. A small "
    "scale finds the map of smallest norm that fits; many weak directions make it harmless to fit noise.",
)
def scale(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "scale", "excess", ["weak"], sizes="samples", log=True)
