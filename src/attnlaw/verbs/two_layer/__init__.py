"""The study verb `two_layer`: the risk of two linear layers that fit every label, at any initial scale."""

from __future__ import annotations

import numpy as np

from attnlaw.core.errors import BadSetting
from attnlaw.core.estimate import Numbers
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.theory.regression.effective_ranks import effective_ranks
from attnlaw.theory.regression.problem import Group, Regression
from attnlaw.theory.regression.two_layer import simulate_two_layer, two_layer_risk


@settings_dataclass
class TwoLayerSettings(Settings):
    """Train two linear layers until they fit every label, on inputs with few strong and many weak directions.

    The true coefficients have length 1 and are in the strong directions. The layers start balanced
    (with matching sizes), in a random direction.
    """

    scale: float = setting(
        0.1,
        "Size of each layer's weights before training; their product starts with the square of it.",
        symbol="s",
        greater_than=0,
    )
    samples: int = setting(100, "Number of samples, all of which are fitted exactly.", symbol="n", minimum=1)
    strong: int = setting(
        5, "Number of input directions with a large variance, which carry the signal.", minimum=1
    )
    strong_variance: float = setting(
        10.0, "Variance of the inputs along each strong direction.", greater_than=0
    )
    weak: int = setting(2000, "Number of input directions with a small variance.", minimum=1)
    weak_variance: float = setting(0.02, "Variance of the inputs along each weak direction.", greater_than=0)
    noise: float = setting(0.25, "Variance of the noise that is added to the labels.", symbol="σ²", minimum=0)

    def check(self) -> None:
        if self.samples >= self.strong + self.weak:
            raise BadSetting(
                "samples", "expected fewer than {strong} and {weak} directions together", self.samples
            )

    @property
    def problem(self) -> Regression:
        variances = np.repeat([self.strong_variance, self.weak_variance], [self.strong, self.weak])
        signal = np.repeat([self.strong**-0.5, 0.0], [self.strong, self.weak])
        return Regression((Group(1.0, variances, noise=self.noise),), signal, self.samples)


@settings_dataclass
class TwoLayerSimulationSettings(TwoLayerSettings):
    """Draw random data and starts, and train with infinitely small steps (gradient flow) to the end."""

    seeds: int = setting(
        8, "Number of random data sets and starts. The standard error of their mean is shown.", minimum=1
    )
    seed: int = setting(
        0, "Seed of the random data sets and starts. Equal seeds give equal results.", minimum=0
    )


def solve(case: TwoLayerSettings, progress: Progress) -> Numbers:
    """Return the risk and its parts, and the effective ranks of the covariance for this number of samples."""
    problem = case.problem
    risk = two_layer_risk(problem, case.scale)
    split = effective_ranks(np.asarray(problem.groups[0].covariance)).split(case.samples)
    head, tail = split.noise_terms or (None, None)
    names = ("excess", "bias", "variance", "start", "norm", "residual")
    numbers = {name: getattr(risk, name) for name in names}
    numbers |= {"k": split.k, "r": split.r, "R": split.R, "head_term": head, "tail_term": tail}
    return Numbers(numbers, risk.outcome, risk.remark or split.remark)


MEASURED = (
    Quantity(
        "excess",
        "mean squared error on new samples with noise-free labels (excess risk)",
        display_name="excess risk",
        error=True,
        in_summary=True,
        log=True,
    ),
    Quantity("norm", "length of the learned weight vector (‖w‖)", error=True),
)
QUANTITIES = (
    *MEASURED,
    Quantity(
        "bias",
        "part of the excess risk that is due to the signal (bias), for the shortest weight vector "
        "that fits every label",
    ),
    Quantity(
        "variance",
        "part of the excess risk that is due to label noise (variance), for the shortest weight "
        "vector that fits every label",
    ),
    Quantity(
        "start",
        "part of the excess risk that the initial weights cause, because training cannot change them "
        "in directions without data",
    ),
    Quantity(
        "k",
        "number k* of strong input directions; the others form the tail of small variances",
        "k*",
        kind="int",
    ),
    Quantity(
        "r", "effective rank r of the tail of small variances: their sum divided by the largest", "r_k*"
    ),
    Quantity(
        "R",
        "effective rank R of the tail of small variances: their squared sum divided by the sum of squares",
        "R_k*",
    ),
    Quantity(
        "head_term", "first term (k*/n) of the risk bound in arXiv 1906.11300, without the constant factor"
    ),
    Quantity(
        "tail_term", "second term (n/R_k*) of the risk bound in arXiv 1906.11300, without the constant factor"
    ),
    Quantity(
        "residual", "relative error of the numerical solution of the theory's equation for κ", hidden=True
    ),
)
SIMULATE = Verb(
    "two_layer.simulate",
    "Simulation on random data",
    TwoLayerSimulationSettings,
    MEASURED,
    run_each_case(lambda case, progress: simulate_two_layer(case.problem, case.scale, case.seeds, case.seed)),
    is_random=True,
)
VERB = Verb(
    "two_layer",
    "Train two linear layers that fit every label",
    TwoLayerSettings,
    QUANTITIES,
    run_each_case(solve),
    charts=("scale",),
    simulation=SIMULATE,
    after_abstract="2108.11489",
)
