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

    A linear teacher gives the labels. Labels have noise for the square loss, and are signs for the logistic
    and hinge losses.
    """

    learners: float = setting(
        1, "Number of learners that the ensemble combines.", symbol="K", minimum=1, allow_infinite=True
    )


@settings_dataclass
class EnsembleSimulationSettings(Ensemble):
    """Train the learners on randomly drawn samples."""

    learners: int = setting(2, "Number of learners that the ensemble combines.", symbol="K", minimum=1)
    seeds: int = setting(
        8, "Number of random data sets. The standard error of their mean is shown.", minimum=1
    )
    seed: int = setting(0, "Seed of the random data sets. Equal seeds give equal results.", minimum=0)


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
        "error of the averaged learners: mean squared error, or share of wrong classes for the "
        "logistic and hinge losses",
        display_name="error of the averaged learners",
        error=True,
        in_summary=True,
    ),
    Quantity(
        "vote_error", "share of wrong classes if the learners vote and the majority decides", error=True
    ),
    Quantity(
        "m",
        "covariance of a learner's scores with those of the teacher that gives the labels (overlap m)",
        error=True,
    ),
    Quantity("q", "variance of a learner's scores (overlap q of a learner with itself)", error=True),
    Quantity("q1", "covariance of the scores of two different learners (overlap q₁)", error=True),
)
QUANTITIES = (
    *MEASURED,
    Quantity("V", "how much a learner's score of a training sample changes with the label of this sample"),
    Quantity("limit_error", "error of the average of infinitely many learners"),
    Quantity("residual", "relative error of the numerical solution of the theory's equations", hidden=True),
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
