"""The settings of a problem, declared once: `attnlaw learn`, studies and `Problem` read their rules here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlaw.base.errors import BadSetting
from attnlaw.base.settings import Settings, setting, settings
from attnlaw.learning.outputs import OUTPUTS
from attnlaw.learning.students import STUDENTS

if TYPE_CHECKING:
    from attnlaw.learning.problem import Problem

PROBLEM = "The problem"
LARGEST = 1e15  # of all parameters, and the inverse of the smallest: squares of them stay in float64


@settings
class ProblemSettings(Settings):
    """What is learned, from how much data, by whom."""

    alpha: float = setting(0.2, "Samples over d²: α = n/d².", symbol="α", above=0, many=True, panel=PROBLEM)
    tokens: int = setting(1, "Tokens per sample.", symbol="T", least=1, many=True, panel=PROBLEM)
    output: str = setting(
        "linear",
        "What labels show of the scores: linear, softmax (of rows), or hardmax (bayes only).",
        choices=OUTPUTS,
        many=True,
        panel=PROBLEM,
    )
    beta: float = setting(
        1.0,
        "Inverse temperature of the softmax.",
        symbol="β",
        above=0,
        where=("output", "tempered"),
        many=True,
        panel=PROBLEM,
    )
    target_rank: float = setting(
        0.5,
        "Rank of the target over d: κ₀ = m₀/d.",
        symbol="κ₀",
        least=1e-9,
        most=1e9,
        unless="target_exponent",
        many=True,
        panel=PROBLEM,
    )
    target_spike: float | None = setting(
        None, "One eigenvalue of the target outside its bulk.", above=0, many=True, panel=PROBLEM
    )
    target_exponent: float | None = setting(
        None,
        "Instead of a rank: eigenvalues k^−γ, k = 1..d; up to γ = 1/2 their second moment diverges.",
        symbol="γ",
        above=0.5,
        many=True,
        panel=PROBLEM,
    )
    target_dimension: int = setting(
        1_000_000,
        "The d of the target's exponent.",
        least=1,
        most=10**7,
        needs="target_exponent",
        many=True,
        panel=PROBLEM,
    )
    noise: float = setting(0.0, "Label noise, a variance.", symbol="Δ", least=0, many=True, panel=PROBLEM)
    weight_decay: float = setting(
        0.1,
        "Penalty: λ̃ = √κ λ on factors W of ratio κ (factorized), λ on S (direct).",
        symbol="λ",
        least=0,
        where=("student", "penalised"),
        many=True,
        panel=PROBLEM,
    )
    student: str = setting("factorized", "Who learns.", choices=STUDENTS, many=True, panel=PROBLEM)

    def check(self) -> None:
        for name in ("alpha", "tokens", "beta", "noise", "weight_decay"):
            value = getattr(self, name)
            if value > LARGEST or 0 < value < 1 / LARGEST:
                raise BadSetting(
                    name,
                    "outside what double precision resolves; expected 0 or a number from "
                    f"{1 / LARGEST:g} to {LARGEST:g}",
                    value,
                )
        output = OUTPUTS[self.output]
        if self.tokens < output.least_tokens:
            raise BadSetting(
                "tokens",
                f"expected at least {output.least_tokens} with {{output}} {self.output}: a row of one entry "
                "is always 1 and shows nothing",
                self.tokens,
            )
        if output.settles and self.output not in STUDENTS[self.student].theories:
            able = [name for name, one in STUDENTS.items() if self.output in one.theories]
            raise BadSetting(
                "student", f"expected {' or '.join(able)} with {{output}} {self.output}", self.student
            )
        if output.most_tokens is not None and self.tokens > output.most_tokens:
            raise BadSetting(
                "tokens",
                f"expected {output.most_tokens} with {{output}} {self.output}, which has a theory for no "
                "more" + ("; or take the softmax with a large {beta}" if output.settles else ""),
                self.tokens,
            )

    @property
    def problem(self) -> Problem:
        """The same in the theory's terms; a `BadSetting` for what the target alone can tell."""
        from attnlaw.learning.problem import Problem, Target

        bulk = (
            Target.marchenko_pastur(self.target_rank)
            if self.target_exponent is None
            else Target.power_law(self.target_exponent, self.target_dimension)
        )
        return Problem(
            alpha=self.alpha,
            tokens=self.tokens,
            output=self.output,
            beta=self.beta,
            target=bulk if self.target_spike is None else bulk.with_spikes(self.target_spike),
            noise=self.noise,
            weight_decay=self.weight_decay,
            student=self.student,
        )
