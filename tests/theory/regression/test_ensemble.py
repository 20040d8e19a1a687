"""Ensembles: reference values of three losses, the direct student's formula, votes by drawn scores."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from attnlaw.core.errors import InputError
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.state_evolution import state_evolution
from attnlaw.theory.regression import evolution as averages
from attnlaw.theory.regression.ensemble import Ensemble, feature_moments, feature_spectrum
from attnlaw.theory.regression.evolution import ensemble_evolution

evolved = cache(ensemble_evolution)
LOGISTIC = Ensemble(samples=600, features=450, inputs=300, loss="logistic", ridge=0.01)


@pytest.mark.parametrize(
    ("features", "ridge", "single_error", "four"),
    [
        (150, 0.01, 1.0246, 0.66877),
        (450, 0.01, 1.7052, 0.60753),
        (600, 0.001, 6.0931, 1.6669),
        (900, 0.1, 0.59763, 0.32357),
    ],
)
def test_ridge_reference_values(features: int, ridge: float, single_error: float, four: float) -> None:
    prediction = ensemble_evolution(
        Ensemble(samples=600, features=features, inputs=300, ridge=ridge, noise=0.2)
    )
    assert prediction.error(1) == pytest.approx(single_error, abs=5.1e-5)
    assert prediction.error(4) == pytest.approx(four, abs=5.1e-5)
    assert prediction.residual < 1e-14
    assert prediction.vote_error(3) is None


def test_smooth_features_reference_values() -> None:
    prediction = ensemble_evolution(
        Ensemble(samples=750, features=1000, inputs=500, ridge=0.02, noise=0.2, activation="tanh:2")
    )
    parameters = (prediction.m, prediction.q, prediction.q1, prediction.V)
    assert parameters == pytest.approx((0.725778, 1.136880, 0.675699, 4.740117), abs=5.1e-7)
    errors = [prediction.error(K) for K in (1, 4, math.inf)]
    assert errors == pytest.approx([0.68532, 0.33944, 0.224144], abs=5.1e-6)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (LOGISTIC, (2.150286, 18.530249, 6.747211, 26.196437)),
        (
            Ensemble(samples=600, features=150, inputs=300, loss="logistic", ridge=1.0),
            (0.226324, 0.407418, 0.085536, None),
        ),
        (
            Ensemble(samples=300, features=600, inputs=300, loss="logistic", ridge=0.1),
            (0.62718, 1.7822, 0.86227, None),
        ),
        (
            Ensemble(samples=400, features=300, inputs=200, loss="hinge", ridge=0.1),
            (0.840016, 3.043335, 1.028974, 2.439858),
        ),
    ],
)
def test_classification_reference_values(problem: Ensemble, expected) -> None:
    prediction = evolved(problem)
    for value, reference in zip(
        (prediction.m, prediction.q, prediction.q1, prediction.V), expected, strict=True
    ):
        if reference is not None:
            digits = len(f"{reference:g}".partition(".")[2])
            assert value == pytest.approx(reference, abs=0.51 * 10.0 ** -min(digits, 6), rel=5e-7)
    assert prediction.residual < 1e-12


def test_averages_and_votes_reference_values() -> None:
    prediction = evolved(LOGISTIC)
    means = [prediction.error(K) for K in (1, 3, 5, math.inf)]
    assert means == pytest.approx([0.33351, 0.27135, 0.24749, 0.18958], abs=5.1e-6)
    votes = [prediction.vote_error(K) for K in (1, 3, 5, math.inf)]
    assert votes == pytest.approx([0.33351, 0.28692, 0.26367, 0.18958], abs=5.1e-6)
    assert prediction.vote_error(4) == prediction.vote_error(3)
    assert prediction.vote_error(20_001) == pytest.approx(prediction.error(math.inf), abs=1e-4)


@pytest.mark.parametrize("learners", [1, 2, 5, 6])
def test_votes_of_drawn_scores(learners: int) -> None:
    """400,000 draws of Gaussian scores; ties of an even number count one half."""
    m, q, q1, draws = 0.84, 3.04, 1.03, 400_000
    rng = np.random.default_rng(learners)
    zeta = rng.standard_normal(draws)
    nu = m / q1**0.5 * zeta + (1 - m * m / q1) ** 0.5 * rng.standard_normal(draws)
    scores = q1**0.5 * zeta + (q - q1) ** 0.5 * rng.standard_normal((learners, draws))
    wrong = 0.5 * (1 - np.sign(np.sign(scores).sum(axis=0)) * np.sign(nu))
    z = (wrong.mean() - averages.vote_error(m, q, q1, learners)) / (wrong.std() / draws**0.5)
    mean = (np.sign(scores.mean(axis=0)) != np.sign(nu)).astype(float)
    other = (mean.mean() - averages.mean_sign_error(m, q, q1, learners)) / (mean.std() / draws**0.5)
    assert max(abs(z), abs(other)) < 4


def test_the_infinite_ridge_ensemble_has_the_formula_of_the_direct_student() -> None:
    """Its s for m, 2 alpha for n/d, Delta/2 for Delta, and Q* for 1."""

    def formula(s: float, ratio: float, noise: float, second: float = 1.0) -> float:
        return ((1 - s) ** 2 * second + s * s * noise / ratio) / (1 - s * s / ratio)

    for features, ridge in ((150, 0.01), (450, 0.01), (900, 0.1)):
        prediction = ensemble_evolution(
            Ensemble(samples=600, features=features, inputs=300, ridge=ridge, noise=0.2)
        )
        assert prediction.error(math.inf) == pytest.approx(formula(prediction.m, 2.0, 0.2), rel=1e-12)
    problem = Problem(
        alpha=0.4, target=Target.marchenko_pastur(0.5), noise=0.5, weight_decay=0.3, student="direct"
    )
    direct = state_evolution(problem)
    second = problem.target.second_moment
    assert direct.estimation_error.value == pytest.approx(
        formula(direct.shrinkage, 2 * 0.4, 0.25, second), rel=1e-6
    )


def test_moments_and_spectra_of_drawn_features() -> None:
    """kappas by Monte Carlo, the law of F F^T/d by the traces of Wishart matrices: 1, 1 + p/d, ..."""
    g = np.random.default_rng(0).standard_normal(400_000)
    for name, act in (
        ("sign", np.sign),
        ("tanh:2", lambda x: np.tanh(2 * x)),
        ("tanh:50", lambda x: np.tanh(50 * x)),
    ):
        linear, rest = feature_moments(name)
        product, square = g * act(g), act(g) ** 2
        assert abs(product.mean() - linear) < 4 * product.std() / 400_000**0.5
        assert abs(square.mean() - rest - linear**2) < 4 * square.std() / 400_000**0.5 + 1e-12
    for p, d in ((50, 100), (100, 100), (300, 100)):
        s, weights = feature_spectrum(p, d)
        assert weights.sum() == pytest.approx(1, abs=1e-10)
        assert weights @ s == pytest.approx(1, abs=1e-9)
        assert weights @ s**2 == pytest.approx(1 + p / d, abs=1e-8)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_without_a_ridge(loss: str) -> None:
    """6 samples a feature cannot be separated and need no ridge; 4/3 can, and have no minimum."""
    none, small = (
        ensemble_evolution(Ensemble(samples=600, features=100, inputs=300, loss=loss, ridge=ridge))
        for ridge in (0.0, 1e-7)
    )
    assert (none.m, none.q, none.q1) == pytest.approx((small.m, small.q, small.q1), rel=1e-6)
    with pytest.raises(
        InputError, match="ridge: found 0, but no minimum was found: if the classes can be separated"
    ):
        ensemble_evolution(Ensemble(samples=600, features=450, inputs=300, loss=loss, ridge=0.0))


def test_bad_input_is_one_line() -> None:
    with pytest.raises(
        InputError, match="ridge: found 0, expected a number above 0, because many students fit the data if"
    ):
        ensemble_evolution(Ensemble(samples=300, features=300, ridge=0.0))
    with pytest.raises(InputError, match=r"activation: found 'relu', expected one of sign, .*tanh:G"):
        Ensemble(activation="relu")
    with pytest.raises(InputError, match="learners: found 0, expected a number of at least 1, or inf"):
        ensemble_evolution(Ensemble()).error(0)
