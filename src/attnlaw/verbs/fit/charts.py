"""The chart of fitted laws."""

from __future__ import annotations

from attnlaw.render.charts.view import ChartView, Drawings, chart
from attnlaw.render.model_names import name_models
from attnlaw.verbs.audit.charts import law_maps

CAPTION = (
    "Each cell is one matrix; each row is a layer, and each column is a head. Its colour shows the law "
    "that its singular values follow. Grey cells look like random numbers, so training hardly changed them. "
    "No other colour is better than another."
)


@chart("Law of each matrix", CAPTION, prepare=name_models)
def laws(view: ChartView) -> Drawings:
    return law_maps(view)
