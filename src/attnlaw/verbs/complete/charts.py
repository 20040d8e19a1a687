"""Chart of the missing entry of a trained matrix, against the scale of the start."""

from __future__ import annotations

from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.view import ChartView, Drawings, chart


@chart(
    "What is not seen, by what connects it",
    "The missing entry of [[?, 1], [1, e]] against the scale of the start. Lines: its limit, 1/e of rank one "
    "where e is seen, and a random entry, here in mean size, where it is not.",
)
def connectivity(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "init", "corner", ["graph"], sizes="latent", log_x=True)
