"""Charts of effective weights and of the risk under covariate shift, against the ridge."""

from __future__ import annotations

from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.view import ChartView, Drawings, chart


@chart(
    "How much the importance weights matter",
    "Effective weight of the second group divided by the weight of the first, for each ridge. The nonlinear "
    "part of the kernel acts like an additional ridge, so weights matter only if the given ridge is not much "
    "smaller.",
)
def weights(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "ridge", "weight_ratio", ["weighting"], log=True)


@chart(
    "Risk under covariate shift",
    "Risk on the target distribution for each ridge. Lower is better. Lines are the limit "
    "of large n and p. At finite p the risk is a few percent higher.",
)
def risk(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "ridge", "excess", ["weighting"], sizes="dimension", log_x=True)
