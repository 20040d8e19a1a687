"""The settings of a problem and the rules between them.

`attnlaw learn` and studies make a `ProblemSettings`. `Problem` takes the limits of its fields from it and
shares its rules through `ProblemRules`.
"""

from __future__ import annotations

import math
from functools import partial

from attnlaw.core.errors import BadSetting
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.theory.learn.attention import ATTENTIONS, PAIRS
from attnlaw.theory.learn.outputs import LOSSES, OUTPUTS, Output
from attnlaw.theory.learn.student import STUDENTS

PROBLEM = "The problem"
problem_setting = partial(setting, panel=PROBLEM, sweepable=True)
LARGEST = 1e15  # largest parameter, and inverse of the smallest: their squares fit into float64


class ProblemRules:
    """The rules that the settings of a problem must satisfy together."""

    alpha: float
    tokens: int
    output: str
    loss: str
    attention: str
    pairs: str | None
    noise: float
    weight_decay: float
    width: float | None
    flow_time: float | None
    student: str

    def check(self) -> None:
        """Raise a `BadSetting` if two settings do not fit together."""
        for name in ("alpha", "tokens", "beta", "noise", "weight_decay"):
            value = getattr(self, name)
            if LARGEST < value < math.inf or 0 < value < 1 / LARGEST:
                raise BadSetting(
                    name,
                    f"expected 0 or a number in the range of double precision, from {1 / LARGEST:g} to "
                    f"{LARGEST:g}",
                    value,
                )
        output = self.observed_output
        if LOSSES[self.loss].draws_labels:
            self._check_loss()
        if self.tokens < output.least_tokens:
            raise BadSetting(
                "tokens",
                f"expected at least {output.least_tokens} with {{output}} {self.output}: with a single "
                "token, attention is always 1 and labels show nothing",
                self.tokens,
            )
        if output.has_static_theory:
            self._check_student()
        if self.width is not None and not STUDENTS[self.student].has_factors:
            able = " or ".join(name for name, student in STUDENTS.items() if student.has_factors)
            raise BadSetting("width", f"needs {{student}} {able}, which has factors")
        if self.width is not None and not output.weighted:
            raise BadSetting(
                "width", "needs {output} linear, because no theory of narrow heads is known for other outputs"
            )
        if self.flow_time is not None:
            self._check_flow()
        if ATTENTIONS[self.attention].paired:
            self._check_pairs()
        if output.most_tokens is not None and self.tokens > output.most_tokens:
            raise BadSetting(
                "tokens",
                f"expected {output.most_tokens} with {self._label_setting}, because no theory is known "
                f"for more{output.beyond}",
                self.tokens,
            )

    @property
    def observed_output(self) -> Output:
        """The output from which labels are made: the setting `output`, unless the loss needs another one."""
        return LOSSES[self.loss].observed_output or OUTPUTS[self.output]

    @property
    def _label_setting(self) -> str:
        """The setting that determines the labels, with its value, as messages show it."""
        drawn = LOSSES[self.loss].draws_labels
        return f"{{loss}} {self.loss}" if drawn else f"{{output}} {self.output}"

    @property
    def _one_pass(self) -> bool:
        return self.alpha == math.inf

    def _check_loss(self) -> None:
        if self._one_pass:
            raise BadSetting(
                "loss", "has no theory for one pass over new samples; give a finite {alpha}", self.loss
            )
        if not OUTPUTS[self.output].selects_key:
            raise BadSetting("loss", "needs {output} softmax, because only its rows choose a key", self.loss)
        if not ATTENTIONS[self.attention].paired:
            raise BadSetting("loss", "has no theory with {attention} tied; use {attention} untied", self.loss)
        if self.pairs != "cross":
            raise BadSetting(
                "pairs",
                f"expected cross with {self._label_setting}, which takes keys from another sequence",
                self.pairs,
            )
        if self.noise:
            raise BadSetting(
                "noise",
                f"expected 0 with {self._label_setting}; to make labels noisy, lower {{beta}}",
                self.noise,
            )
        if not self.weight_decay:
            raise BadSetting(
                "weight_decay",
                f"expected more than 0 with {self._label_setting}, because the loss of separable labels "
                "has no minimum without it",
                self.weight_decay,
            )

    def _check_student(self) -> None:
        known = {name: student.for_attention(self.attention) for name, student in STUDENTS.items()}
        if self._one_pass and ATTENTIONS[self.attention].paired and known[self.student] is not None:
            return
        able = [
            name
            for name, spec in known.items()
            if spec is not None and self.observed_output.name in spec.theories
        ]
        if not able:
            raise BadSetting(
                "output",
                f"has no theory with {{attention}} {self.attention}; use linear, or {{attention}} tied"
                + (", or {loss} cross-entropy" if OUTPUTS[self.output].selects_key else ""),
                self.output,
            )
        if self.student not in able:
            more = "" if self.attention == "tied" else f" and {{attention}} {self.attention}"
            raise BadSetting(
                "student", f"expected {' or '.join(able)} with {self._label_setting}{more}", self.student
            )

    def _check_flow(self) -> None:
        if not STUDENTS[self.student].has_flow:
            able = " or ".join(name for name, student in STUDENTS.items() if student.has_flow)
            raise BadSetting(
                "flow_time",
                f"needs {{student}} {able}; for factors, use attnlaw dynamics",
            )
        if not OUTPUTS[self.output].weighted:
            raise BadSetting(
                "flow_time", "needs {output} linear, because the flow is not known for other outputs"
            )

    def _check_pairs(self) -> None:
        pairs = PAIRS[self.pairs or ""]
        if self.pairs == "all":
            if self._one_pass:
                return
            raise BadSetting(
                "pairs",
                "has no theory with {attention} untied, because pairs of a token with itself show "
                "only the symmetric part of the matrix; expected cross, causal or distinct",
                self.pairs,
            )
        if self.tokens < pairs.least_tokens:
            raise BadSetting(
                "tokens",
                f"expected at least {pairs.least_tokens} with {{pairs}} {self.pairs}, because one token "
                "has no such pair",
                self.tokens,
            )


@settings_dataclass
class ProblemSettings(ProblemRules, Settings):
    """A learning problem: the target matrix, the data, and the model that learns (the student)."""

    alpha: float = problem_setting(
        0.2,
        "Number of training samples, divided by d² for tokens of dimension d.",
        symbol="α",
        greater_than=0,
        slider_range=(0.02, 2),
        axis="samples / d² (α)",
    )
    tokens: int = problem_setting(
        1, "Number of tokens in each sample.", symbol="T", minimum=1, slider_range=(1, 8)
    )
    output: str = problem_setting(
        "linear",
        "What the labels are: attention scores (linear), attention weights (softmax), or which score "
        "is largest (hardmax, bayes student only).",
        choices=OUTPUTS,
    )
    beta: float = problem_setting(
        1.0,
        "Inverse temperature of the softmax: larger values make attention sharper.",
        symbol="β",
        greater_than=0,
        slider_range=(0.1, 10),
        active_if=("output", "uses_temperature"),
    )
    loss: str = problem_setting(
        "squared",
        "Training loss: squared error of the attention weights, or cross-entropy of the attended key "
        "(one query, two keys).",
        choices=LOSSES,
        active_if=(("output", "selects_key"), ("student", "trainer")),
    )
    soft_labels: bool = setting(
        False,
        "Use the target's attention weights as labels, instead of one key drawn from them.",
        active_if=("loss", "draws_labels"),
        panel=PROBLEM,
    )
    attention: str = problem_setting(
        "tied",
        "Whether queries and keys share weights: tied, S = WWᵀ/√(md), or untied, S = W_Q W_Kᵀ/√(md).",
        choices=ATTENTIONS,
    )
    pairs: str = problem_setting(
        "cross",
        "Pairs (query, key) that have labels: with keys of another sequence (cross), earlier keys "
        "(causal), or all different tokens (distinct).",
        choices=PAIRS,
        active_if=("attention", "paired"),
    )
    target_rank: float = problem_setting(
        0.5,
        "Rank of the target matrix (the matrix to learn), divided by the token dimension d.",
        symbol="κ₀",
        minimum=1e-9,
        maximum=1e9,
        slider_range=(0.05, 1.5),
        excluded_by=("target_exponent", "target_eigenvalues"),
    )
    target_spike: float | None = problem_setting(
        None,
        "One large eigenvalue of the target matrix, apart from all others (untied: singular value).",
        greater_than=0,
        slider_range=(0.5, 10),
    )
    target_exponent: float | None = problem_setting(
        None,
        "Exponent γ above 1/2: the target matrix has the eigenvalues k^−γ for k = 1 to d, in place "
        "of a rank.",
        symbol="γ",
        greater_than=0.5,
        slider_range=(0.6, 3),
        excluded_by="target_eigenvalues",
    )
    target_dimension: int = problem_setting(
        1_000_000,
        "Token dimension d, if the target matrix has power-law eigenvalues.",
        minimum=1,
        maximum=10**7,
        slider_range=(100, 1_000_000),
        requires="target_exponent",
    )
    target_eigenvalues: str | None = setting(
        None,
        "Eigenvalues of the target matrix: numbers with commas, or a file (.npy, or lines with an "
        "eigenvalue and an optional weight).",
        is_path=True,
        panel=PROBLEM,
        metavar="FILE",
    )
    noise: float = problem_setting(
        0.0, "Variance of the noise that is added to the labels.", symbol="Δ", minimum=0, slider_range=(0, 2)
    )
    weight_decay: float = problem_setting(
        0.1,
        "Weight decay λ: adds λ‖W‖²/√κ to the loss for factors W with κd columns (untied: half as "
        "much), or λd‖S‖² for the direct student.",
        symbol="λ",
        minimum=0,
        slider_range=(0, 2),
        active_if=("student", "penalised"),
    )
    width: float | None = problem_setting(
        None,
        "Width of the student's factors divided by d. It only matters below the rank that they would learn.",
        symbol="κ",
        greater_than=0,
        slider_range=(0.05, 1),
        active_if=("student", "has_factors"),
    )
    flow_time: float | None = problem_setting(
        None,
        "Stop training the direct student early, at time t = 2d · learning rate · steps (full-batch "
        "gradient descent).",
        symbol="t",
        greater_than=0,
        slider_range=(0.01, 100),
        active_if=("student", "has_flow"),
    )
    student: str = problem_setting(
        "factorized",
        "Model that learns (student): a product of two factors (factorized), one matrix "
        "(direct), or the best possible estimate (bayes).",
        choices=STUDENTS,
    )
