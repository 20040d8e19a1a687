"""One step on the attention-indexed model: thresholds, their best, and the trained student."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.plain_convolution import integral
from regression.agree import holds, z_score
from scipy.optimize import minimize_scalar

from attnlaw.base.errors import InputError
from attnlaw.implicit.early_stopping import hard
from attnlaw.implicit.one_step import one_step, one_step_law
from attnlaw.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.laws.rectified import rectify
from attnlaw.laws.thresholded import Thresholded
from attnlaw.learning.problem import Problem
from attnlaw.learning.state_evolution import state_evolution
from attnlaw.learning.target import Target
from attnlaw.numerics.draws import mean_of

TARGET = Target.marchenko_pastur(0.3)
PROBLEM = Problem(alpha=0.3, noise=0.5, target=TARGET)


def test_reference_values() -> None:
    found = one_step(PROBLEM)
    assert found.noise**2 == pytest.approx(1.55 / 0.6)
    assert (found.hard, found.soft, found.least) == pytest.approx((1.0777, 0.6503, 0.5934), abs=5.1e-5)
    assert (found.hard_threshold, found.soft_threshold) == pytest.approx((2.225, 1.002), abs=5.1e-4)
    assert Thresholded(one_step_law(PROBLEM), 2 * found.noise).distance == pytest.approx(1.0951, abs=5.1e-5)


def test_the_trained_student_is_better() -> None:
    """`learn` at its best weight decay: what one step and any rule leave, training to the end does not."""

    def error(decay: float) -> float:
        problem = Problem(alpha=0.3, noise=0.5, target=TARGET, weight_decay=decay)
        return state_evolution(problem).estimation_error.value

    best = minimize_scalar(error, bounds=(0.05, 2), method="bounded", options={"xatol": 1e-3})
    assert best.fun == pytest.approx(0.3652, abs=5.1e-5)


@pytest.mark.parametrize(("k0", "a", "tau"), [(0.3, 1.6, 3.2), (0.5, 0.4, 0.3), (2.0, 1.0, 0.0)])
def test_the_distance_by_adaptive_quadrature(k0: float, a: float, tau: float) -> None:
    """`int (f - xi)^2 + Q - int xi^2`, xi the conditional mean; 0.3 cuts off both ends of a spectrum."""

    def kept(x: float) -> float:
        return x if abs(x) > tau else 0.0

    pieces = [
        integral(k0, a, lambda x, g: kept(x) ** 2 - 2 * kept(x) * (x - 2 * a * a * g.real), above=b)
        for b in (tau, -tau)
    ]
    whole = integral(k0, a, lambda x, g: x * x - 2 * x * (x - 2 * a * a * g.real))
    upper = pieces[0]
    # Between the cuts f is 0: what lies below -tau is the whole less what lies above it.
    above = integral(k0, a, lambda x, g: x * x - 2 * x * (x - 2 * a * a * g.real), above=-tau)
    expected = 1 + k0 + upper + (whole - above)
    assert Thresholded(FreeConvolution(MarchenkoPastur(k0), a), tau).distance == pytest.approx(
        expected, abs=1e-8
    )


def test_drawn_matrices_agree() -> None:
    """Hard at 2 delta and soft at delta of S* + delta GOE, at three sizes, in the limit."""
    delta, sizes = one_step_law(PROBLEM).sigma, (60, 120, 240)
    table = Truncated(MarchenkoPastur(0.3), np.array([delta]))
    theory = {
        "hard": Thresholded(one_step_law(PROBLEM), 2 * delta).distance,
        "soft": float(rectify(table, np.array([delta])).E[0]),
    }
    measured: dict[str, list] = {"hard": [], "soft": []}
    for place, d in enumerate(sizes):
        rng, errors = np.random.default_rng(place), {"hard": [], "soft": []}
        for _ in range(4800 // d):
            W = rng.standard_normal((d, int(0.3 * d)))
            S = W @ W.T / np.sqrt(d * int(0.3 * d))
            Z = rng.standard_normal((d, d)) * delta / np.sqrt(2 * d)
            x, V = np.linalg.eigh(S + Z + Z.T)
            for name, values in (("hard", hard(x, 2 * delta)), ("soft", np.maximum(x - delta, 0))):
                errors[name].append(float((((V * values) @ V.T - S) ** 2).sum()) / d)
        for name, values in errors.items():
            measured[name].append(mean_of(values))
    family = [z_score(theory[name], sizes, measured[name]) for name in theory]
    assert holds(family), family


def test_the_noise_of_the_step_itself() -> None:
    """phi from Gaussian sensing: |phi - S*|^2/d is delta^2 (1 + 1/d)."""
    family = []
    for place, d in enumerate((20, 30, 40)):
        rng, found = np.random.default_rng(place), []
        n, m = int(0.3 * d * d), int(0.3 * d)
        for _ in range(20):
            W = rng.standard_normal((d, m))
            S = W @ W.T / np.sqrt(d * m)
            A = rng.standard_normal((n, d, d)) / np.sqrt(2)
            A = (A + A.transpose(0, 2, 1)) / np.sqrt(d)  # <A, S> has variance 2 |S|^2/d
            h = np.einsum("nij,ij->n", A, S) + np.sqrt(0.5) * rng.standard_normal(n)
            phi = d / (2 * n) * np.einsum("n,nij->ij", h, A)
            # Exact for Gaussian A, given S: E (h A_ij)^2 by Isserlis.
            power = 2 * (S**2).sum() / d + 0.5
            expected = (power * (d + 1) * d**2 / (4 * n) + (S**2).sum() / n) / d
            found.append(float(((phi - S) ** 2).sum()) / d - expected)
        error = mean_of(found)
        family.append(error.value / error.error)
    assert holds(family), family


def test_other_outputs_are_refused() -> None:
    with pytest.raises(InputError, match="expected a linear output of one token without groups"):
        one_step(Problem(alpha=0.3, tokens=2, target=TARGET))
