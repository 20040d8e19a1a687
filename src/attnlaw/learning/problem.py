"""One frozen problem feeds the theory (`state_evolution`) and the experiment (`simulate`).

The attention-indexed model (arXiv 2506.01582, 2509.24914). Tokens `x_a ~ N(0, I_d)`, a = 1..T;
`h_ab = (x_a^T S x_b - delta_ab Tr S) / sqrt(d)`; label noise on h_ab is symmetric Gaussian of variance
`Delta (1 + delta_ab) / 2`; `n = alpha d^2` samples. The risk is
`sum_samples sum_{all a,b} (y_ab - yhat_ab)^2` plus `lt d Tr S` (factorized) or `lambda d |S|_F^2` (direct).

| letter | field |
|---|---|
| T | `tokens` |
| alpha | `alpha`, samples divided by d^2; infinite (the default): one pass over fresh ones (`trajectory`) |
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

from attnlaw.base.declare import table
from attnlaw.base.errors import BadSetting, InputError
from attnlaw.base.settings import Settings, setting
from attnlaw.learning.outputs import OUTPUTS
from attnlaw.learning.settings import ProblemSettings
from attnlaw.learning.students import STUDENTS
from attnlaw.learning.target import Target

__all__ = ["Channel", "ObservationGroup", "Problem", "Target"]

DEFAULT_TARGET = Target.marchenko_pastur(0.5)
SHARED = ("alpha", "tokens", "output", "beta", "noise", "weight_decay", "student")
STEEPEST = 1e4  # of beta times the spread of h: a softmax beyond it is a hardmax to the last digit


@dataclass(frozen=True)
class Entries:
    """Which entries (a, b) of a sample: those with a = b, those with a < b, or both."""

    name: str
    diagonal: bool
    off_diagonal: bool

    def count(self, tokens: int) -> int:
        """How many a sample of T tokens has."""
        return self.diagonal * tokens + self.off_diagonal * (tokens * (tokens - 1) // 2)


ENTRIES = table(
    Entries("all", True, True), Entries("diagonal", True, False), Entries("off-diagonal", False, True)
)


@dataclass(frozen=True)
class ObservationGroup(Settings):
    """Entries (a, b) of a share of the samples, with their own weight in the loss and their own noise.

    The loss multiplies `(y_ab - yhat_ab)^2` of these entries by `weight`; their noise has variance
    `noise (1 + delta_ab) / 2`. The shares of each entry must sum to one over the groups.
    """

    entries: str = setting("all", "Which entries.", choices=ENTRIES)
    weight: float = setting(1.0, "Their weight in the loss.", above=0)
    noise: float = setting(0.0, "Their noise, a variance.", least=0)
    share: float = setting(1.0, "Which part of the samples.", above=0, most=1)

    def count(self, tokens: int) -> int:
        """Distinct entries (a <= b) per sample."""
        return ENTRIES[self.entries].count(tokens)


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

    alpha: float = math.inf
    tokens: int = 1
    output: str = "linear"
    beta: float = 1.0
    target: Target = DEFAULT_TARGET
    noise: float = 0.0
    weight_decay: float = 0.1
    student: str = "factorized"
    groups: tuple[ObservationGroup, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.target, Target):
            raise InputError(
                f"target: found {self.target!r:.60}, expected a Target such as Target.marchenko_pastur(0.5)"
            )
        shared = [name for name in SHARED if name != "alpha" or self.alpha != math.inf]
        stated = ProblemSettings(**{name: getattr(self, name) for name in shared})
        for name in shared:
            object.__setattr__(self, name, getattr(stated, name))
        spread = self.beta * math.sqrt(self.target.second_moment + self.noise)
        if OUTPUTS[self.output].tempered and spread > STEEPEST:
            raise BadSetting(
                "beta",
                f"with it the logits spread over {spread:.3g}, expected at most {STEEPEST:g}; lower it or "
                "{noise}, or use the hardmax {output}",
                self.beta,
            )
        if self.groups:
            self._check_groups()
        if self.weight_decay == 0 and self.alpha != math.inf:
            self._check_interpolation()

    def _check_groups(self) -> None:
        if not OUTPUTS[self.output].weighted:
            able = " or ".join(name for name, one in OUTPUTS.items() if one.weighted)
            raise BadSetting("groups", f"need {{output}} {able}")
        if self.noise:
            raise InputError("groups: the noise stands in each group; leave the problem's own noise at 0")
        for place, exists in (("diagonal", True), ("off_diagonal", self.tokens > 1)):
            total = sum(group.share for group in self.groups if getattr(ENTRIES[group.entries], place))
            if exists and abs(total - 1.0) > 1e-9:
                name = place.replace("_", "-")
                raise InputError(f"groups: the shares of {name} entries sum to {total:g}, expected 1")

    def _check_interpolation(self) -> None:
        """Without a penalty the minimiser is unique only beyond the interpolation threshold."""
        student = STUDENTS[self.student]
        if not student.penalised or student.interpolation is None:
            return
        # Where everything is fitted the weights drop out and the groups' noises enter by their mean.
        mean = sum(channel.alpha * channel.noise for channel in self.channels) / self.observations
        threshold, _ = student.interpolation(self.target, 2 * mean)
        if self.observations <= threshold:
            raise BadSetting(
                "weight_decay",
                f"but below interpolation ({{alpha}} {threshold / self.observations_per_sample:.6g}) many "
                "students fit the data; set a small one such as 1e-4, or raise {alpha}",
                self.weight_decay,
            )

    @property
    def observations_per_sample(self) -> float:
        """What a sample tells of S, by the output."""
        return OUTPUTS[self.output].observations(self.tokens)

    @property
    def sample_ratio(self) -> float:
        """`alpha`; a `BadSetting` where there is no data set, but one pass over fresh samples."""
        if self.alpha == math.inf:
            raise BadSetting("alpha", "is missing; give the number of samples over d^2")
        return self.alpha

    @property
    def observations(self) -> float:
        """`alpha_T`: independent observations of S divided by d^2."""
        return self.sample_ratio * self.observations_per_sample

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Observation groups in the theory's units: weight 2 and noise Delta/2 for the plain loss."""
        alpha = self.sample_ratio
        if not self.groups:
            return (Channel(self.observations, 2.0, self.noise / 2),)
        return tuple(
            Channel(alpha * group.share * group.count(self.tokens), 2.0 * group.weight, group.noise / 2)
            for group in self.groups
            if group.count(self.tokens)
        )
