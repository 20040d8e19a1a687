"""Chart of the error of averaged learners, against the number of features."""

from __future__ import annotations

from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.view import ChartView, Drawings, chart


@chart(
    "Averaging learners",
    "Error of the average of K learners, for each number of features per learner. Lower is better. At the "
    "peak, a learner can only just fit its samples. The peak comes from differences between learners, so "
    "averaging removes it.",
)
def ensemble(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "features", "mean_error", ["learners"], sizes="inputs")
