"""The chart of fitted laws, which audits have too."""

from __future__ import annotations

from attnlaw.render.charts.view import ChartView, Drawings, chart
from attnlaw.render.model_names import name_models
from attnlaw.verbs.audit.charts import LAWS, law_maps


@chart(*LAWS, prepare=name_models)
def laws(view: ChartView) -> Drawings:
    return law_maps(view)
