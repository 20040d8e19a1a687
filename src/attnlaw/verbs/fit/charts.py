"""The map of fitted laws, as an audit has it, on the page too."""

from __future__ import annotations

from attnlaw.core.result import Result
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.view import ChartView
from attnlaw.verbs.audit.charts import law_maps
from attnlaw.verbs.audit.names import name_models


def laws(result: Result) -> list[Figure]:
    return law_maps(ChartView(name_models(result)), on_page=True)
