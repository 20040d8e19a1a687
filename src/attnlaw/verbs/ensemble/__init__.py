"""The study verb `ensemble`: average learners that have different random features, or let them vote."""

from __future__ import annotations

import math

from attnlaw.core.estimate import Numbers
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import setting, setting_fields, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.theory.regression.ensemble import Ensemble
from attnlaw.theory.regression.evolution import ensemble_evolution
from attnlaw.theory.regression.learners import simulate_ensemble


@settings_dataclass
class EnsembleSettings(Ensemble):
    """Average learners that see the same samples through different random features, or let them vote.

    A linear teacher gives the labels. They have noise for the square loss, and are signs for logistic and
    hinge.
    """

    learners: float = setting(
        1, "Number of learners that are combined.", symbol="K", minimum=1, allow_infinite=True
    )


@settings_dataclass
class EnsembleSimulationSettings(Ensemble):
    """Train the learners on randomly drawn samples."""

    learners: int = setting(2, "Number of learners that are combined.", symbol="K", minimum=1)
    seeds: int = setting(8, "Number of draws. The error is the standard error of their mean.", minimum=1)
    seed: int = setting(0, "Seed of the random draws.", minimum=0)


def solve(case: EnsembleSettings, progress: Progress) -> Numbers:
    prediction = ensemble_evolution(_shared_settings(case))
    overlaps = {name: getattr(prediction, name) for name in ("m", "q", "q1", "V", "residual")}
    errors = {
        "mean_error": prediction.error(case.learners),
        "vote_error": prediction.vote_error(case.learners),
        "limit_error": prediction.error(math.inf),
    }
    return Numbers(overlaps | errors)


def _shared_settings(case: Ensemble) -> Ensemble:
    return Ensemble(**{name: getattr(case, name) for name in setting_fields(Ensemble)})


MEASURED = (
    Quantity(
        "mean_error",
        "error of the averaged learners: mean square, or share of wrong signs for classes",
        display_name="error of the mean",
        error=True,
        in_summary=True,
    ),
    Quantity("vote_error", "share of wrong signs if the majority of the learners decides", error=True),
    Quantity("m", "overlap of a learner with the teacher", error=True),
    Quantity("q", "overlap of a learner with itself", error=True),
    Quantity("q1", "overlap of two different learners", error=True),
)
QUANTITIES = (
    *MEASURED,
    Quantity("V", "response of a score to the label of the same sample"),
    Quantity("limit_error", "error of the mean of infinitely many learners"),
    Quantity("residual", "relative residual of the equations", hidden=True),
)
SIMULATE = Verb(
    "ensemble.simulate",
    "Trained learners",
    EnsembleSimulationSettings,
    MEASURED,
    run_each_case(
        lambda case, progress: simulate_ensemble(_shared_settings(case), case.learners, case.seeds, case.seed)
    ),
    is_random=True,
)
VERB = Verb(
    "ensemble",
    "Ensembles of learners",
    EnsembleSettings,
    QUANTITIES,
    run_each_case(solve),
    charts=("ensemble",),
    simulation=SIMULATE,
    after_abstract="2201.13383",
)
