"""Scaling laws of power-law targets."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from oracles.scaling_laws import ScalingLaw, leading_error, scaling_law
from scipy.integrate import quad
from scipy.special import zeta

from attnlaw.numerics.logs import fit_exponent
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.scaling import predicted_exponent
from attnlaw.theory.learn.state_evolution import state_evolution, state_evolutions


@pytest.fixture(scope="module")
def law() -> ScalingLaw:
    return scaling_law(1.0, 10**6, [8, 16, 32, 64])


def test_reference_values_of_the_full_equations(law: ScalingLaw) -> None:
    errors = [prediction.estimation_error.value for prediction in law.predictions]
    assert errors == pytest.approx([0.4337, 0.2517, 0.1361, 0.0706], abs=0.5e-4)
    assert all(prediction.converged for prediction in law.predictions)


def test_leading_law_solves_its_equation() -> None:
    gamma, ratios, noise = 1.5, np.array([30.0, 300.0]), 0.4
    E = leading_error(gamma, ratios, noise)
    A2 = 1 / 1.2020569031595943  # zeta(3)
    I = 1 / 2 + 6 - 8 / 2.5 + 3 / 4
    assert (
        pytest.approx(A2 ** (1 / (2 * gamma)) * I * ((E + noise / 2) / (2 * ratios)) ** (2 / 3), rel=1e-10)
        == E
    )
    clean = leading_error(gamma, ratios, 0.0)
    assert clean == pytest.approx(A2 ** (1 / (2 * gamma)) * I * (clean / (2 * ratios)) ** (2 / 3), rel=1e-10)


@pytest.mark.parametrize("noise", [0.0, 1e-12, 0.5, 1e6])
def test_leading_law_is_cut_where_nothing_is_learned(noise: float) -> None:
    """By plain iteration of `E <- min(front (E + noise/2)^power / (2 N)^power, 1)` from 1, for gamma = 1."""
    ratios = np.array([1e-3, 0.5, 1.0, 2.0, 10.0, 1e4, 1e9])
    front = 4 * np.sqrt(6) / np.pi  # I = 4, zeta(2) = pi^2/6
    E = np.ones(ratios.size)
    for _ in range(400):
        E = np.minimum(front * np.sqrt((E + noise / 2) / (2 * ratios)), 1.0)
    assert leading_error(1.0, ratios, noise) == pytest.approx(E, rel=1e-9)
    assert E[:3].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("student", ["factorized", "bayes"])
def test_leading_law_has_the_predicted_exponent(noise: float, student: str) -> None:
    ratios = np.geomspace(1e5, 1e6, 4)
    slope, error = fit_exponent(ratios, leading_error(1.2, ratios, noise, student))
    # With noise the law approaches its power slowly: E against Delta/2 in the bracket is the correction.
    assert slope == pytest.approx(predicted_exponent(1.2, noise), abs=0.01 if noise else 1e-9)
    assert error is not None


def mode_error(u: float, student: str) -> float:
    """The error of a mode of height u, in units of delta, that stands at u + 1/u with overlap 1 - 1/u^2."""
    if u <= 1:
        return u**2
    lost = 1 / u**2
    if student == "bayes":  # the best multiple of the eigenvector: u^2 - (u (1 - lost))^2
        return u**2 * lost * (2 - lost)
    seen = u + 1 / u - 2
    return (2 - 1 / u) ** 2 + 2 * u * seen * lost


@pytest.mark.parametrize("student", ["factorized", "bayes"])
@pytest.mark.parametrize("gamma", [0.7, 1.0, 2.0])
def test_the_constant_by_a_sum_over_modes(gamma: float, student: str) -> None:
    """Modes `u = (K/k)^gamma`: I = int_0^inf mode_error(x^-gamma) dx, x = k/K, in two parts."""
    learned = quad(lambda x: mode_error(x**-gamma, student), 0, 1, epsabs=1e-12)[0]
    missed = quad(lambda x: mode_error(x**-gamma, student), 1, np.inf, epsabs=1e-12)[0]
    front = zeta(2 * gamma) ** (-1 / (2 * gamma)) * (learned + missed)
    (E,) = leading_error(gamma, [1e6], 0.0, student)
    assert front ** (2 * gamma) * 2e6 ** (1 - 2 * gamma) == pytest.approx(E, rel=1e-7, abs=0)


@pytest.mark.long
def test_full_equations_approach_the_leading_law() -> None:
    law = scaling_law(1.0, 10**6, [32, 128, 512], noise=0.5)
    errors = np.array([prediction.estimation_error.value for prediction in law.predictions])
    # The law cuts at b = 2 delta, where I = 4. The best decay cuts at c = b/delta below 2: I = 4 + c^2 - 2 c.
    cut = np.array(
        [
            float(prediction.threshold.value or 0) / prediction.noise_level.value
            for prediction in law.predictions
        ]
    )
    gap = np.abs(errors / (np.array(law.leading) * (1 + cut * (cut - 2) / 4)) - 1)
    # A sum over K modes and its integral differ by a share of order 1/K, and K grows as sqrt(N/d).
    assert np.all(gap < 2 / learned_modes(law))
    assert np.all(gap[1:] < gap[:-1] / 2)
    assert law.fitted_exponent == pytest.approx(fit_exponent(law.ratios, law.leading)[0], abs=0.05)


def learned_modes(law: ScalingLaw) -> np.ndarray:
    """How many target eigenvalues `A sqrt(d) k^-gamma` are above delta."""
    top = np.sqrt(law.dimension / zeta(2 * law.exponent))
    return np.array(
        [(top / prediction.noise_level.value) ** (1 / law.exponent) for prediction in law.predictions]
    )


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1.0, 1.5])
def test_full_bayes_equations_approach_the_leading_law(gamma: float) -> None:
    law = scaling_law(gamma, 10**6, [128, 512], noise=0.5, student="bayes")
    errors = np.array([prediction.estimation_error.value for prediction in law.predictions])
    assert np.all(np.abs(errors / np.array(law.leading) - 1) < 2 / learned_modes(law))
    assert learned_modes(law)[1] > 10


@pytest.mark.long
def test_the_weight_decay_is_near_the_best() -> None:
    law = scaling_law(2.0, 10**5, [128, 256], noise=0.5)
    prediction = law.predictions[1]
    unit = float(np.sqrt(2 * prediction.problem.alpha * (law.leading[1] + 0.5 / 2)))
    scan = [replace(prediction.problem, weight_decay=factor * unit) for factor in (3.2, 3.7, 4.1)]
    assert prediction.estimation_error.value < 1.01 * min(
        candidate.estimation_error.value for candidate in state_evolutions(scan)
    )


@pytest.mark.slow
def test_bins_do_not_matter() -> None:
    """A power law of 600 modes, exact, against the same with its tail in bins."""
    binned = Target.power_law(1.0, 600)
    exact = Target.discrete(binned.quantiles(600))
    assert len(binned.law.atoms) < len(exact.law.atoms)
    errors = [
        state_evolution(Problem(0.05, target=target, noise=0.3, weight_decay=0.2)).estimation_error.value
        for target in (binned, exact)
    ]
    # Bins are 5% wide: their relative variance is 2e-4.
    assert errors[0] == pytest.approx(errors[1], rel=2e-4)


def test_modes_are_learned_one_after_the_other(law: ScalingLaw) -> None:
    learned = [prediction.outliers for prediction in law.predictions]
    counts = [len(outliers) for outliers in learned]
    assert counts[0] > 0
    assert all(few < many for few, many in pairwise(counts))
    for prediction, outliers in zip(law.predictions, learned, strict=True):
        assert min(outlier.target for outlier in outliers) > prediction.noise_level.value
        assert [outlier.overlap for outlier in outliers] == sorted(
            (outlier.overlap for outlier in outliers), reverse=True
        )
