"""One step on the attention-indexed model: thresholds, their best, and the trained student."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.plain_convolution import integral
from scipy.optimize import minimize_scalar
from theory.regression.agree import holds, z_score

from attnlaw.core.errors import InputError
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.implicit_bias.early_stopping import hard
from attnlaw.theory.implicit_bias.one_step import one_step, one_step_law
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.transformed import Thresholded, rectify
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.state_evolution import state_evolution
from attnlaw.theory.learn.target import Target

TARGET = Target.marchenko_pastur(0.3)
PROBLEM = Problem(alpha=0.3, noise=0.5, target=TARGET)


def test_reference_values() -> None:
    errors = one_step(PROBLEM)
    assert errors.noise**2 == pytest.approx(1.55 / 0.6)
    assert (errors.hard, errors.soft, errors.least) == pytest.approx((1.0777, 0.6503, 0.5934), abs=5.1e-5)
    assert (errors.hard_threshold, errors.soft_threshold) == pytest.approx((2.225, 1.002), abs=5.1e-4)
    assert Thresholded(one_step_law(PROBLEM), 2 * errors.noise).distance == pytest.approx(1.0951, abs=5.1e-5)


def test_the_trained_student_is_better() -> None:
    """`learn` at its best weight decay: what one step and any rule leave, training to the end does not."""

    def error(decay: float) -> float:
        problem = Problem(alpha=0.3, noise=0.5, target=TARGET, weight_decay=decay)
        return state_evolution(problem).estimation_error.value

    best = minimize_scalar(error, bounds=(0.2, 0.6), method="bounded", options={"xatol": 5e-3})
    assert 0.3 < best.x < 0.5
    assert best.fun == pytest.approx(0.3652, abs=5.1e-5)


@pytest.mark.parametrize(("k0", "a", "tau"), [(0.3, 1.6, 3.2), (0.5, 0.4, 0.3), (2.0, 1.0, 0.0)])
def test_the_distance_by_adaptive_quadrature(k0: float, a: float, tau: float) -> None:
    """`Q + int f^2 - 2 f xi`, xi the conditional mean; 0.3 cuts off both ends of a spectrum."""

    def part(above: float | None) -> float:
        cut = {} if above is None else {"above": above}
        return integral(k0, a, lambda x, g: x * x - 2 * x * (x - 2 * a * a * g.real), **cut)

    # Between the cuts f is 0: what lies below -tau is the whole less what lies above it.
    expected = 1 + k0 + part(tau) + part(None) - part(-tau)
    assert Thresholded(FreeConvolution(MarchenkoPastur(k0), a), tau).distance == pytest.approx(
        expected, abs=1e-8
    )


@pytest.mark.slow
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


def sensed(d: int, rng: np.random.Generator) -> np.ndarray:
    m = int(0.3 * d)
    W = rng.standard_normal((d, m))
    return W @ W.T / np.sqrt(d * m)


def gaussian_noise(S: np.ndarray, n: int, variance: float) -> float:
    """E |phi - S|^2/d of symmetric Gaussian sensing, given S, exactly: E (h A_ij)^2 by Isserlis."""
    d, square = len(S), float((S**2).sum())
    return ((2 * square / d + variance) * (d + 1) * d**2 / (4 * n) + square / n) / d


@pytest.mark.slow
def test_the_noise_of_the_step_itself() -> None:
    """phi from Gaussian sensing: |phi - S*|^2/d is delta^2 (1 + 1/d)."""
    family = []
    for place, d in enumerate((20, 30, 40)):
        rng, deviations = np.random.default_rng(place), []
        n = int(0.3 * d * d)
        for _ in range(20):
            S = sensed(d, rng)
            A = rng.standard_normal((n, d, d)) / np.sqrt(2)
            A = (A + A.transpose(0, 2, 1)) / np.sqrt(d)  # <A, S> has variance 2 |S|^2/d
            h = np.einsum("nij,ij->n", A, S) + np.sqrt(0.5) * rng.standard_normal(n)
            phi = d / (2 * n) * np.einsum("n,nij->ij", h, A)
            deviations.append(float(((phi - S) ** 2).sum()) / d - gaussian_noise(S, n, 0.5))
        error = mean_of(deviations)
        family.append(error.value / error.error)
    assert holds(family), family


def token_noise(S: np.ndarray, n: int, variance: float) -> float:
    """E |phi - S|^2/d of tokens, A = (x x^T - I)/sqrt(d), exactly: |x| and x/|x| are independent."""
    d, t, square = len(S), float(np.trace(S)), float((S**2).sum())
    M = np.cumprod(d + 2 * np.arange(4))  # E |x|^(2k), k = 1 to 4
    direction = (2 * square + t * t) / (d * (d + 2))  # E (u^T S u)^2
    signal = direction * (M[3] - 2 * M[2] + d * M[1]) - 2 * t * t / d * (M[2] - 2 * M[1] + d * M[0])
    signal += t * t * (M[1] - 2 * M[0] + d)
    power = signal / d**2 + variance * (M[1] - 2 * M[0] + d) / d  # E h^2 |A|^2
    return (d * d / 4 * power - square) / (n * d)


def test_tokens_are_noisier_by_a_term_of_order_one_over_d() -> None:
    """Than Gaussian sensing, by 22%, 14% and 9% at d = 30, 60, 90 in a simulation, whose error is unknown."""
    rng, over = np.random.default_rng(0), []
    for d in (30, 60, 90, 900):
        S, n = sensed(d, rng), int(0.3 * d * d)
        over.append(token_noise(S, n, 0.5) / gaussian_noise(S, n, 0.5) - 1)
    assert over[:3] == pytest.approx([0.22, 0.14, 0.09], rel=0.2)
    assert over[3] == pytest.approx(over[2] / 10, rel=0.1)
    # The law of the step is the limit of both; |S|^2/d of one draw is off by a few 1/d, too.
    assert one_step_law(PROBLEM).sigma ** 2 == pytest.approx(token_noise(S, n, 0.5), rel=20 / 900)
    family = []
    for place, d in enumerate((20, 30, 40)):
        rng, n, deviations = np.random.default_rng(place), int(0.3 * d * d), []
        for _ in range(40):
            S, x = sensed(d, rng), rng.standard_normal((n, d))
            h = (np.einsum("ni,ij,nj->n", x, S, x) - np.trace(S)) / np.sqrt(d)
            h += np.sqrt(0.5) * rng.standard_normal(n)
            phi = np.sqrt(d) / (2 * n) * ((x * h[:, None]).T @ x - h.sum() * np.eye(d))
            deviations.append(float(((phi - S) ** 2).sum()) / d - token_noise(S, n, 0.5))
        error = mean_of(deviations)
        family.append(error.value / error.error)
    assert holds(family), family


@pytest.mark.slow
def test_a_soft_threshold_on_both_sides_is_worse() -> None:
    """`sign(x) (|x| - b)_+` at its best, by adaptive quadrature: .7062, where one side has .6503."""
    k0, a = 0.3, one_step_law(PROBLEM).sigma

    def error(b: float) -> float:
        def part(shift: float, **cut: float) -> float:
            def term(x: float, g: complex) -> float:
                return (x + shift) ** 2 - 2 * (x + shift) * (x - 2 * a * a * g.real)

            return integral(k0, a, term, **cut)

        return 1 + k0 + part(-b, above=b) + part(b) - part(b, above=-b)

    best = minimize_scalar(error, bounds=(0.8 * a, 1.2 * a), method="bounded", options={"xatol": 1e-3 * a})
    assert best.fun == pytest.approx(0.7062, abs=5.1e-5)


def test_other_outputs_are_refused() -> None:
    with pytest.raises(InputError, match="groups; one step is only known for a linear output"):
        one_step(Problem(alpha=0.3, tokens=2, target=TARGET))
