"""What an ensemble may be made of: losses and features. The tables are known before any mathematics is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from attnlaw.base.declare import table
from attnlaw.base.variants import Variants


@dataclass(frozen=True)
class LossChoice:
    """A loss: `rule` names the record of `numerics.prox`. `classifies`: labels are signs, and clean."""

    name: str
    label: str
    rule: str
    classifies: bool

    @property
    def noisy(self) -> bool:
        return not self.classifies


@dataclass(frozen=True)
class Features:
    """Features act(F x / sqrt(d)), act odd: `function` and `moments` (kappa_1, kappa_*^2) by their names."""

    name: str
    function: str
    moments: str
    example: str | None = None
    parameters: tuple[float, ...] = ()

    def at(self, parameter: str) -> Features:
        gain = float(parameter)
        if not 0 < gain < math.inf:
            raise ValueError(f"{parameter} is not a positive number")
        return replace(
            self, name=f"{self.name.partition(':')[0]}:{parameter}", example=None, parameters=(gain,)
        )


_PROX = "attnlaw.numerics.prox"
_FEATURES = "attnlaw.regression.features"

LOSSES = table(
    LossChoice("square", "ridge", f"{_PROX}:SQUARE", classifies=False),
    LossChoice("logistic", "logistic", f"{_PROX}:LOGISTIC", classifies=True),
    LossChoice("hinge", "hinge", f"{_PROX}:HINGE", classifies=True),
)
FEATURES = Variants(
    Features("sign", f"{_FEATURES}:sign", f"{_FEATURES}:sign_moments"),
    # tanh(G z)
    Features("tanh:G", f"{_FEATURES}:tanh", f"{_FEATURES}:tanh_moments", example="tanh:2"),
)
