"""The verb `coordinates`, for studies. It runs the coordinate check of muP without drawing any weights."""

from __future__ import annotations

from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.theory.init.architecture import PARAMETRISATIONS
from attnlaw.theory.init.coordinates import CoordinateCheck, coordinate_check


@settings_dataclass
class CoordinatesSettings(Settings):
    """Compute how much the logits of a two-layer GPT-2 change in a few steps of SGD, for a given width.

    In the standard parametrisation (SP) the change grows with the width. In muP (arXiv 2203.03466) it has a
    limit. This command needs the optional packages of attnlaw[lens].
    """

    width: int = setting(
        64, "Width of the network, a multiple of 16.", symbol="N", minimum=16, maximum=10**6, sweepable=True
    )
    parametrisation: str = setting(
        "SP",
        "How initial weights and learning rates scale with the width: standard (SP) or muP.",
        choices=PARAMETRISATIONS,
        sweepable=True,
    )
    steps: int = setting(2, "Number of training steps (SGD).", minimum=1, maximum=1000, sweepable=True)
    rate: float = setting(
        0.05,
        "Learning rate of SGD at width 64; other widths scale it as the parametrisation says.",
        greater_than=0,
        sweepable=True,
    )
    draws: int = setting(10, "Number of random initialisations to average over.", minimum=1, maximum=10**6)
    seed: int = setting(0, "Seed of the random numbers. Equal seeds give equal results.", minimum=0)


QUANTITIES = (
    Quantity(
        "logit_change",
        "root mean square change of the logits in training, over all tokens and the vocabulary",
        error=True,
        in_summary=True,
        log=True,
        axis="root mean square change of logits",
    ),
)


@run_each_case
def run(case: CoordinatesSettings, progress: Progress) -> CoordinateCheck:
    return coordinate_check(
        case.width, case.parametrisation, case.steps, case.rate, case.draws, case.seed, progress
    )


VERB = Verb(
    "coordinates",
    "Coordinate check of a small GPT-2",
    CoordinatesSettings,
    QUANTITIES,
    run,
    charts=("coordinates",),
    is_random=True,
)
