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
    """Fit kernel ridge regression to two groups of samples, whose shares differ where the model is used.

    The p entries of an input have variances from 0.5 to 1.5 in the first group, and from 4 to 0.4 in the
    second. All true coefficients are p^(-1/2).
    """

    ridge: float = setting(
        0.1,
        "Ridge λ of the regression: it solves with K + λ W⁻¹, for the kernel matrix K and sample weights W.",
        symbol="λ",
        greater_than=0,
    )
    weighting: str = setting(
        "importance", "Rule that gives the samples of the two groups their weights.", choices=WEIGHTINGS
    )
    largest: float = setting(
        2.0, "Largest weight that a sample may get.", greater_than=0, active_if=("weighting", "truncated")
    )
    kernel: str = setting(
        "exp", "Kernel, as a function of x·x'/p for inputs x and x' of dimension p.", choices=KERNELS
    )
    samples: int = setting(300, "Number of samples.", symbol="n", minimum=2)
    dimension: int = setting(200, "Dimension of the inputs.", symbol="p", minimum=2)
    share: float = setting(
        0.8, "Share of the training samples that belong to the first group.", greater_than=0, maximum=0.999
    )
    target_share: float = setting(
        0.2,
        "Share of the first group in the distribution that the model is meant for (target distribution).",
        greater_than=0,
        maximum=0.999,
    )
    noise: float = setting(0.3, "Variance of the noise that is added to the labels.", symbol="σ²", minimum=0)

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
        8, "Number of random data sets. The standard error of their mean is shown.", minimum=1
    )
    seed: int = setting(0, "Seed of the random data sets. Equal seeds give equal results.", minimum=0)


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
        "mean squared error on the target distribution with noise-free labels (excess risk)",
        display_name="excess risk",
        error=True,
        in_summary=True,
        log=True,
    ),
    Quantity(
        "bias",
        "part of the squared error on the target distribution that remains with noise-free labels (bias)",
        error=True,
    ),
    Quantity(
        "variance",
        "part of the squared error on the target distribution that comes from label noise (variance)",
        error=True,
    ),
)
QUANTITIES = (
    *MEASURED,
    Quantity(
        "weight_ratio",
        "effective weight of a sample of the second group, relative to one of the first",
        in_summary=True,
        log=True,
    ),
    Quantity("degrees", "effective number of parameters that the fit uses (degrees of freedom)"),
    Quantity("residual", "relative error of the numerical solution of the theory's equations", hidden=True),
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
