"""The study verb `shift`: weighted kernel ridge regression on two groups, whose shares differ in the
target."""

from __future__ import annotations

import numpy as np

from attnlaw.core.estimate import Numbers
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.theory.regression.kernels import KERNELS, kernel_weights, linear_equivalent
from attnlaw.theory.regression.problem import WEIGHTINGS, Group, Regression, importance_weights
from attnlaw.theory.regression.risk import ridge_risk
from attnlaw.theory.regression.simulate import group_of_samples, simulate_kernel_ridge


@settings_dataclass
class ShiftSettings(Settings):
    """Fit kernel ridge regression to two groups of samples whose shares differ in the target.

    The variances of the p inputs run evenly from 0.5 to 1.5 in the first group and from 4 to 0.4 in the
    second, whose inputs are longer. The true coefficient of each input is p^(-1/2).
    """

    ridge: float = setting(
        0.1,
        "Ridge λ: kernel ridge regression solves with K + λ W⁻¹, for a kernel matrix K and sample weights W.",
        symbol="λ",
        greater_than=0,
    )
    weighting: str = setting(
        "importance", "Rule that weights the samples of the two groups.", choices=WEIGHTINGS
    )
    largest: float = setting(
        2.0, "Largest weight of a sample.", greater_than=0, active_if=("weighting", "truncated")
    )
    kernel: str = setting(
        "exp", "Kernel function of x·x'/p, for inputs x and x' of dimension p.", choices=KERNELS
    )
    samples: int = setting(300, "Number of samples.", symbol="n", minimum=2)
    dimension: int = setting(200, "Dimension of the inputs.", symbol="p", minimum=2)
    share: float = setting(0.8, "Share of the first group among the samples.", greater_than=0, maximum=0.999)
    target_share: float = setting(
        0.2, "Share of the first group in the target distribution.", greater_than=0, maximum=0.999
    )
    noise: float = setting(0.3, "Variance of the label noise.", symbol="σ²", minimum=0)

    @property
    def problem(self) -> Regression:
        p, choice = self.dimension, WEIGHTINGS[self.weighting]
        first, second = np.linspace(0.5, 1.5, p), np.linspace(4.0, 0.4, p)
        shares, wanted = (self.share, 1 - self.share), (self.target_share, 1 - self.target_share)
        weights = importance_weights(shares, wanted, self.largest if choice.truncated else None)
        if not choice.weighted:
            weights = np.ones(2)
        groups = [
            Group(share, covariance, weight, self.noise)
            for share, covariance, weight in zip(shares, (first, second), weights, strict=True)
        ]
        target = wanted[0] * first + wanted[1] * second
        return Regression(groups, np.full(p, p**-0.5), self.samples, self.ridge, target)


@settings_dataclass
class ShiftSimulationSettings(ShiftSettings):
    """Fit kernel ridge regression to randomly drawn samples."""

    seeds: int = setting(
        8, "Number of random draws; errors are standard errors of the mean over draws.", minimum=1
    )
    seed: int = setting(0, "Seed of the random draws.", minimum=0)


def solve(case: ShiftSettings, progress: Progress) -> Numbers:
    problem = case.problem
    first, second = kernel_weights(problem, case.kernel)
    risk = ridge_risk(linear_equivalent(problem, case.kernel))
    names = ("excess", "bias", "variance", "degrees", "residual")
    numbers = {name: getattr(risk, name) for name in names} | {"weight_ratio": float(second / first)}
    return Numbers(numbers, risk.outcome, risk.remark)


MEASURED = (
    Quantity(
        "excess",
        "mean squared error on clean labels of the target distribution",
        display_name="excess risk",
        error=True,
        in_summary=True,
        log=True,
    ),
    Quantity("bias", "bias part of the squared error on the target distribution", error=True),
    Quantity("variance", "variance part of the squared error on the target distribution", error=True),
)
QUANTITIES = (
    *MEASURED,
    Quantity(
        "weight_ratio",
        "effective weight of the second group of samples, divided by that of the first",
        in_summary=True,
        log=True,
    ),
    Quantity("degrees", "number of degrees of freedom that the fit uses"),
    Quantity("residual", "relative residual of the equations that theory solves", hidden=True),
)
SIMULATE = Verb(
    "shift.simulate",
    "Fitted",
    ShiftSimulationSettings,
    MEASURED,
    run_each_case(
        lambda case, progress: simulate_kernel_ridge(case.problem, case.kernel, case.seeds, case.seed)
    ),
    is_random=True,
    precheck=lambda case: group_of_samples(case.problem),
)
VERB = Verb(
    "shift",
    "Kernel ridge under covariate shift",
    ShiftSettings,
    QUANTITIES,
    run_each_case(solve),
    charts=("weights", "risk"),
    simulation=SIMULATE,
    after_abstract="2406.03171",
)
