"""Chart of the missing entry of a trained matrix, against the scale of the start."""

from __future__ import annotations

from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.view import ChartView, Drawings, chart


@chart(
    "The missing entry of a matrix",
    "Learned value of the missing entry of [[?, 1], [1, e]] as a function of the initialisation scale. "
    "Lines show the limit of a small scale: 1/e (rank one) if e is observed, and the mean size of a random "
    "entry if it is not.",
)
def connectivity(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "init", "corner", ["graph"], sizes="latent", log_x=True)
