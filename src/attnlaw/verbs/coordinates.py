"""`coordinates`: the coordinate check of muP on a model whose weights are never drawn, for studies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlaw.base.charts import Curves
from attnlaw.base.declare import Progress, Verb, each
from attnlaw.base.quantity import Quantity
from attnlaw.base.settings import Settings, setting, settings
from attnlaw.initial.variants import PARAMETRISATIONS

if TYPE_CHECKING:
    from attnlaw.initial.coordinates import CoordinateCheck


@settings
class Coordinates(Settings):
    """How much the logits of a two-layer GPT-2 move in a few steps of SGD, against the width.

    In the standard parametrisation (SP) the change grows with the width, in muP (arXiv 2203.03466) it has a
    limit. Needs the extra lens.
    """

    width: int = setting(64, "A multiple of 16.", symbol="N", least=16, most=10**6, many=True)
    parametrisation: str = setting(
        "SP", "How deviations and rates go with the width.", choices=PARAMETRISATIONS, many=True
    )
    steps: int = setting(2, "Of SGD.", least=1, most=1000, many=True)
    rate: float = setting(0.05, "Of SGD at width 64.", above=0, many=True)
    draws: int = setting(10, "Initialisations.", least=1, most=10**6)
    seed: int = setting(0, "Seed; equal seeds repeat the table.", least=0)


QUANTITIES = (
    Quantity(
        "logit_change",
        "root mean square over tokens and ids",
        error=True,
        brief=True,
        log=True,
        axis="change of logits, r.m.s.",
    ),
)


@each
def run(case: Coordinates, progress: Progress) -> CoordinateCheck:
    from attnlaw.initial.coordinates import coordinate_check

    return coordinate_check(
        case.width, case.parametrisation, case.steps, case.rate, case.draws, case.seed, progress
    )


VERB = Verb(
    "coordinates",
    "Coordinate check",
    Coordinates,
    QUANTITIES,
    run,
    charts=(
        Curves(
            "coordinates",
            "Change of logits against the width",
            x="width",
            y="logit_change",
            by="parametrisation",
            log=True,
            caption="Root mean square change of logits after the steps of SGD. Where the line is flat, a "
            "learning rate carries over to wider models.",
        ),
    ),
    draws=True,
)
