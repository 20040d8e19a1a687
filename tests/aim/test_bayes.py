"""The Bayes-optimal student: reference values, its error in other forms, hardmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.plain_convolution import integral
from scipy.stats import multivariate_normal

from attnlaw.aim.bayes import bivariate_normal_cdf, denoising_error, label_information
from attnlaw.aim.problem import Problem, Target
from attnlaw.aim.state_evolution import state_evolution, state_evolutions
from attnlaw.laws.free_convolution import FreeConvolution

MP = Target.marchenko_pastur(0.5)
SOFTMAX = Problem(alpha=0.1, tokens=2, output="softmax", target=MP, student="bayes")
HARDMAX = Problem(alpha=0.1, tokens=2, output="hardmax", target=MP, student="bayes")


def test_softmax_reference_values() -> None:
    curve = state_evolutions([replace(SOFTMAX, alpha=alpha) for alpha in (0.02, 0.05, 0.1, 0.15)])
    found = [prediction.estimation_error for prediction in curve]
    assert found == pytest.approx([0.906634, 0.723677, 0.392196, 0.128131], abs=0.5e-6)


def test_hardmax_reference_values() -> None:
    curve = state_evolutions([replace(HARDMAX, alpha=alpha) for alpha in (0.1, 0.5, 1.0)])
    found = [prediction.estimation_error for prediction in curve]
    assert found == pytest.approx([0.7451, 0.2131, 0.0789], abs=0.5e-4)


def test_reference_of_the_linear_output() -> None:
    problem = Problem(alpha=0.3, target=Target.marchenko_pastur(0.3), noise=0.5, student="bayes")
    assert state_evolution(problem).estimation_error == pytest.approx(0.3401, abs=0.5e-4)


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
    assert nothing.estimation_error == pytest.approx(MP.second_moment - MP.mean**2, abs=1e-4)
    everything = state_evolution(replace(SOFTMAX, alpha=0.19))
    assert everything.estimation_error < 1e-10
    assert "recovered" in everything.status


def test_bayes_is_below_every_student() -> None:
    for alpha in (0.1, 0.3, 0.6):
        problem = Problem(alpha, target=MP, noise=0.5, weight_decay=0.4)
        errors = [
            state_evolution(replace(problem, student=student)).estimation_error
            for student in ("bayes", "factorized", "direct")
        ]
        assert errors[0] < errors[1]
        assert errors[0] < errors[2]


def test_hardmax_knows_less_than_softmax() -> None:
    hard, soft = state_evolution(HARDMAX), state_evolution(SOFTMAX)
    assert hard.estimation_error > soft.estimation_error
    noisy = state_evolution(replace(HARDMAX, noise=0.5))
    assert noisy.estimation_error > hard.estimation_error


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
