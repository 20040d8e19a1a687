"""The Bayes-optimal student: reference values, its error in other forms, hardmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.plain_convolution import integral
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal

from attnlaw.core.estimate import Outcome
from attnlaw.theory.laws.free_convolution import FreeConvolution
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.state_evolution import state_evolution, state_evolutions
from attnlaw.theory.learn.students.bayes import bivariate_normal_cdf, denoising_error, label_information

MP = Target.marchenko_pastur(0.5)
SOFTMAX = Problem(alpha=0.1, tokens=2, output="softmax", target=MP, student="bayes")
HARDMAX = Problem(alpha=0.1, tokens=2, output="hardmax", target=MP, student="bayes")


def test_softmax_reference_values() -> None:
    curve = state_evolutions([replace(SOFTMAX, alpha=alpha) for alpha in (0.02, 0.05, 0.1, 0.15)])
    errors = [prediction.estimation_error.value for prediction in curve]
    assert errors == pytest.approx([0.906634, 0.723677, 0.392196, 0.128131], abs=0.5e-6)


def test_hardmax_reference_values() -> None:
    curve = state_evolutions([replace(HARDMAX, alpha=alpha) for alpha in (0.1, 0.5, 1.0)])
    errors = [prediction.estimation_error.value for prediction in curve]
    assert errors == pytest.approx([0.7451, 0.2131, 0.0789], abs=0.5e-4)


def test_reference_of_the_linear_output() -> None:
    problem = Problem(alpha=0.3, target=Target.marchenko_pastur(0.3), noise=0.5, student="bayes")
    assert state_evolution(problem).estimation_error.value == pytest.approx(0.3401, abs=0.5e-4)


@pytest.mark.parametrize(("k0", "a"), [(0.1, 0.3), (0.5, 1.0), (2.0, 0.6)])
def test_error_of_the_denoiser_by_its_definition(k0: float, a: float) -> None:
    target = Target.marchenko_pastur(k0)
    kept = integral(k0, a, lambda x, g: (x - 2 * a * a * g.real) ** 2)
    assert denoising_error(target, np.array([a]))[0] == pytest.approx(1 + k0 - kept, abs=3e-9)
    # ... and by the height of the density: int (Re g)^2 dmu = (pi^2/3) int density^2 dmu.
    heights = integral(k0, a, lambda x, g: g.imag**2) / 3
    assert denoising_error(target, np.array([a]))[0] == pytest.approx(
        a**2 * (1 - 4 * a**2 * heights), abs=3e-9
    )


def test_the_denoiser_on_a_random_matrix() -> None:
    d, a = 600, 0.9
    values = MP.quantiles(d)
    Z = np.random.default_rng(2).normal(size=(d, d)) / np.sqrt(d)
    eigenvalues, vectors = np.linalg.eigh(np.diag(values) + a * (Z + Z.T) / np.sqrt(2))
    blurred = FreeConvolution(MP.law, a)
    shrunk = eigenvalues - 2 * a * a * blurred.stieltjes(eigenvalues).real
    estimate = (vectors * shrunk) @ vectors.T
    error = ((estimate - np.diag(values)) ** 2).sum() / d
    # The error of one draw fluctuates by a few a^2/d; the quantiles miss Q* by less.
    assert error == pytest.approx(denoising_error(MP, np.array([a]))[0], abs=10 * a * a / d)


def test_no_data_leaves_the_prior_and_much_data_recovers() -> None:
    nothing = state_evolution(replace(SOFTMAX, alpha=1e-6))
    assert nothing.estimation_error.value == pytest.approx(MP.second_moment - MP.mean**2, abs=1e-4)
    everything = state_evolution(replace(SOFTMAX, alpha=0.19))
    assert everything.estimation_error.value < 1e-10
    assert everything.outcome is Outcome.RECOVERED
    assert "lower alpha or add noise for a value" in everything.remark


def test_bayes_is_below_every_student() -> None:
    for alpha in (0.1, 0.3, 0.6):
        problem = Problem(alpha, target=MP, noise=0.5, weight_decay=0.4)
        errors = [
            state_evolution(replace(problem, student=student)).estimation_error.value
            for student in ("bayes", "factorized", "direct")
        ]
        assert errors[0] < errors[1]
        assert errors[0] < errors[2]


def test_hardmax_knows_less_than_softmax() -> None:
    hard, soft = state_evolution(HARDMAX), state_evolution(SOFTMAX)
    assert hard.estimation_error.value > soft.estimation_error.value
    noisy = state_evolution(replace(HARDMAX, noise=0.5))
    assert noisy.estimation_error.value > hard.estimation_error.value


def test_bivariate_normal_cdf_against_scipy() -> None:
    rng = np.random.default_rng(0)
    for r in (1 / 3, -1 / 3):
        for h, k in [*rng.normal(scale=2, size=(8, 2)), (0.0, 0.4), (0.0, 0.0)]:
            expected = multivariate_normal([0, 0], [[1, r], [r, 1]]).cdf([h, k])
            assert bivariate_normal_cdf(np.array(h), np.array(k), r) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(("q", "V"), [(0.5, 1.0), (1.2, 0.3)])
def test_label_information_against_monte_carlo(q: float, V: float) -> None:
    """Fisher information of the labels about omega: drawn omega, scores by differences."""
    rng = np.random.default_rng(4)
    K = np.array([[3.0, 1.0], [1.0, 3.0]])
    omega = rng.multivariate_normal([0, 0], q * K, size=4000)
    step = 1e-4 * np.sqrt(3 * V)
    total = np.zeros(4000)
    for s in ((1, 1), (1, -1), (-1, 1), (-1, -1)):

        def Z(w: np.ndarray, s: tuple[int, int] = s) -> np.ndarray:
            k = w / np.sqrt(3 * V)
            return bivariate_normal_cdf(s[0] * k[:, 0], s[1] * k[:, 1], s[0] * s[1] / 3)

        shift = np.eye(2) * step
        score = np.stack([(Z(omega + e) - Z(omega - e)) / (2 * step) for e in shift], axis=1)
        at = Z(omega)
        total += np.where(at > 1e-9, np.einsum("na,ab,nb->n", score, K, score) / np.maximum(at, 1e-9), 0.0)
    standard_error = total.std() / np.sqrt(total.size)
    assert label_information(q, V) == pytest.approx(total.mean(), abs=4 * standard_error)


def one_label() -> float:
    """What one label tells on a line across its step: `int phi^2/(Phi(k) Phi(-k)) dk`."""

    def f(k: float) -> float:
        return float(np.exp(-k * k - log_ndtr(k) - log_ndtr(-k))) / (2 * np.pi)

    return float(quad(f, -30, 30, points=[0], epsabs=1e-13)[0])


@pytest.mark.parametrize("V", [1e-6, 1e-12, 1e-30])
def test_label_information_of_nearly_certain_fields(V: float) -> None:
    """It grows as 1/sqrt(V): only fields within sqrt(V) of a step of a label are still in doubt."""
    q = 1.5 - V
    limit = 2 * one_label() / np.sqrt(2 * np.pi * q * V)
    # Both labels are in doubt in a share sqrt(V/q) of those fields; there they tell at most twice as much.
    assert label_information(q, V) == pytest.approx(limit, rel=2 * np.sqrt(V / q) + 1e-11)


@pytest.mark.parametrize(("q", "V"), [(0.01, 1.49), (1.4, 0.1), (1.5, 1e-4), (1.5, 1e-8)])
def test_label_information_by_panels(q: float, V: float) -> None:
    """Gauss-Legendre panels that widen away from the axes; scores from conditional probabilities by scipy."""
    ends, widest = [0.0], 9 * np.sqrt(q / V)
    while ends[-1] < widest:
        ends.append(min(ends[-1] + max(1.0, 0.7 * ends[-1]) * min(1.0, widest / 9), widest))
    edges = np.array([-end for end in ends[:0:-1]] + ends)
    x, w = np.polynomial.legendre.leggauss(8)
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    k, weight = (middle + half * x).ravel(), (half * w).ravel()
    a, b = k[:, None], k[None, :]
    t = q / V
    density = np.exp(-9 * (a * a - 2 * a * b / 3 + b * b) / (16 * t)) / (2 * np.pi * t * np.sqrt(8 / 9))
    information = np.zeros((k.size, k.size))
    for s1, s2 in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        r = s1 * s2 / 3
        Z = bivariate_normal_cdf(s1 * a, s2 * b, r)
        root = np.sqrt(1 - r * r)
        log1 = -a * a / 2 + log_ndtr((s2 * b - r * s1 * a) / root)
        log2 = -b * b / 2 + log_ndtr((s1 * a - r * s2 * b) / root)
        score1, score2 = s1 * np.exp(log1), s2 * np.exp(log2)
        form = (score1**2 + score2**2 + 2 * score1 * score2 / 3) / (2 * np.pi)
        information += np.where(Z > 1e-13, form / np.maximum(Z, 1e-13), 0.0)
    expected = float(weight @ (density * information) @ weight) / V
    # Panels one width wide with eight nodes: right to 1e-7 of the whole.
    assert label_information(q, V) == pytest.approx(expected, rel=1e-7)


def test_hardmax_with_much_data() -> None:
    """`E alpha^2` tends to a constant: E = (1 - (1-k0)^2) a^2 and 1/a^2 = 4 alpha C / sqrt(2 pi Q E)."""
    curve = state_evolutions([replace(HARDMAX, alpha=alpha) for alpha in (40.0, 1e3, 1e5)])
    scaled_errors = np.array(
        [prediction.estimation_error.value * prediction.problem.alpha**2 for prediction in curve]
    )
    limit = (0.75 * np.sqrt(2 * np.pi * 1.5) / (4 * one_label())) ** 2
    # The first corrections are of order a, and a falls as 1/alpha.
    assert np.abs(scaled_errors / limit - 1) * [40.0, 1e3, 1e5] == pytest.approx([0.0] * 3, abs=0.5)
    assert all(prediction.converged for prediction in curve)
