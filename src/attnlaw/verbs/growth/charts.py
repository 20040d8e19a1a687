"""The chart of `growth`: proxies against depth and against hidden size."""

from __future__ import annotations

from functools import partial

from attnlaw.analysis.audit.growth import growth_table
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart
from attnlaw.verbs.audit.growth_chart import CAPTION, TITLE, draw_growth


@chart(TITLE, CAPTION)
def growth(view: ChartView) -> Drawings:
    """Draw one figure for each set of models."""
    for case, rows in view.cases(view.frame("models"), []):
        yield Drawing(partial(draw_growth, rows, growth_table(rows)), case)
