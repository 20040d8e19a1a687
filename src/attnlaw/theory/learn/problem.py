"""The problem of learning an attention matrix: the target, the data, the loss and the student.

Theory and simulation start from the same `Problem`. It is the attention-indexed model (arXiv 2506.01582,
2509.24914). Tokens are `x_a ~ N(0, I_d)`, a = 1..T, and `h_ab = (x_a^T S x_b - delta_ab Tr S) / sqrt(d)` are
the scores, also called fields, of a matrix S. Label noise on h_ab is symmetric Gaussian of variance `Delta (1
+ delta_ab) / 2`. There are `n = alpha d^2` samples. The risk is `sum_samples sum_{all a,b} (y_ab -
yhat_ab)^2` plus `lt d Tr S` (factorized) or `lambda d |S|_F^2` (direct).

| letter | field |
|---|---|
| T | `tokens` |
| alpha | `alpha`, samples divided by d^2; infinite (the default) for one pass over fresh samples |
| beta | `beta`, inverse temperature of the row softmax |
| Delta | `noise`, a variance |
| kappa | `width` m/d of the factors; None if it is at least the rank of what they learn |
| t | `flow_time` of full-batch gradient flow; None if it runs to its end |
| lt, lambda | `weight_decay`: lt for the factorized student, lambda for the direct one |
| kappa0, Q* | `target.rank_ratio`, `target.second_moment` |
| alpha_T (untied: alpha_P) | `observations`, independent observations of S divided by d^2 |
| alpha_k, w_k, D_k | `channels`: observations divided by d^2, weight and noise of observation group k |

| letter | meaning |
|---|---|
| S_hat, S* | trained matrix and target, d x d |
| E, m, q | `|S_hat - S*|_F^2 / d`, overlap `Tr S_hat^T S* / d`, norm `|S_hat|_F^2 / d` |
| Z | Gaussian noise matrix, whose spectrum (untied: with both signs) is the semicircle on [-2, 2] |
| mu*, mu_delta | laws of eigenvalues (untied: singular values, both signs) of `S*` and `S* + delta Z` |

Factors W of d x m with the penalty `lambda |W|_F^2` have `lt = sqrt(kappa) lambda`, kappa = m/d. Training
them is nuclear-norm-regularised sensing of a positive semidefinite S.

Untied attention has `S = W_Q W_K^T / sqrt(m d)` and fields `h_ab = x_a^T S z_b / sqrt(d)` of the ordered
pairs (query a, key b) that `pairs` names. There are P of them per sample, each with independent noise of
variance Delta/2. The risk is `sum_samples sum_pairs (y_ab - yhat_ab)^2` plus `lt d |S|_*`, or `lambda d
|S|_F^2`. Here `lt = 2 sqrt(kappa) lambda` for the penalty `lambda (|W_Q|_F^2 + |W_K|_F^2)` (Srebro, Rennie
and Jaakkola 2004). With the cross-entropy (`loss`) a sample is one query and two keys, one of which is
attended (`attnlaw.theory.learn.attended_key`). These equations extend arXiv 2509.24914; the extension is
ours. One pass over fresh samples uses all T^2 ordered pairs, with self pairs centred as above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
STEEPEST = 1e4  # largest beta times spread of h: a steeper softmax equals a hardmax to the last digit


@dataclass(frozen=True)
class Entries:
    """A choice of the entries (a, b) of a sample: those with a = b, those with a < b, or both."""

    name: str
    diagonal: bool
    off_diagonal: bool

    def count(self, tokens: int) -> int:
        """Return the number of these entries in a sample of T tokens."""
        return self.diagonal * tokens + self.off_diagonal * (tokens * (tokens - 1) // 2)


ENTRIES = by_name(
    Entries("all", True, True), Entries("diagonal", True, False), Entries("off-diagonal", False, True)
)


@dataclass(frozen=True)
class ObservationGroup(Settings):
    """A group of observations that have the same weight in the loss and the same noise.

    The loss multiplies the squared errors of the group by `weight`. The shares of all groups that contain an
    entry must sum to one.
    """

    entries: str = setting(
        "all",
        "Attention scores that belong to the group, such as those of a token with itself.",
        choices=ENTRIES,
    )
    weight: float = setting(1.0, "Weight of the group's squared errors in the loss.", greater_than=0)
    noise: float = setting(0.0, "Variance of the noise that is added to the labels of the group.", minimum=0)
    share: float = setting(
        1.0, "Share of the samples in which the labels of the group are visible.", greater_than=0, maximum=1
    )

    def count(self, tokens: int) -> int:
        """Return the number of different entries (a <= b) of a sample that belong to the group."""
        return ENTRIES[self.entries].count(tokens)


@dataclass(frozen=True)
class Channel:
    """A group of `alpha_k d^2` observations with weight w_k in the loss and noise of variance D_k."""

    alpha: float
    weight: float
    noise: float


@dataclass(frozen=True)
class Problem(ProblemRules):
    """A learning problem: the target, the amount and kind of data, and the student.

    The fields are the settings of `attnlaw learn` and have the same limits. Raises an `InputError` for a
    value that is not allowed, or a combination for which no theory is known.

    Args:
        alpha: samples divided by d^2, or infinite for one pass over fresh samples.
        target: the spectrum of the target matrix.
        groups: groups of observations. They are needed only if weights or noise differ between observations.
        pairs: the (query, key) pairs in a sample of untied attention, or None for the default.
        width: the number of columns of the factors divided by d, or None for no limit.

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
                f"this makes the standard deviation of the logits {spread:.3g}, expected at most "
                f"{STEEPEST:g}; lower this value or {{noise}}, or use {{output}} hardmax",
                self.beta,
            )
        if self.groups:
            self._check_groups()
        if self.groups and self.flow_time is not None:
            raise BadSetting("flow_time", "cannot be combined with {groups}; remove one of the two")
        if self.weight_decay == 0 and self.flow_time is None and self.alpha != math.inf:
            self._check_interpolation()

    def _settle_attention(self, given_pairs: str | None) -> None:
        """Set `pairs` and `target` to fit the attention; raise an `InputError` if the given ones do not."""
        paired = ATTENTIONS[self.attention].paired
        if not paired and given_pairs not in (None, "all"):
            raise BadSetting(
                "pairs", "expected all with {attention} tied; or use {attention} untied", given_pairs
            )
        if not paired and self.target.is_product:
            raise InputError(
                "target: a product of two different factors is not symmetric; set attention='untied', or use "
                "Target.marchenko_pastur"
            )
        if paired and self.groups:
            raise BadSetting(
                "groups", "have diagonal entries, but untied attention has none; leave the groups out"
            )
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
            raise InputError("groups: each group has a noise; leave the noise of the problem at 0")
        for place, exists in (("diagonal", True), ("off_diagonal", self.tokens > 1)):
            total = sum(group.share for group in self.groups if getattr(ENTRIES[group.entries], place))
            if exists and abs(total - 1.0) > 1e-9:
                name = place.replace("_", "-")
                raise InputError(f"groups: the shares of {name} entries sum to {total:g}, expected 1")

    def _check_interpolation(self) -> None:
        """Raise a `BadSetting` if there is no penalty and too few samples for a unique minimiser."""
        student = self.student_spec
        if not student.penalised or student.interpolation is None:
            return
        # If everything is fitted, the weights drop out and only the mean noise of the groups matters.
        mean = sum(channel.alpha * channel.noise for channel in self.channels) / self.observations
        threshold, _ = student.interpolation(self.target, 2 * mean)
        if self.observations <= threshold:
            raise BadSetting(
                "weight_decay",
                f"but below interpolation ({{alpha}} {threshold / self.observations_per_sample:.6g}) many "
                "students fit the data equally well; set a small value such as 1e-4, or raise {alpha}",
                self.weight_decay,
            )

    @property
    def student_spec(self) -> Student:
        """The `Student` record of this problem's student and attention."""
        spec = STUDENTS[self.student].for_attention(self.attention)
        assert spec is not None
        return spec

    @property
    def sides(self) -> int:
        """The number of signs in the theory's spectrum: 2 for untied attention, otherwise 1."""
        return ATTENTIONS[self.attention].sides

    @property
    def observations_per_sample(self) -> float:
        """The number of observations of the target in a sample. It depends on the output."""
        if ATTENTIONS[self.attention].paired and self.observed_output.queries is None:
            return float(PAIRS[self.pairs or ""].count(self.tokens))
        return self.observed_output.observations(self.tokens)

    def prediction_error(self, E: float) -> float | None:
        """Return the error per sample on new noise-free labels, or None if E does not determine it."""
        if ATTENTIONS[self.attention].paired and self.observed_output.queries is None:
            return self.observations_per_sample * E
        return self.observed_output.prediction_error(self.tokens, E)

    @property
    def sample_ratio(self) -> float:
        """The number of samples divided by d^2. Raises a `BadSetting` if it is infinite."""
        if self.alpha == math.inf:
            raise BadSetting("alpha", "is missing; give the number of samples divided by d^2")
        return self.alpha

    @property
    def observations(self) -> float:
        """The number of independent observations of the target divided by d^2 (alpha_T, untied alpha_P)."""
        return self.sample_ratio * self.observations_per_sample

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The groups of observations, in the units of the theory.

        A problem without groups has one channel of weight 2 (untied: 1) and noise variance Delta/2.
        """
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


@dataclass(frozen=True, eq=False)
class ProblemBatch:
    """The parameters of several problems with the same target, as arrays."""

    target: Target
    alpha: Reals  # observations alpha_k of shape (batch, groups), divided by `sides`
    weight: Reals  # weights w_k of shape (batch, groups)
    noise: Reals  # noises D_k of shape (batch, groups)
    lt: Reals  # penalties of shape (batch,), divided by `sides`
    sides: int = 1  # 2 for untied attention, else 1
    width: Reals | None = None  # kappa (batch,), infinite without a limit; None if no problem has a limit

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
        """Return the training loss per sample of each problem, given the solutions V and E."""
        alpha = np.array([problem.alpha for problem in problems])
        terms = self.sides * self.alpha * self.weight * (E[:, None] + self.noise)
        terms = terms / (1 + 2 * self.weight * V[:, None]) ** 2
        return np.asarray(terms.sum(axis=1) / alpha)

    def rows(self, which: Indices) -> ProblemBatch:
        arrays: dict[str, Any] = {
            name: value[which] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, **arrays)
