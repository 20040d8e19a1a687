"""One frozen problem feeds the theory (`state_evolution`) and the experiment (`simulate`).

The attention-indexed model (arXiv 2506.01582, 2509.24914). Tokens `x_a ~ N(0, I_d)`, a = 1..T;
`h_ab = (x_a^T S x_b - delta_ab Tr S) / sqrt(d)`; label noise on h_ab is symmetric Gaussian of variance
`Delta (1 + delta_ab) / 2`; `n = alpha d^2` samples. The risk is
`sum_samples sum_{all a,b} (y_ab - yhat_ab)^2` plus `lt d Tr S` (factorized) or `lambda d |S|_F^2` (direct).

| letter | field |
|---|---|
| T | `tokens` |
| alpha | `alpha`, samples divided by d^2 |
| beta | `beta`, inverse temperature of the row softmax |
| Delta | `noise`, a variance |
| lt, lambda | `weight_decay`: lt for the factorized student, lambda for the direct one |
| kappa0, Q* | `target.rank_ratio`, `target.second_moment` |
| alpha_k, w_k, D_k | `channels`, from the observation `groups` |

Factors W of d x m with penalty `lambda |W|_F^2` have `lt = sqrt(kappa) lambda`, kappa = m/d: training them is
nuclear-norm-regularised sensing of a positive semidefinite S.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from attnlaw.base.errors import InputError
from attnlaw.learning.target import Target

__all__ = ["Channel", "ObservationGroup", "Problem", "Target"]

OUTPUTS = ("linear", "softmax", "hardmax")
STUDENTS = ("factorized", "direct", "bayes")
NUMBERS = ("alpha", "noise", "weight_decay", "beta", "tokens")
DEFAULT_TARGET = Target.marchenko_pastur(0.5)
LARGEST = 1e15  # of all parameters, and the inverse of the smallest: squares of them stay in float64
STEEPEST = 1e4  # of beta times the spread of h: a softmax beyond it is a hardmax to the last digit
ENTRIES = ("all", "diagonal", "off-diagonal")


@dataclass(frozen=True)
class ObservationGroup:
    """Entries (a, b) of a share of the samples, with their own weight in the loss and their own noise.

    The loss multiplies `(y_ab - yhat_ab)^2` of these entries by `weight`; their noise has variance
    `noise (1 + delta_ab) / 2`. The shares of each entry must sum to one over the groups.
    """

    entries: str = "all"
    weight: float = 1.0
    noise: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.entries not in ENTRIES:
            raise InputError(f"group entries: found {self.entries!r}, expected one of {', '.join(ENTRIES)}")
        _check_numbers(self, ("weight", "noise", "share"), "group ")
        if not 0 < self.weight < math.inf:
            raise InputError(f"group weight: found {self.weight:g}, expected a number above 0")
        if not 0 <= self.noise < math.inf:
            raise InputError(f"group noise: found {self.noise:g}, expected a variance of at least 0")
        if not 0 < self.share <= 1:
            raise InputError(
                f"group share: found {self.share:g}, expected a fraction in (0, 1] of the samples"
            )

    def count(self, tokens: int) -> int:
        """Distinct entries (a <= b) per sample."""
        diagonal, rest = tokens, tokens * (tokens - 1) // 2
        return {"all": diagonal + rest, "diagonal": diagonal, "off-diagonal": rest}[self.entries]


@dataclass(frozen=True)
class Channel:
    """`alpha_k d^2` observations of weight w_k and noise D_k, in units where each has signal variance Q."""

    alpha: float
    weight: float
    noise: float


@dataclass(frozen=True)
class Problem:
    """What is learned, from how much data, by whom.

    >>> problem = Problem(alpha=0.2, target=Target.marchenko_pastur(0.5), noise=0.5, weight_decay=0.1)
    >>> problem.observations, problem.channels
    (0.2, (Channel(alpha=0.2, weight=2.0, noise=0.25),))
    """

    alpha: float
    tokens: int = 1
    output: str = "linear"
    beta: float = 1.0
    target: Target = DEFAULT_TARGET
    noise: float = 0.0
    weight_decay: float = 0.1
    student: str = "factorized"
    groups: tuple[ObservationGroup, ...] = ()

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS:
            raise InputError(f"output: found {self.output!r}, expected one of {', '.join(OUTPUTS)}")
        if self.student not in STUDENTS:
            raise InputError(f"student: found {self.student!r}, expected one of {', '.join(STUDENTS)}")
        if not isinstance(self.target, Target):
            raise InputError(
                f"target: found {self.target!r:.60}, expected a Target such as Target.marchenko_pastur(0.5)"
            )
        _check_numbers(self, NUMBERS)
        if not 0 < self.alpha < math.inf:
            raise InputError(
                f"alpha: found {self.alpha:g}, expected a number above 0; give n/d^2 for n samples"
            )
        for name in NUMBERS:
            value = getattr(self, name)
            if value > LARGEST or 0 < value < 1 / LARGEST:
                raise InputError(
                    f"{name.replace('_', ' ')}: found {value!r:.30}, outside what double precision resolves; "
                    f"expected 0 or a number from {1 / LARGEST:g} to {LARGEST:g}"
                )
        if isinstance(self.tokens, bool) or not float(self.tokens).is_integer() or self.tokens < 1:
            raise InputError(f"tokens: found {self.tokens}, expected a whole number of at least 1")
        if not 0 <= self.noise < math.inf:
            raise InputError(
                f"noise: found {self.noise:g}, expected a variance of at least 0; use 0 for clean labels"
            )
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight decay: found {self.weight_decay:g}, expected a number of at least 0")
        if not 0 < self.beta < math.inf:
            raise InputError(f"beta: found {self.beta:g}, expected an inverse temperature above 0")
        if self.output != "linear" and self.tokens == 1:
            raise InputError(
                f"{self.output} output with tokens 1: a row of one entry is always 1 and shows nothing; "
                "use tokens of at least 2 or the linear output"
            )
        if self.output == "hardmax" and (self.student != "bayes" or self.tokens != 2):
            raise InputError(
                "hardmax output: only the Bayes-optimal student with tokens 2 has a theory here; "
                "set student to bayes and tokens to 2, or use softmax with a large beta"
            )
        spread = self.beta * math.sqrt(self.target.second_moment + self.noise)
        if self.output == "softmax" and spread > STEEPEST:
            raise InputError(
                f"softmax output: the logits beta h spread over {spread:.3g}, expected at most {STEEPEST:g}; "
                "lower beta or the noise, or use the hardmax output"
            )
        if self.groups:
            self._check_groups()
        if self.weight_decay == 0 and self.student != "bayes":
            self._check_interpolation()

    def _check_groups(self) -> None:
        if self.output != "linear":
            raise InputError(
                "groups: loss weights need the linear output; drop the groups or set output to linear"
            )
        if self.noise:
            raise InputError("groups: the noise stands in each group; leave the problem's own noise at 0")
        for entry, exists in (("diagonal", True), ("off-diagonal", self.tokens > 1)):
            total = sum(group.share for group in self.groups if group.entries in ("all", entry))
            if exists and abs(total - 1.0) > 1e-9:
                raise InputError(f"groups: the shares of {entry} entries sum to {total:g}, expected 1")

    def _check_interpolation(self) -> None:
        """Without a penalty the minimiser is unique only beyond the interpolation threshold."""
        if self.student == "direct":
            threshold = 0.5
        else:
            from attnlaw.learning.thresholds import interpolation

            # Where everything is fitted the weights drop out and the groups' noises enter by their mean.
            mean = sum(channel.alpha * channel.noise for channel in self.channels) / self.observations
            threshold = interpolation(self.target, 2 * mean)
        if self.observations <= threshold:
            per_sample = self.observations / self.alpha
            raise InputError(
                f"weight decay 0 at alpha {self.alpha:g}: below interpolation ({threshold / per_sample:.6g})"
                " many students fit the data; set a small weight decay such as 1e-4, or raise alpha"
            )

    @property
    def observations_per_sample(self) -> float:
        """`T(T+1)/2` distinct entries for the linear output, `(T^2+T-2)/2` independent logits otherwise."""
        T = self.tokens
        return T * (T + 1) / 2 if self.output == "linear" else (T * T + T - 2) / 2

    @property
    def observations(self) -> float:
        """`alpha_T`: independent observations of S divided by d^2."""
        return self.alpha * self.observations_per_sample

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Observation groups in the theory's units: weight 2 and noise Delta/2 for the plain loss."""
        if not self.groups:
            return (Channel(self.observations, 2.0, self.noise / 2),)
        return tuple(
            Channel(self.alpha * group.share * group.count(self.tokens), 2.0 * group.weight, group.noise / 2)
            for group in self.groups
            if group.count(self.tokens)
        )

    def describe(self) -> dict[str, Any]:
        """The problem as plain values under its option names."""
        return {
            "alpha": self.alpha,
            "tokens": self.tokens,
            "output": self.output,
            "beta": self.beta if self.output == "softmax" else None,
            "target": self.target.describe(),
            "noise": self.noise,
            "weight_decay": self.weight_decay if self.student != "bayes" else None,
            "student": self.student,
            "groups": [vars(group) for group in self.groups],
        }


def _check_numbers(owner: object, names: tuple[str, ...], prefix: str = "") -> None:
    for name in names:
        value = getattr(owner, name)
        if not isinstance(value, Real):
            raise InputError(f"{prefix}{name.replace('_', ' ')}: found {value!r:.60}, expected a number")
