"""Thresholds: the table, the formula by plain minimisation, any number of tokens, double descent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.plain_convolution import integral
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from attnlaw.core.errors import InputError
from attnlaw.theory.learn.prediction import Prediction
from attnlaw.theory.learn.problem import ObservationGroup, Problem, Target
from attnlaw.theory.learn.state_evolution import curve, state_evolution
from attnlaw.theory.learn.thresholds import interpolation_peak, recovery, thresholds


@pytest.mark.parametrize(
    ("k0", "rec", "psd", "bayes", "interpolation"),
    [(0.1, 0.157572, 0.2975, 0.095, 0.26347), (0.5, 0.422175, 0.4375, 0.375, 0.30696)],
)
def test_table(k0: float, rec: float, psd: float, bayes: float, interpolation: float) -> None:
    sample_thresholds = thresholds(Target.marchenko_pastur(k0), noise=0.5)
    assert sample_thresholds.recovery == pytest.approx(rec, abs=0.5e-6)
    assert sample_thresholds.feasibility == pytest.approx(psd, abs=1e-12)
    assert sample_thresholds.bayes == pytest.approx(bayes, abs=1e-12)
    assert sample_thresholds.direct == 0.5
    assert sample_thresholds.interpolation == pytest.approx(interpolation, abs=0.5e-5)


@pytest.mark.parametrize("k0", [0.02, 0.3, 0.8])
def test_recovery_is_the_minimum_of_its_formula(k0: float) -> None:
    def value(t: float) -> float:
        tail = quad(lambda x: (x - t) ** 2 * np.sqrt(max(4 - x * x, 0.0)) / (2 * np.pi), t, 2.0)[0]
        return 0.5 * (1 - (1 - k0) ** 2 + k0 * (1 - k0) * t**2 + (1 - k0) ** 2 * tail)

    expected = minimize_scalar(value, bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-9}).fun
    assert recovery(k0) == pytest.approx(expected, abs=1e-9)


def test_full_rank_needs_a_half() -> None:
    for target in (Target.marchenko_pastur(1.0), Target.marchenko_pastur(3.0)):
        sample_thresholds = thresholds(target)
        assert (
            sample_thresholds.recovery,
            sample_thresholds.feasibility,
            sample_thresholds.bayes,
            sample_thresholds.direct,
        ) == (0.5, 0.5, 0.5, 0.5)
        assert sample_thresholds.interpolation is None


def test_order_of_thresholds() -> None:
    for k0 in (0.05, 0.3, 0.7, 0.95):
        sample_thresholds = thresholds(Target.marchenko_pastur(k0))
        assert (
            sample_thresholds.bayes
            < sample_thresholds.recovery
            < sample_thresholds.feasibility
            < sample_thresholds.direct
        )


@pytest.mark.parametrize(("output", "divisor"), [("linear", 6.0), ("softmax", 5.0)])
def test_tokens_divide(output: str, divisor: float) -> None:
    problem = Problem(0.1, tokens=3, output=output)
    sample_thresholds = thresholds(problem.target, problem.observations_per_sample)
    assert sample_thresholds.recovery == pytest.approx(0.4221749821855 / divisor, abs=1e-10)


def test_solver_recovers_just_beyond_the_threshold() -> None:
    """Clean labels, vanishing weight decay: a finite error below, one of the penalty's order above."""
    problem = Problem(0.4, target=Target.marchenko_pastur(0.5), weight_decay=1e-6)
    below, above = curve(problem, [0.97 * 0.422175, 1.03 * 0.422175])
    assert below.estimation_error.value > 1e-3
    assert above.estimation_error.value < 1e-6


def test_bayes_recovers_just_beyond_its_threshold() -> None:
    problem = Problem(0.4, target=Target.marchenko_pastur(0.3), student="bayes")
    below, above = curve(problem, [0.99 * 0.255, 1.01 * 0.255])
    assert below.estimation_error.value > 1e-3
    assert above.estimation_error.value < 1e-10


@pytest.mark.parametrize(
    ("eigenvalues", "weights", "expected"),
    [
        ([0.0, 1.0], None, 0.25),
        ([1.0, 2.0], None, 0.25),
        ([0.0, 0.0, 0.0, 1.0], None, 0.1875),
        ([0.0, 1.0, 3.0], [0.5, 0.2, 0.3], 0.31),
        ([2.0, 1.0, 2.0, 1.0], None, 0.25),
    ],
)
def test_bayes_finds_repeated_eigenvalues_earlier(
    eigenvalues: list[float], weights: list[float] | None, expected: float
) -> None:
    target = Target.discrete(eigenvalues, weights)
    threshold = thresholds(target).bayes
    assert threshold == pytest.approx(expected, abs=1e-15)
    below, above = curve(Problem(0.1, target=target, student="bayes"), [0.99 * threshold, 1.01 * threshold])
    assert below.estimation_error.value > 1e-4
    assert above.estimation_error.value < 1e-10


def test_a_power_law_counts_its_modes() -> None:
    """40 modes are below the bins' start: the list of eigenvalues has the same threshold."""
    power = Target.power_law(1.0, 40)
    listed = Target.discrete(power.quantiles(40))
    assert thresholds(power).bayes == pytest.approx(0.5 * (1 - 1 / 40), abs=1e-15)
    assert thresholds(listed).bayes == pytest.approx(0.5 * (1 - 1 / 40), abs=1e-15)
    assert thresholds(Target.power_law(1.0, 10**6)).bayes == pytest.approx(0.5 - 0.5e-6, abs=1e-15)


def error_by_quadrature(prediction: Prediction) -> float:
    """E of a solution (kappa0 = Delta = 0.5) after its equations are checked with np.roots and quad."""
    alpha, decay = prediction.problem.alpha, prediction.problem.weight_decay
    delta, b = prediction.noise_level.value, prediction.threshold.value
    J = integral(0.5, delta, lambda x, g: (x - b) ** 2, above=b)
    M1 = integral(0.5, delta, lambda x, g: x - b, above=b)
    chi = 2 * integral(0.5, delta, lambda x, g: (x - b) * g.real, above=b)
    assert 4 * alpha == pytest.approx(decay / b + 2 * chi, abs=1e-8)
    assert 1.75 + 2 * alpha * delta**2 - delta**2 * decay / b == pytest.approx(J + 2 * b * M1, abs=1e-7)
    return 2 * alpha * delta**2 - 0.25


def test_double_descent_peaks_at_interpolation() -> None:
    problem = Problem(0.3, target=Target.marchenko_pastur(0.5), noise=0.5, weight_decay=1e-3)
    heights = []
    # The peak moves to interpolation as the decay vanishes; a coarse reading elsewhere gives .315 and .309.
    for decay, place in ((1e-3, 0.3159), (1e-5, 0.3079)):
        alphas = np.linspace(place - 0.003, place + 0.003, 61)
        predictions = curve(replace(problem, weight_decay=decay), alphas)
        errors = [prediction.estimation_error.value for prediction in predictions]
        peak = int(np.argmax(errors))
        assert alphas[peak] == pytest.approx(place, abs=1.5e-4)
        before, top, after = (error_by_quadrature(predictions[peak + shift]) for shift in (-10, 0, 10))
        assert top > max(before, after) + 1e-4
        assert top == pytest.approx(errors[peak], abs=1e-9)
        heights.append(top)
    sample_thresholds = thresholds(problem.target, noise=0.5)
    assert sample_thresholds.peak_error == pytest.approx(2.977, abs=0.5e-3)
    assert heights[0] < heights[1] < sample_thresholds.peak_error
    at_peak = replace(problem, alpha=sample_thresholds.interpolation)
    larger, smaller = (state_evolution(replace(at_peak, weight_decay=decay)) for decay in (1e-7, 1e-10))
    limit = (
        smaller.estimation_error.value + (smaller.estimation_error.value - larger.estimation_error.value) / 9
    )
    assert limit == pytest.approx(sample_thresholds.peak_error, rel=1e-3)  # cube-root extrapolation, as below


def test_the_direct_student_peaks_at_its_own_interpolation() -> None:
    """Its error there grows as the inverse root of the decay: no height in the limit."""
    problem = Problem(0.5, noise=0.5, student="direct")
    sample_thresholds = thresholds(problem.target, noise=0.5, student="direct")
    assert sample_thresholds.peak_error is None
    alphas = np.linspace(0.4, 0.6, 201)
    heights = []
    for decay in (1e-6, 1e-8):
        errors = [
            point.estimation_error.value for point in curve(replace(problem, weight_decay=decay), alphas)
        ]
        assert alphas[int(np.argmax(errors))] == pytest.approx(sample_thresholds.interpolation, abs=1e-9)
        heights.append(max(errors))
    assert heights[1] / heights[0] == pytest.approx(10.0, rel=2e-3)  # corrections of the decay's root, 1e-3


def test_bayes_does_not_interpolate() -> None:
    sample_thresholds = thresholds(Target.marchenko_pastur(0.5), noise=0.5, student="bayes")
    assert (sample_thresholds.interpolation, sample_thresholds.peak_error) == (None, None)
    problem = Problem(0.1, noise=0.5, student="bayes")
    errors = [point.estimation_error.value for point in curve(problem, np.linspace(0.1, 0.7, 25))]
    assert errors == sorted(errors, reverse=True)


def test_a_tall_peak_is_not_missed() -> None:
    """Much noise on a low rank: the error at interpolation is hundreds of times the target's norm."""
    target = Target.marchenko_pastur(0.1)
    sample_thresholds = thresholds(target, noise=20.0)
    assert sample_thresholds.peak_error is not None
    assert sample_thresholds.peak_error > 300
    problem = Problem(sample_thresholds.interpolation, target=target, noise=20.0, weight_decay=1e-9)
    larger, smaller = (state_evolution(replace(problem, weight_decay=decay)) for decay in (1e-9, 1e-12))
    assert larger.converged
    assert smaller.converged
    # At interpolation the distance from the limit falls as the cube root of the decay: a factor 10 here.
    limit = (
        smaller.estimation_error.value + (smaller.estimation_error.value - larger.estimation_error.value) / 9
    )
    assert limit == pytest.approx(sample_thresholds.peak_error, rel=1e-3)


def test_interpolation_of_unequal_groups_uses_the_mean_noise() -> None:
    groups = (ObservationGroup(noise=0.1, share=0.75), ObservationGroup(weight=3.0, noise=1.7, share=0.25))
    threshold = thresholds(Target.marchenko_pastur(0.5), noise=0.5).interpolation
    problem = Problem(1.0, weight_decay=0.0, groups=groups)
    with pytest.raises(InputError, match="below interpolation"):
        replace(problem, alpha=0.999 * threshold)
    assert state_evolution(replace(problem, alpha=1.001 * threshold)).training_loss.value < 1e-3


def test_discrete_target_has_the_threshold_of_its_rank() -> None:
    sample_thresholds = thresholds(Target.discrete([0.0, 5.0], [0.9, 0.1]), noise=0.5)
    assert sample_thresholds.recovery == pytest.approx(0.157572, abs=1e-6)
    assert sample_thresholds.interpolation is not None
    assert 0.25 < sample_thresholds.interpolation < sample_thresholds.feasibility


@pytest.mark.parametrize("noise", [1e-10, 1e-12, 1e-15])
def test_hardly_noisy_labels(noise: float) -> None:
    """To first order in delta the zero cluster, a semicircle of variance w delta^2 pushed down by delta^2 h,
    gives `chi = chi0 - c delta`, `c = 4 h w^(3/2) / pi`, and the equation `Delta/2 = c delta^3 / 3`.
    """
    k0 = 0.5
    sample_thresholds = thresholds(Target.marchenko_pastur(k0), noise=noise)
    c = 4 * k0**1.5 / (1 - k0) * (1 - k0) ** 1.5 / np.pi  # h = int_(t>0) dmu/t = k0^(3/2)/(1-k0)
    delta = (1.5 * noise / c) ** (1 / 3)
    if noise > 1e-11:
        # Corrections are of relative order delta.
        assert sample_thresholds.feasibility - sample_thresholds.interpolation == pytest.approx(
            c * delta / 2, rel=4 * delta
        )
        assert sample_thresholds.peak_error == pytest.approx(
            2 * sample_thresholds.feasibility * delta**2, rel=4 * delta
        )
    else:
        assert sample_thresholds.feasibility - sample_thresholds.interpolation == pytest.approx(
            c * delta / 2, abs=1e-4
        )
        assert sample_thresholds.peak_error is None
    assert state_evolution(Problem(0.6, weight_decay=0.0, noise=noise)).estimation_error.value < 1e-8


@pytest.mark.parametrize("noise", [1e4, 1e8, 1e12, 1e15])
@pytest.mark.parametrize("target", [Target.marchenko_pastur(0.5), Target.discrete([0.0, 5.0], [0.9, 0.1])])
def test_mostly_noise(target: Target, noise: float) -> None:
    """`J = delta^2/2 + 8 m delta/(3 pi) + Q*/2`: delta = 3 pi (Delta + Q*)/(8 m) and chi = 1/2."""
    sample_thresholds = thresholds(target, noise=noise)
    delta = 3 * np.pi * (noise + target.second_moment) / (8 * target.mean)
    # The next term of J is of order m Q*/delta, against a noise of m delta.
    missing = 20 * target.second_moment / delta**2 + 1e-9
    chi = 0.5 + 4 * target.mean / (3 * np.pi * delta)
    assert sample_thresholds.interpolation == pytest.approx(chi / 2, abs=missing)
    assert sample_thresholds.peak_error == pytest.approx(chi * delta**2 - noise / 2, rel=missing)


def test_the_expansion_joins_the_integrals(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target.marchenko_pastur(0.5)
    exact = interpolation_peak(target, 60.0)
    monkeypatch.setattr("attnlaw.theory.learn.thresholds.FAR", 20.0)
    far = interpolation_peak(target, 60.0)
    # The first term left out is of order (top/delta)^3, 3e-5 here with delta = 100.
    assert far != exact
    assert far == pytest.approx(exact, rel=3e-5)
