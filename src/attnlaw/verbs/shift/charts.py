"""Charts of effective weights and of the risk under covariate shift, against the ridge."""

from __future__ import annotations

from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.view import ChartView, Drawings, chart


@chart(
    "What is left of the weights",
    "Effective weight of the second group over that of the first. The nonlinearity of the kernel is a ridge "
    "of its own, so weights act only where the given ridge is not small against it.",
)
def weights(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "ridge", "weight_ratio", ["weighting"], log=True)


@chart(
    "Risk under covariate shift",
    "Lines: the limit of large n and p. At finite p the risk is a few per cent higher.",
)
def risk(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "ridge", "excess", ["weighting"], sizes="dimension", log_x=True)
