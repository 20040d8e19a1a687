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
| kappa | `width` m/d of the factors; None: at least the rank of what they learn |
| t | `flow_time` of full-batch gradient flow; None: to its end |
| lt, lambda | `weight_decay`: lt for the factorized student, lambda for the direct one |
| kappa0, Q* | `target.rank_ratio`, `target.second_moment` |
| alpha_k, w_k, D_k | `channels`, from the observation `groups` |

Factors W of d x m with penalty `lambda |W|_F^2` have `lt = sqrt(kappa) lambda`, kappa = m/d: training them is
nuclear-norm-regularised sensing of a positive semidefinite S.

Untied attention has `S = W_Q W_K^T / sqrt(m d)` and fields `h_ab = x_a^T S z_b / sqrt(d)` of the ordered
pairs (query a, key b) that `pairs` names, P per sample, each with independent noise of variance Delta/2. The
risk is `sum_samples sum_pairs (y_ab - yhat_ab)^2` plus `lt d |S|_*`, `lt = 2 sqrt(kappa) lambda` for the
penalty `lambda (|W_Q|_F^2 + |W_K|_F^2)` (Srebro, Rennie and Jaakkola 2004), or `lambda d |S|_F^2`. With the
cross-entropy (`loss`) a sample is one query and two keys, of which one is attended
(`attnlaw.theory.learn.attended_key`). These equations extend arXiv 2509.24914; the extension is ours. In one
pass over fresh samples all T^2 ordered pairs are seen, self pairs centred as above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnlaw.core.arrays import Indices, Reals
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.settings import Settings, setting, setting_fields
from attnlaw.core.variants import by_name
from attnlaw.theory.learn.attention import ATTENTIONS, PAIRS
from attnlaw.theory.learn.outputs import OUTPUTS
from attnlaw.theory.learn.settings import ProblemRules, ProblemSettings
from attnlaw.theory.learn.student import STUDENTS, Student
from attnlaw.theory.learn.target import Target

__all__ = ["Channel", "ObservationGroup", "Problem", "ProblemBatch", "Target"]

DEFAULT_TARGET, DEFAULT_UNTIED_TARGET = Target.marchenko_pastur(0.5), Target.product(0.5)
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


ENTRIES = by_name(
    Entries("all", True, True), Entries("diagonal", True, False), Entries("off-diagonal", False, True)
)


@dataclass(frozen=True)
class ObservationGroup(Settings):
    """Entries (a, b) of a share of the samples, with their own weight in the loss and their own noise.

    The loss multiplies `(y_ab - yhat_ab)^2` of these entries by `weight`; their noise has variance
    `noise (1 + delta_ab) / 2`. The shares of each entry must sum to one over the groups.
    """

    entries: str = setting("all", "Which entries.", choices=ENTRIES)
    weight: float = setting(1.0, "Their weight in the loss.", greater_than=0)
    noise: float = setting(0.0, "Their noise, a variance.", minimum=0)
    share: float = setting(1.0, "Which part of the samples.", greater_than=0, maximum=1)

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
class Problem(ProblemRules):
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
    attention: str = "tied"
    pairs: str | None = None
    width: float | None = None
    flow_time: float | None = None
    loss: str = "squared"
    soft_labels: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.target, Target):
            raise InputError(
                f"target: found {self.target!r:.60}, expected a Target such as Target.marchenko_pastur(0.5)"
            )
        given_pairs, one_pass = self.pairs, self.alpha == math.inf
        if given_pairs in (None, "all"):
            object.__setattr__(self, "pairs", "all" if one_pass else "cross")
        for name, setting_field in setting_fields(ProblemSettings).items():
            if name in vars(self) and not (name == "alpha" and one_pass):
                object.__setattr__(self, name, setting_field.validate(getattr(self, name)))
        self.check()
        self._settle_attention(given_pairs)
        spread = self.beta * math.sqrt(self.target.second_moment + self.noise)
        if self.observed_output.uses_temperature and spread > STEEPEST:
            raise BadSetting(
                "beta",
                f"with it the logits spread over {spread:.3g}, expected at most {STEEPEST:g}; lower it or "
                "{noise}, or use the hardmax {output}",
                self.beta,
            )
        if self.groups:
            self._check_groups()
        if self.groups and self.flow_time is not None:
            raise BadSetting("flow_time", "cannot stand beside {groups}; leave one out")
        if self.weight_decay == 0 and self.flow_time is None and self.alpha != math.inf:
            self._check_interpolation()

    def _settle_attention(self, given_pairs: str | None) -> None:
        """Set the pairs that are seen, and a target of the kind that this attention has."""
        paired = ATTENTIONS[self.attention].paired
        if not paired and given_pairs not in (None, "all"):
            raise BadSetting("pairs", "expected all with {attention} tied; or take untied", given_pairs)
        if not paired and self.target.is_product:
            raise InputError(
                "target: a product of two factors is not symmetric; take attention untied, or "
                "Target.marchenko_pastur"
            )
        if paired and self.groups:
            raise BadSetting("groups", "have diagonal entries, which untied pairs have not; leave them out")
        target = self.target
        if paired and target is DEFAULT_TARGET:
            target = DEFAULT_UNTIED_TARGET
        object.__setattr__(self, "target", target.with_both_signs(paired))
        if not paired:
            object.__setattr__(self, "pairs", "all")

    def _check_groups(self) -> None:
        if not self.observed_output.weighted:
            able = " or ".join(name for name, output in OUTPUTS.items() if output.weighted)
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
        student = self.student_spec
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
    def student_spec(self) -> Student:
        """The student's record for this attention; a problem without one cannot be made."""
        spec = STUDENTS[self.student].for_attention(self.attention)
        assert spec is not None
        return spec

    @property
    def sides(self) -> int:
        """Of the spectrum: 2 where the theory sees singular values with both signs."""
        return ATTENTIONS[self.attention].sides

    @property
    def observations_per_sample(self) -> float:
        """What a sample tells of S, by the output; P pairs if untied."""
        if ATTENTIONS[self.attention].paired and self.observed_output.queries is None:
            return float(PAIRS[self.pairs or ""].count(self.tokens))
        return self.observed_output.observations(self.tokens)

    def prediction_error(self, E: float) -> float | None:
        """The error on fresh clean labels per sample, None where E alone does not tell it."""
        if ATTENTIONS[self.attention].paired and self.observed_output.queries is None:
            return self.observations_per_sample * E
        return self.observed_output.prediction_error(self.tokens, E)

    @property
    def sample_ratio(self) -> float:
        """`alpha`; a `BadSetting` where there is no data set, but one pass over fresh samples."""
        if self.alpha == math.inf:
            raise BadSetting("alpha", "is missing; give the number of samples over d^2")
        return self.alpha

    @property
    def observations(self) -> float:
        """`alpha_T`, untied `alpha_P`: independent observations of S divided by d^2."""
        return self.sample_ratio * self.observations_per_sample

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Observation groups in the theory's units: weight 2 (untied 1), noise Delta/2 for the plain loss."""
        alpha = self.sample_ratio
        if ATTENTIONS[self.attention].paired:
            return (Channel(self.observations, 1.0, self.noise / 2),)
        if not self.groups:
            return (Channel(self.observations, 2.0, self.noise / 2),)
        return tuple(
            Channel(alpha * group.share * group.count(self.tokens), 2.0 * group.weight, group.noise / 2)
            for group in self.groups
            if group.count(self.tokens)
        )


@dataclass(frozen=True)
class ProblemBatch:
    """Problems that share a target: channels of shape (batch, groups) and penalties lt of shape (batch,).

    With two `sides` (untied) `alpha` and `lt` hold half of what the problems have. `width` kappa of shape
    (batch,) is infinite where it is not limited; None: nowhere.
    """

    target: Target
    alpha: Reals
    weight: Reals
    noise: Reals
    lt: Reals
    sides: int = 1
    width: Reals | None = None

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> ProblemBatch:
        channels = [problem.channels for problem in problems]
        sides = problems[0].sides
        return cls(
            problems[0].target,
            np.array([[channel.alpha / sides for channel in row] for row in channels]),
            np.array([[channel.weight for channel in row] for row in channels]),
            np.array([[channel.noise for channel in row] for row in channels]),
            np.array([problem.weight_decay / sides for problem in problems]),
            sides,
            np.array([np.inf if problem.width is None else problem.width for problem in problems]),
        )

    def training_loss(self, problems: Sequence[Problem], V: Reals, E: Reals) -> Reals:
        """Per sample, over all (a, b): `sum_k (alpha_k/alpha) w_k (E + D_k) / (1 + 2 w_k V)^2`."""
        alpha = np.array([problem.alpha for problem in problems])
        terms = self.sides * self.alpha * self.weight * (E[:, None] + self.noise)
        terms = terms / (1 + 2 * self.weight * V[:, None]) ** 2
        return np.asarray(terms.sum(axis=1) / alpha)

    def rows(self, which: Indices) -> ProblemBatch:
        return replace(
            self,
            alpha=self.alpha[which],
            weight=self.weight[which],
            noise=self.noise[which],
            lt=self.lt[which],
            width=None if self.width is None else self.width[which],
        )
