"""What a layer may be made of: activations, score functions, scalings, masks. A new one is a line here.

The tables are known before any mathematics is imported: functions of arrays are named by `module:function`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnlaw.core.variants import Variants, by_name, parse_positive, with_parameter


@dataclass(frozen=True)
class Activation:
    """An activation psi, entry by entry; `linear`: Gaussian tokens stay Gaussian.

    `function` is psi(x, *parameters). `kernel` is E[psi(u) psi(v)] as a function of Var u, Var v, Cov(u, v),
    in closed form; without one, `moments` is E psi(g)^2 and (E psi(g))^2 as a function of the parameters, g
    standard normal, and MLP blocks take Mehler's series (`hermite`).
    """

    name: str
    function: str
    kernel: str | None = None
    moments: str | None = None
    linear: bool = False
    example: str | None = None
    parameters: tuple[float, ...] = ()

    def at(self, parameter: str) -> Activation:
        return with_parameter(self, parameter, parse_positive(parameter))


@dataclass(frozen=True)
class ScoreFunction:
    """How scores become weights: `weights(p, allowed, axis)`; `normalised`: those of a query add up to 1."""

    name: str
    weights: str
    normalised: bool = False


@dataclass(frozen=True)
class Scaling:
    """How the scores of heads of width n_H are scaled: 1/sqrt(n_H), divided by `divisor(n_H)`."""

    name: str
    divisor: Callable[[float], float]


@dataclass(frozen=True)
class Mask:
    """Which tokens a token sees: `allows(i, j, *parameters)` on arrays of positions, i the one that looks."""

    name: str
    allows: Callable[..., Any]
    example: str | None = None
    parameters: tuple[int, ...] = ()

    def at(self, parameter: str) -> Mask:
        if not (parameter.isascii() and parameter.isdecimal() and len(parameter) <= 18):
            raise ValueError(f"{parameter} is not a whole number of at most 18 digits")
        return with_parameter(self, parameter, int(parameter))


_KERNELS = "attnlaw.theory.limit.kernels"
_SCORES = "attnlaw.theory.limit.scores"

ACTIVATIONS = Variants(
    Activation("identity", f"{_KERNELS}:identity", f"{_KERNELS}:identity_kernel", linear=True),
    Activation("relu", f"{_KERNELS}:relu", f"{_KERNELS}:relu_kernel"),
    Activation("gelu", f"{_KERNELS}:gelu", f"{_KERNELS}:gelu_kernel"),
    Activation("gelu_new", f"{_KERNELS}:gelu_new", moments=f"{_KERNELS}:gelu_new_moments"),
    Activation("silu", f"{_KERNELS}:silu", moments=f"{_KERNELS}:silu_moments"),
    # Clipped to [-C, C].
    Activation("clip:C", f"{_KERNELS}:clip", moments=f"{_KERNELS}:clip_moments", example="clip:2"),
)
SCORES = by_name(
    ScoreFunction("softmax", f"{_SCORES}:softmax", normalised=True),
    ScoreFunction("relu", f"{_SCORES}:relu"),
    ScoreFunction("sigmoid", f"{_SCORES}:sigmoid"),
    ScoreFunction("linear", f"{_SCORES}:linear"),
)
SCALINGS = by_name(Scaling("1/sqrt(n)", lambda width: 1.0), Scaling("1/n", math.sqrt))
MASKS = Variants(
    Mask("none", lambda i, j: (i >= 0) & (j >= 0)),
    Mask("causal", lambda i, j: j <= i),
    Mask("band:K", lambda i, j, reach: abs(i - j) <= reach, example="band:2"),
)
