"""Scaling laws: how the error falls with data if the target's eigenvalues fall as a power.

The eigenvalues are `s_k = A sqrt(d) k^-gamma`, gamma > 1/2, `A^2 = 1/zeta(2 gamma)`, and there are N = n
T(T+1)/2 observations. The modes are learned one after the other, mode k once `s_k > delta`. This gives (arXiv
2509.24914)

    E = A^(1/gamma) I [(E + Delta/2) d / (2N)]^(1 - 1/(2 gamma))
    I = 1/(2 gamma - 1) + 6 - 8/(1 + gamma) + 3/(1 + 2 gamma)      factorized
    I = 1/(2 gamma - 1) + 2 - 1/(1 + 2 gamma)                      Bayes

An untied S has twice as many unknowns, so the law is the same with N/2 for N pairs (ours, from the same
equations). So E falls as `(N/d)^-(2 gamma - 1)` with clean labels and as `(N/d)^-(1 - 1/(2 gamma))` with
noisy ones. Letters are explained in `attnlaw.theory.learn.problem`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.progress import Progress
from attnlaw.numerics.fixed_point import bracketed_roots
from attnlaw.numerics.logs import fit_exponent
from attnlaw.theory.learn.attention import ATTENTIONS
from attnlaw.theory.learn.prediction import Prediction
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.state_evolution import state_evolutions
from attnlaw.theory.learn.student import STUDENTS
from attnlaw.theory.learn.target import Target

# Weight decays with noisy labels, in units of sqrt(2 alpha_T (E + Delta/2)). The best moves from the first to
# the last as alpha grows: the bulk above b adds to E. At 4, b passes 2 delta, and E rises again.
GOOD_DECAYS = (2.8, 3.6, 3.9)


@dataclass(frozen=True)
class ScalingLaw:
    """Errors of the full equations for several N/d, with the leading-order law and both exponents."""

    exponent: float  # gamma of the target
    dimension: int
    noise: float
    student: str
    ratios: tuple[float, ...]  # values of N/d
    predictions: tuple[Prediction, ...]
    leading: tuple[float, ...]  # errors of the leading-order law at these ratios
    predicted_exponent: float
    fitted_exponent: float  # least-squares slope of log E against log N/d
    exponent_error: float | None  # standard error of the fit; None for fewer than three points


def predicted_exponent(gamma: float, noise: float) -> float:
    """Return the exponent of N/d in the error, as predicted by the leading-order law."""
    return -(1 - 1 / (2 * gamma)) if noise > 0 else -(2 * gamma - 1)


def leading_error(
    gamma: float,
    ratios: Sequence[float],
    noise: float,
    student: str = "factorized",
    attention: str = "tied",
) -> Reals:
    """Return the errors E of the leading-order law for several values of N/d, at most Q* = 1."""
    known = {name: student.for_attention(attention) for name, student in STUDENTS.items()}
    laws = {name: spec.leading["linear"] for name, spec in known.items() if spec and "linear" in spec.leading}
    if student not in laws:
        raise BadSetting(
            "student", f"no scaling law is known for this student; choose {' or '.join(laws)}", student
        )
    counted = np.asarray(ratios, dtype=float) / ATTENTIONS[attention].sides
    return _leading_error(gamma, counted, noise, laws[student](gamma))


def leading_order(problem: Problem) -> tuple[float | None, float | None]:
    """Return the leading-order error of a problem and its exponent of N/d, or None if not known."""
    target, laws = problem.target, problem.student_spec.leading
    if target.exponent is None or target.dimension is None or problem.observed_output.name not in laws:
        return None, None
    ratio = problem.observations * target.dimension / problem.sides
    constant = laws[problem.observed_output.name](target.exponent)
    (leading,) = _leading_error(target.exponent, [ratio], problem.noise, constant).tolist()
    return leading, predicted_exponent(target.exponent, problem.noise)


def _leading_error(gamma: float, ratios: ArrayLike, noise: float, constant: float) -> Reals:
    N = np.asarray(ratios, dtype=float)
    front = scipy.special.zeta(2 * gamma) ** (-1 / (2 * gamma)) * constant
    power = 1 - 1 / (2 * gamma)
    if noise == 0:
        return np.asarray(np.minimum(front ** (2 * gamma) * (2 * N) ** -(2 * gamma - 1), 1.0))

    def miss(log_E: Reals, which: NDArray[np.intp]) -> Reals:
        E = np.exp(log_E)
        return np.asarray(E - front * ((E + noise / 2) / (2 * N[which])) ** power)

    # E is at least what the noise alone gives. The right side is concave in E, so there is one root.
    high = np.zeros(N.size)
    low = np.minimum(np.log(front) + power * np.log(noise / (4 * N)), high)
    above = miss(high, np.arange(N.size)) < 0
    return np.where(above, 1.0, np.exp(bracketed_roots(miss, low, high).x))


def scaling_law(
    exponent: float,
    dimension: int,
    ratios: Sequence[float],
    *,
    noise: float = 0.0,
    student: str = "factorized",
    attention: str = "tied",
    weight_decay: float | None = None,
    progress: Progress | None = None,
) -> ScalingLaw:
    """Solve the full equations for a power-law target at several values of N/d, and fit the exponent.

    Samples have one token.

    Args:
        ratios: at least two values of N/d. If attention is untied, N counts (query, key) pairs.
        weight_decay: weight decay for all ratios. If None, the function chooses a good one. With clean
            labels, the chosen weight decay is tiny. With noisy labels, it is the best of 2.8, 3.6 and 3.9
            times `sqrt(2 alpha_T (E + Delta/2))`, where E comes from the leading law. The error at this
            choice is within 1% of the best of a scan from 1.2 to 4.3 for gamma 0.7 to 2, N/d 32 to 8192, d =
            1e6 and Delta = 0.5. Untied students get the weight decay of a tied student with N/2.

    >>> law = scaling_law(1.0, 1000, [8.0, 16.0], noise=0.5)
    >>> law.predicted_exponent, round(law.fitted_exponent, 2)
    (-0.5, -0.61)
    """
    if len(ratios) < 2 or min(ratios) <= 0:
        raise InputError(f"ratios: found {list(ratios)}, expected at least two values of N/d above 0")
    target = Target.power_law(exponent, dimension)
    leading = leading_error(exponent, ratios, noise, student, attention)
    alphas = np.asarray(ratios, dtype=float) / dimension
    if weight_decay is not None:
        decays = np.full((alphas.size, 1), float(weight_decay))
    else:
        scale = np.sqrt(2 * alphas / ATTENTIONS[attention].sides * (leading + noise / 2))
        factors = GOOD_DECAYS if noise > 0 and STUDENTS[student].penalised else (1e-4,)
        decays = scale[:, None] * np.array(factors)
    problems = [
        Problem(alpha, target=target, noise=noise, weight_decay=decay, student=student, attention=attention)
        for alpha, row in zip(alphas.tolist(), decays.tolist(), strict=True)
        for decay in row
    ]
    solved = state_evolutions(problems, progress)
    tried = decays.shape[1]
    predictions = tuple(
        min(solved[i : i + tried], key=lambda prediction: prediction.estimation_error.value)
        for i in range(0, len(solved), tried)
    )
    slope, error = fit_exponent(ratios, [prediction.estimation_error.value for prediction in predictions])
    return ScalingLaw(
        exponent,
        dimension,
        noise,
        student,
        tuple(float(ratio) for ratio in ratios),
        predictions,
        tuple(leading.tolist()),
        predicted_exponent(exponent, noise),
        slope,
        error,
    )
