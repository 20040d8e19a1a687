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
    """A choice of observed entries in a 2 x 2 matrix. If e is observed, they connect rows and columns."""

    name: str
    label: str
    observed: bool


GRAPHS = by_name(
    Graph("connected", "corner observed (connected)", observed=True),
    Graph("disconnected", "corner missing (disconnected)", observed=False),
)


@settings_dataclass
class CompletionSettings(Settings):
    """Train a product of factors on the known entries of [[?, 1], [1, e]], and see what it puts for ?.

    If training sees e, the known entries connect all rows and columns; otherwise they do not.
    """

    graph: str = setting(
        "connected",
        "Whether training sees the last entry e of the matrix (connected) or not (disconnected).",
        choices=GRAPHS,
    )
    entry: float = setting(
        0.6,
        "Value of the last entry e of the matrix [[?, 1], [1, e]].",
        symbol="e",
        greater_than=0,
        active_if=("graph", "observed"),
    )
    latent: int = setting(2, "Number of columns of the two trained factors.", symbol="k", minimum=1)
    init: float = setting(
        1e-3,
        "Standard deviation of the initial entries of the trained factors.",
        symbol="ε",
        greater_than=0,
    )

    @property
    def problem(self) -> Completion:
        seen = [[False, True], [True, GRAPHS[self.graph].observed]]
        return Completion([[0.0, 1.0], [1.0, self.entry]], seen, self.latent, self.init)


@settings_dataclass
class CompletionSimulationSettings(CompletionSettings):
    """Train with infinitely small steps (gradient flow) from random starts."""

    seeds: int = setting(8, "Number of random starts. The standard error of their mean is shown.", minimum=1)
    seed: int = setting(0, "Seed of the random starts.", minimum=0)


def solve(case: CompletionSettings, progress: Progress) -> Numbers:
    """Return what training learns from a vanishing start. `corner` is the mean size of the missing entry."""
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
        "absolute value that training puts into the missing entry (mean over starts)",
        display_name="size of the missing entry",
        error=True,
        in_summary=True,
    ),
    Quantity("rank", "rank of the completed matrix (with the missing entry)", error=True, in_summary=True),
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
        "exponent with which the second singular value falls as the start gets smaller; 0 means that "
        "it stays",
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
    "Complete a matrix from some entries",
    CompletionSettings,
    QUANTITIES,
    run_each_case(solve),
    charts=("connectivity",),
    simulation=SIMULATE,
    after_abstract="2405.13721",
)
