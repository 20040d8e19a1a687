"""The error of averaged learners against their features."""

from __future__ import annotations

from attnlaw.core.result import Result
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.view import ChartView


def ensemble(result: Result) -> list[Figure]:
    view = ChartView(result)
    return view.figures(
        "ensemble",
        "Averaging learners",
        "Error of the mean of K learners against their features. The peak, where a learner just fits "
        "its samples, is variance between learners: their mean does not have it.",
        line_charts(view, view.rows, "features", "mean_error", ["learners"], sizes="inputs"),
    )
