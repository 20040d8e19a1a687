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

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from attnlaw.core.arrays import Reals
from attnlaw.numerics.fixed_point import bracketed_roots
from attnlaw.theory.learn.problem import Problem


def predicted_exponent(gamma: float, noise: float) -> float:
    """Return the exponent with which the error depends on N/d, from the leading-order formula."""
    return -(1 - 1 / (2 * gamma)) if noise > 0 else -(2 * gamma - 1)


def leading_order(problem: Problem) -> tuple[float | None, float | None]:
    """Return the leading-order error of a problem and its exponent of N/d, or None."""
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
