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
    """Estimate a direction with few nonzero coefficients, by early stopping or by a threshold.

    Labels are f(<x, β>) with noise, for Gaussian inputs x and a hidden direction β of length 1.
    """


@settings_dataclass
class EarlyStoppingSimulationSettings(SingleIndex):
    """Draw samples at random and train on them."""

    seeds: int = setting(
        8, "Number of random data sets. The standard error of their mean is shown.", minimum=1
    )
    seed: int = setting(0, "Seed of the random data sets. Equal seeds give equal results.", minimum=0)


def _map(prediction: IndexPrediction) -> Any:
    import polars as pl

    x = np.linspace(0.0, LARGEST, POINTS)
    unit = prediction.tau / prediction.problem.threshold
    return pl.DataFrame({"coefficient": x, "learned": prediction.apply_rule(x * unit) / unit})


LARGEST, POINTS = 3.0, 301  # largest coefficient and number of points of the table `map`
MEASURED = (
    Quantity(
        "risk",
        "squared distance between the learned coefficients and the best possible ones",
        display_name="risk",
        axis="squared distance from μβ (risk)",
        error=True,
        in_summary=True,
        log=True,
    ),
    Quantity(
        "kept",
        "number of coefficients that the rule keeps, because they are above the threshold",
        error=True,
        in_summary=True,
    ),
    Quantity("false_positives", "number of kept coefficients whose true value is zero", error=True),
)
QUANTITIES = (
    *MEASURED,
    Quantity("tau", "threshold below which the rule sets coefficients to zero", "τ"),
    Quantity("time", "training time at which the gradient flow stops"),
    Quantity(
        "slope",
        "mean slope μ of the link function; the best possible coefficients are μβ",
        "μ",
    ),
)
MAP = (
    Quantity(
        "coefficient",
        "coefficient φ before the rule is applied, in units of √(2 ln p) ‖y‖/n (n labels y, p inputs)",
        display_name="coefficient φ",
    ),
    Quantity(
        "learned",
        "coefficient β after the rule is applied, in units of √(2 ln p) ‖y‖/n (n labels y, p inputs)",
        display_name="learned β",
    ),
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
    "Sparse regression by small factors and early stopping",
    EarlyStoppingSettings,
    QUANTITIES,
    run_each_case(lambda case, progress: predict_index(case)),
    tables=(TableSpec("map", MAP, _map),),
    charts=("stopping_map", "stopping"),
    simulation=SIMULATE,
    after_abstract="2007.08322",
)
