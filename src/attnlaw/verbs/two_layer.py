"""`two_layer`, for studies: what two linear layers that interpolate learn, by the scale of their start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlaw.base.charts import Curves
from attnlaw.base.declare import Progress, Verb, each
from attnlaw.base.errors import BadSetting
from attnlaw.base.quantity import Quantity
from attnlaw.base.settings import Settings, setting, settings

if TYPE_CHECKING:
    from attnlaw.base.estimate import Outcome
    from attnlaw.regression.effective_ranks import Split
    from attnlaw.regression.problem import Regression
    from attnlaw.regression.two_layer import MeasuredTwoLayer, TwoLayerRisk


@settings
class TwoLayer(Settings):
    """Gradient flow of two linear layers to the end, on inputs of a few strong and many weak directions.

    The signal lies in the strong directions, with length 1; the start is balanced, in a random direction.
    """

    scale: float = setting(
        0.1, "Of each layer at the start; the map starts at its square.", symbol="s", above=0
    )
    samples: int = setting(100, "Samples, all fitted exactly.", symbol="n", least=1)
    strong: int = setting(5, "Strong directions, which carry the signal.", least=1)
    strong_variance: float = setting(10.0, "Variance of inputs along each.", above=0)
    weak: int = setting(2000, "Weak directions.", least=1)
    weak_variance: float = setting(0.02, "Variance of inputs along each.", above=0)
    noise: float = setting(0.25, "Variance of the noise of labels.", symbol="σ²", least=0)

    def check(self) -> None:
        if self.samples >= self.strong + self.weak:
            raise BadSetting(
                "samples", "expected fewer than {strong} and {weak} directions together", self.samples
            )

    @property
    def problem(self) -> Regression:
        import numpy as np

        from attnlaw.regression.problem import Group, Regression

        variances = np.repeat([self.strong_variance, self.weak_variance], [self.strong, self.weak])
        signal = np.repeat([self.strong**-0.5, 0.0], [self.strong, self.weak])
        return Regression((Group(1.0, variances, noise=self.noise),), signal, self.samples)


@settings
class Simulate(TwoLayer):
    """Draw data and starts, and follow the flow to its end."""

    seeds: int = setting(8, "Draws; the error is the standard error of their mean.", least=1)
    seed: int = setting(0, "Seed of the draws.", least=0)


@dataclass(frozen=True)
class Interpolated:
    """The risk, and where the samples cut the spectrum."""

    risk: TwoLayerRisk
    split: Split

    @property
    def outcome(self) -> Outcome:
        return self.risk.outcome

    @property
    def remark(self) -> str | None:
        return self.risk.remark or self.split.remark

    @property
    def quantities(self) -> Mapping[str, Any]:
        split, risk = self.split, self.risk
        head, tail = split.noise_terms or (None, None)
        own = {
            name: getattr(risk, name) for name in ("excess", "bias", "variance", "start", "norm", "residual")
        }
        return own | {"k": split.k, "r": split.r, "R": split.R, "head_term": head, "tail_term": tail}


def solve(case: TwoLayer, progress: Progress) -> Interpolated:
    import numpy as np

    from attnlaw.regression.effective_ranks import effective_ranks
    from attnlaw.regression.two_layer import two_layer_risk

    problem = case.problem
    ranks = effective_ranks(np.asarray(problem.groups[0].covariance))
    return Interpolated(two_layer_risk(problem, case.scale), ranks.split(case.samples))


def simulate(case: Simulate, progress: Progress) -> MeasuredTwoLayer:
    from attnlaw.regression.two_layer import simulate_two_layer

    return simulate_two_layer(case.problem, case.scale, case.seeds, case.seed)


MEASURED = (
    Quantity("excess", "risk on clean labels", called="excess risk", error=True, brief=True, log=True),
    Quantity("norm", "‖w‖ of the learned map", error=True),
)
QUANTITIES = (
    *MEASURED,
    Quantity("bias", "of the interpolator of least norm"),
    Quantity("variance", "of the interpolator of least norm"),
    Quantity("start", "what is left of the start in directions that the data do not see"),
    Quantity("k", "directions before the tail", "k*", kind="int"),
    Quantity("r", "effective rank of the tail", "r_k*"),
    Quantity("R", "effective rank of the tail", "R_k*"),
    Quantity("head_term", "k*/n, in the bound of arXiv 1906.11300 up to a constant"),
    Quantity("tail_term", "n/R_k*, in the bound of arXiv 1906.11300 up to a constant"),
    Quantity("residual", "what the equation for kappa misses", quiet=True),
)
CHARTS = (
    Curves(
        "scale",
        "The price of a large start",
        caption="Risk of two linear layers that fit every label, against their scale at the start. A small "
        "start ends in the interpolator of least norm, and a long tail of weak directions makes that benign.",
        x="scale",
        y="excess",
        by="weak",
        points="samples",
        log=True,
    ),
)
SIMULATE = Verb("two_layer.simulate", "Drawn data", Simulate, MEASURED, each(simulate), draws=True)
VERB = Verb(
    "two_layer",
    "Two linear layers that interpolate",
    TwoLayer,
    QUANTITIES,
    each(solve),
    charts=CHARTS,
    beside=SIMULATE,
)
