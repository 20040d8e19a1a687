"""Chart of the error of averaged learners, against the number of features."""

from __future__ import annotations

from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.view import ChartView, Drawings, chart


@chart(
    "Averaging learners",
    "Error of the mean of K learners, for each number of features that they have. Lower is better. The "
    "peak is where one learner just fits its samples. It comes from differences between learners, so "
    "averaging removes it.",
)
def ensemble(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "features", "mean_error", ["learners"], sizes="inputs")
