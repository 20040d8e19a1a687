"""The study verb `early_stopping`: compare factors that start small and stop early with weight decay."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.theory.implicit_bias.single_index import (
    IndexPrediction,
    SingleIndex,
    predict_index,
    simulate_index,
)


@settings_dataclass
class EarlyStoppingSettings(SingleIndex):
    """Learn a direction with few nonzero coefficients from one score step, then stop early or threshold.

    Labels are f(<x, β>) with noise, where x is normal and β has length 1.
    """


@settings_dataclass
class EarlyStoppingSimulationSettings(SingleIndex):
    """Draw samples at random and train on them."""

    seeds: int = setting(8, "Draws; the error is the standard error of their mean.", minimum=1)
    seed: int = setting(0, "Seed of the draws.", minimum=0)


def _map(prediction: IndexPrediction) -> Any:
    """Return a table of true and learned coefficients, in the units of `threshold`."""
    import polars as pl

    x = np.linspace(0.0, LARGEST, POINTS)
    unit = prediction.tau / prediction.problem.threshold
    return pl.DataFrame({"coefficient": x, "learned": prediction.apply_rule(x * unit) / unit})


LARGEST, POINTS = 3.0, 301  # largest coefficient and number of points of the table `map`
MEASURED = (
    Quantity(
        "risk",
        "squared distance from μβ",
        display_name="risk",
        axis="risk, squared distance from μβ",
        error=True,
        in_summary=True,
        log=True,
    ),
    Quantity("kept", "coefficients above the threshold", error=True, in_summary=True),
    Quantity("false_positives", "those of them that are zero in β", error=True),
)
QUANTITIES = (
    *MEASURED,
    Quantity("tau", "the threshold, of coefficients", "τ"),
    Quantity("time", "of stopping, of a flow"),
    Quantity("slope", "mean slope of f: the length of what is learned", "μ"),
)
MAP = (
    Quantity("coefficient", "φ, in units of √(2 ln p) ‖y‖/n", display_name="coefficient φ"),
    Quantity("learned", "what is learned of it, in the same units", display_name="learned β"),
)
SIMULATE = Verb(
    "early_stopping.simulate",
    "Trained",
    EarlyStoppingSimulationSettings,
    MEASURED,
    run_each_case(lambda case, progress: simulate_index(case, case.seeds, case.seed)),
    is_random=True,
)
VERB = Verb(
    "early_stopping",
    "Small factors stopped early",
    EarlyStoppingSettings,
    QUANTITIES,
    run_each_case(lambda case, progress: predict_index(case)),
    tables=(TableSpec("map", MAP, _map),),
    charts=("stopping_map", "stopping"),
    simulation=SIMULATE,
    after_abstract="2007.08322",
)
