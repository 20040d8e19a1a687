"""`early_stopping`, for studies: factors that start small and stop early, against weight decay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlaw.base.charts import Curves
from attnlaw.base.declare import Progress, Quantity, Verb, each
from attnlaw.base.settings import setting, settings
from attnlaw.implicit.index_problem import SingleIndex

if TYPE_CHECKING:
    from attnlaw.implicit.single_index import IndexPrediction, MeasuredIndex


@settings
class EarlyStopping(SingleIndex):
    """A direction with few coefficients, learned from one score step: factors stopped early, or a threshold.

    Labels are f(<x, β>) with noise, x normal, β of length 1.
    """


@settings
class Simulate(SingleIndex):
    """Draw samples and train."""

    seeds: int = setting(8, "Draws; the error is the standard error of their mean.", least=1)
    seed: int = setting(0, "Seed of the draws.", least=0)


def solve(case: EarlyStopping, progress: Progress) -> IndexPrediction:
    from attnlaw.implicit.single_index import predict_index

    return predict_index(case)


def simulate(case: Simulate, progress: Progress) -> MeasuredIndex:
    from attnlaw.implicit.single_index import simulate_index

    return simulate_index(case, case.seeds, case.seed)


MEASURED = (
    Quantity("risk", "squared distance from μβ", called="risk", error=True, brief=True, log=True),
    Quantity("kept", "coefficients above the threshold", error=True, brief=True),
    Quantity("false_positives", "those of them that are zero in β", error=True),
)
QUANTITIES = (
    *MEASURED,
    Quantity("tau", "the threshold, of coefficients", "τ"),
    Quantity("time", "of stopping, of a flow"),
    Quantity("slope", "mean slope of f: the length of what is learned", "μ"),
)
CHARTS = (
    Curves(
        "stopping",
        "When to stop",
        caption="Risk against the threshold that the time of stopping stands for: to the left it is too late "
        "and noise is learned; to the right too early, and signals are missed. A soft threshold, which is "
        "weight decay, takes something from every signal.",
        x="threshold",
        y="risk",
        by="rule",
        points="dimension",
    ),
)
SIMULATE = Verb("early_stopping.simulate", "Trained", Simulate, MEASURED, each(simulate), draws=True)
VERB = Verb(
    "early_stopping",
    "Small factors stopped early",
    EarlyStopping,
    QUANTITIES,
    each(solve),
    charts=CHARTS,
    beside=SIMULATE,
)
