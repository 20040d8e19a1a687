"""What problems may be made of: losses, features, kernels, weights. A new one is a line here.

The tables are known before any mathematics is imported: functions of arrays are named by `module:function`.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.variants import Variants, by_name, parse_positive, with_parameter


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
        return with_parameter(self, parameter, parse_positive(parameter))


@dataclass(frozen=True)
class Kernel:
    """A kernel f(x . x'/p): `parts(tau, ...)` is its slope and remainder, `matrix(X, Y, ...)` n x m."""

    name: str
    label: str
    parts: str
    matrix: str
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Weighting:
    """Weights of groups whose shares differ between samples and target."""

    name: str
    label: str
    weighted: bool
    truncated: bool = False


_PROX = "attnlaw.numerics.prox"
_KERNELS = "attnlaw.theory.regression.kernels"
_FEATURES = "attnlaw.theory.regression.features"

LOSSES = by_name(
    LossChoice("square", "ridge", f"{_PROX}:SQUARE", classifies=False),
    LossChoice("logistic", "logistic", f"{_PROX}:LOGISTIC", classifies=True),
    LossChoice("hinge", "hinge", f"{_PROX}:HINGE", classifies=True),
)
FEATURES = Variants(
    Features("sign", f"{_FEATURES}:sign", f"{_FEATURES}:sign_moments"),
    # tanh(G z)
    Features("tanh:G", f"{_FEATURES}:tanh", f"{_FEATURES}:tanh_moments", example="tanh:2"),
)
_LAYER = (f"{_KERNELS}:layer_parts", f"{_KERNELS}:layer_matrix")
KERNELS = by_name(
    Kernel("exp", "exp(x·x'/p)", f"{_KERNELS}:exponential_parts", f"{_KERNELS}:exponential_matrix"),
    # Those of an infinitely wide layer with an activation of `limit`.
    Kernel("identity", "linear", *_LAYER, ("identity",)),
    Kernel("relu", "a wide ReLU layer", *_LAYER, ("relu",)),
    Kernel("gelu", "a wide GELU layer", *_LAYER, ("gelu",)),
)
WEIGHTINGS = by_name(
    Weighting("ones", "equal weights", weighted=False),
    Weighting("importance", "importance weights", weighted=True),
    Weighting("truncated", "truncated importance weights", weighted=True, truncated=True),
)
