"""`complete`, for studies: the 2 x 2 matrix [[?, 1], [1, e]] completed by trained factors, e seen or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnlaw.base.charts import Curves
from attnlaw.base.declare import Progress, Verb, each
from attnlaw.base.quantity import Quantity
from attnlaw.base.settings import Settings, setting, settings
from attnlaw.implicit.variants import GRAPHS

if TYPE_CHECKING:
    from attnlaw.base.estimate import Estimate, Outcome
    from attnlaw.implicit.completion import Completion


@settings
class Complete(Settings):
    """Factors trained on [[?, 1], [1, e]]: what they put in the first entry, e seen or not.

    With e all rows and columns are connected by what is seen, without it they are not.
    """

    graph: str = setting("connected", "Whether e is seen.", choices=GRAPHS)
    entry: float = setting(0.6, "The entry e.", symbol="e", above=0, where=("graph", "observed"))
    latent: int = setting(2, "Width of the factors.", symbol="k", least=1)
    init: float = setting(1e-3, "Standard deviation of the factors at the start.", symbol="ε", above=0)

    @property
    def problem(self) -> Completion:
        from attnlaw.implicit.completion import Completion

        seen = [[False, True], [True, GRAPHS[self.graph].observed]]
        return Completion([[0.0, 1.0], [1.0, self.entry]], seen, self.latent, self.init)


@settings
class Simulate(Complete):
    """Follow the flow from drawn starts."""

    seeds: int = setting(8, "Starts; the error is the standard error of their mean.", least=1)
    seed: int = setting(0, "Seed of the starts.", least=0)


@dataclass(frozen=True)
class Completed:
    """The limit of vanishing starts, the first entry in mean size over them."""

    corner: float
    rank: int
    nuclear: float
    exponent: float | None
    outcome: Outcome
    remark: str | None


@dataclass(frozen=True)
class Trained:
    """Means over starts, with their standard errors."""

    corner: Estimate
    rank: Estimate
    nuclear: Estimate
    outcome: Outcome
    remark: str | None


def solve(case: Complete, progress: Progress) -> Completed:
    from attnlaw.implicit.completion import mean_cosine, predict_completion

    found = predict_completion(case.problem)
    corner = abs(float(found.matrix[0, 0])) if GRAPHS[case.graph].observed else mean_cosine(case.latent)
    return Completed(corner, found.rank, found.nuclear, found.exponent, found.outcome, found.remark)


def simulate(case: Simulate, progress: Progress) -> Trained:
    from attnlaw.base.estimate import Outcome
    from attnlaw.implicit.completion import train_completion
    from attnlaw.numerics.draws import mean_of

    runs = [train_completion(case.problem, case.seed + place) for place in range(case.seeds)]
    corner = mean_of([abs(run.matrix[0, 0]) for run in runs])
    rank, nuclear = mean_of([run.rank for run in runs]), mean_of([run.nuclear for run in runs])
    worst = next((run for run in runs if run.outcome != Outcome.DONE), runs[0])
    return Trained(corner, rank, nuclear, worst.outcome, worst.remark)


MEASURED = (
    Quantity(
        "corner", "mean size of the first entry", called="size of the missing entry", error=True, brief=True
    ),
    Quantity("rank", "of the matrix", error=True, brief=True),
    Quantity("nuclear", "nuclear norm", called="nuclear norm", error=True),
)
QUANTITIES = (
    *MEASURED,
    Quantity("exponent", "what is left of a second direction falls as init to this power"),
)
CHARTS = (
    Curves(
        "connectivity",
        "What is not seen, by what connects it",
        caption="The missing entry of [[?, 1], [1, e]] against the scale of the start. Lines: its limit, 1/e "
        "of rank one where e is seen, and a random entry, here in mean size, where it is not.",
        x="init",
        y="corner",
        by="graph",
        points="latent",
        log_x=True,
    ),
)
SIMULATE = Verb("complete.simulate", "Trained", Simulate, MEASURED, each(simulate), draws=True)
VERB = Verb(
    "complete",
    "Completing a matrix from some entries",
    Complete,
    QUANTITIES,
    each(solve),
    charts=CHARTS,
    beside=SIMULATE,
)
