"""The chart of `coordinates`: the change of the logits against the width."""

from __future__ import annotations

from attnlaw.render.charts.lines import line_charts
from attnlaw.render.charts.view import ChartView, Drawings, chart


@chart(
    "Change of the logits at each width",
    "Root mean square change of the logits after some steps of SGD, at each width. If the line is flat, "
    "a learning rate of a narrow model also works for a wide one.",
)
def coordinates(view: ChartView) -> Drawings:
    return line_charts(view, view.rows, "width", "logit_change", ["parametrisation"], log=True)
