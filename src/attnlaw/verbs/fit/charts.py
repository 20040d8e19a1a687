"""The map of fitted laws, as an audit has it, on the page too."""

from __future__ import annotations

from attnlaw.core.result import Result
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.view import ChartView
from attnlaw.verbs.audit.charts import law_maps


def laws(result: Result) -> list[Figure]:
    return law_maps(ChartView(result), on_page=True)
