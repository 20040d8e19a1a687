"""The study verb `complete`: factors trained on [[?, 1], [1, e]], with the entry e observed or not."""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.estimate import Numbers, Outcome
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.variants import by_name
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.implicit_bias.completion import (
    Completion,
    mean_cosine,
    predict_completion,
    train_completion,
)


@dataclass(frozen=True)
class Graph:
    """A choice of observed entries in a 2 x 2 matrix. With the last one, they connect rows and columns."""

    name: str
    label: str
    observed: bool


GRAPHS = by_name(
    Graph("connected", "corner observed (connected)", observed=True),
    Graph("disconnected", "corner missing (disconnected)", observed=False),
)


@settings_dataclass
class CompletionSettings(Settings):
    """Train factors on the matrix [[?, 1], [1, e]] and see what they put into the missing entry.

    If e is observed, the observed entries connect all rows and columns; otherwise they do not.
    """

    graph: str = setting(
        "connected", "Whether training observes the last entry (e) of the matrix.", choices=GRAPHS
    )
    entry: float = setting(
        0.6,
        "Value of the last entry (e) of the matrix.",
        symbol="e",
        greater_than=0,
        active_if=("graph", "observed"),
    )
    latent: int = setting(2, "Width of the two trained factors.", symbol="k", minimum=1)
    init: float = setting(
        1e-3,
        "Standard deviation of the entries of the trained factors at the start.",
        symbol="ε",
        greater_than=0,
    )

    @property
    def problem(self) -> Completion:
        seen = [[False, True], [True, GRAPHS[self.graph].observed]]
        return Completion([[0.0, 1.0], [1.0, self.entry]], seen, self.latent, self.init)


@settings_dataclass
class CompletionSimulationSettings(CompletionSettings):
    """Follow the gradient flow from randomly drawn starts."""

    seeds: int = setting(
        8, "Number of random starts; errors are standard errors of the mean over starts.", minimum=1
    )
    seed: int = setting(0, "Seed of the random starts.", minimum=0)


def solve(case: CompletionSettings, progress: Progress) -> Numbers:
    """Return the limit of training from vanishing starts. `corner` is the mean size of the missing entry."""
    prediction = predict_completion(case.problem)
    corner = abs(float(prediction.matrix[0, 0])) if GRAPHS[case.graph].observed else mean_cosine(case.latent)
    return Numbers(vars(prediction) | {"corner": corner}, prediction.outcome, prediction.remark)


def simulate(case: CompletionSimulationSettings, progress: Progress) -> Numbers:
    runs = [train_completion(case.problem, case.seed + place) for place in range(case.seeds)]
    means = {name: mean_of([getattr(run, name) for run in runs]) for name in ("rank", "nuclear")}
    means["corner"] = mean_of([abs(run.matrix[0, 0]) for run in runs])
    worst = next((run for run in runs if run.outcome != Outcome.DONE), runs[0])
    return Numbers(means, worst.outcome, worst.remark)


MEASURED = (
    Quantity(
        "corner",
        "mean absolute value that training puts into the missing entry",
        display_name="size of the missing entry",
        error=True,
        in_summary=True,
    ),
    Quantity("rank", "rank of the completed matrix", error=True, in_summary=True),
    Quantity(
        "nuclear",
        "nuclear norm of the completed matrix (sum of its singular values)",
        display_name="nuclear norm",
        error=True,
    ),
)
QUANTITIES = (
    *MEASURED,
    Quantity(
        "exponent",
        "exponent of a power law: how fast the second direction of the matrix shrinks as the "
        "start gets smaller",
    ),
)
SIMULATE = Verb(
    "complete.simulate",
    "Trained",
    CompletionSimulationSettings,
    MEASURED,
    run_each_case(simulate),
    is_random=True,
)
VERB = Verb(
    "complete",
    "Completing a matrix from some entries",
    CompletionSettings,
    QUANTITIES,
    run_each_case(solve),
    charts=("connectivity",),
    simulation=SIMULATE,
    after_abstract="2405.13721",
)
