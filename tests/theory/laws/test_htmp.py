"""High-temperature Marchenko-Pastur: 40-digit values of Tricomi's function, its ensemble and its limits."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from oracles.beta_laguerre import beta_laguerre
from scipy.stats import gamma as gamma_law
from scipy.stats import kstest

from attnlaw.core.errors import InputError
from attnlaw.theory.laws.heavy_tailed import HighTemperatureMP
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur

PARAMETERS = [
    (12.0, 0.25),
    (0.01, 0.25),
    (1.0, 0.9),
    (3.0, 0.999),
    (4.0, 0.5),  # a is a whole number: logarithms in the series at zero
    (100.0, 0.05),
    (300.0, 0.5),
    (60.0, 0.99),
    (0.01, 0.002),
    (0.3, 0.001),  # a nearly Gaussian peak far from zero, f hardly oscillates
]


def exact_log_density(law: HighTemperatureMP, x: float) -> float:
    with mp.workdps(40):
        b, gamma = mp.mpf(law.kappa) / 2, mp.mpf(law.gamma)
        a = b * (1 / gamma - 1) - 1
        y = b * mp.mpf(x) / gamma
        # mpmath cannot take the limit at whole a: a shift far below the tolerance.
        U = mp.hyperu(b, -a + mp.mpf(10) ** -25, mp.mpc(-y, 0), maxprec=20000)
        normalisation = mp.loggamma(b + 1) + mp.loggamma(a + b + 1)
        return float(mp.log(b / gamma) + a * mp.log(y) - y - normalisation - 2 * mp.log(abs(U)))


@pytest.mark.slow
@pytest.mark.parametrize(("kappa", "gamma"), PARAMETERS)
def test_density_agrees_with_forty_digits(kappa: float, gamma: float) -> None:
    law = HighTemperatureMP(kappa, gamma)
    x = np.append(law.quantile([1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9]), [0.5, 1.0])
    x = x[x > 1e-100]
    expected = [exact_log_density(law, value) for value in x]
    assert law.log_density(x) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("kappa", "gamma"), [(12.0, 0.25), (100.0, 0.05), (100.0, 0.25)])
def test_far_tails_keep_their_leading_behaviour(kappa: float, gamma: float) -> None:
    law = HighTemperatureMP(kappa, gamma)
    x = np.array([1e-6, 0.01, 7.0, 30.0])
    expected = np.array([exact_log_density(law, value) for value in x])
    assert expected.min() < -200
    assert law.log_density(x) == pytest.approx(expected, abs=1.0)


@pytest.mark.parametrize(("kappa", "gamma"), PARAMETERS)
def test_mean_and_second_moment(kappa: float, gamma: float) -> None:
    law = HighTemperatureMP(kappa, gamma)
    x, w = law.nodes()
    second = 1 + gamma * (1 + 2 / kappa)
    assert (law.moment(1), law.moment(2)) == pytest.approx((1.0, second), rel=1e-12)
    assert (w @ x, w @ x**2) == pytest.approx((1.0, second), rel=1e-11)


@pytest.mark.parametrize(("kappa", "gamma"), [(12.0, 0.25), (1.0, 0.5), (300.0, 0.8)])
def test_follows_its_beta_laguerre_ensemble(kappa: float, gamma: float) -> None:
    size, matrices = 800, 4
    rng = np.random.default_rng(8)
    values = np.concatenate([beta_laguerre(size, kappa, gamma, rng) for _ in range(matrices)])
    law = HighTemperatureMP(kappa, gamma)
    # At high temperature eigenvalues are nearly independent: the 0.1 % level of as many independent draws.
    assert kstest(values, law.cdf).statistic < 1.95 / np.sqrt(values.size)
    likelihoods = [
        HighTemperatureMP(k, gamma).log_density(values).mean() for k in (kappa / 3, kappa, 3 * kappa)
    ]
    assert likelihoods[1] == max(likelihoods)


def test_cold_limit_is_marchenko_pastur() -> None:
    gamma = 0.25
    x = np.linspace(0.35, 2.1, 8)
    plain = MarchenkoPastur(1 / gamma, np.sqrt(gamma)).density(x)
    gaps = [
        np.abs(HighTemperatureMP(kappa, gamma).density(x) - plain).max() for kappa in (100.0, 400.0, 1600.0)
    ]
    # Corrections are of order 1/kappa away from the edges.
    assert gaps[0] > 3 * gaps[1] > 9 * gaps[2]
    assert gaps[2] < 5 / 1600


def test_hot_limit_is_gamma() -> None:
    shape = 2.5
    x = np.array([0.1, 0.5, 1.0, 3.0])
    limit = gamma_law(shape, scale=1 / shape)
    gaps = []
    for kappa in (1e-2, 1e-3, 1e-4):
        law = HighTemperatureMP(kappa, kappa / (2 * shape))
        gaps.append(max(np.abs(law.density(x) - limit.pdf(x)).max(), np.abs(law.cdf(x) - limit.cdf(x)).max()))
    assert gaps[0] > 8 * gaps[1] > 64 * gaps[2]
    assert gaps[2] < 1e-3


@pytest.mark.parametrize(("kappa", "gamma"), [(12.0, 0.25), (2.0, 0.4), (1.0, 0.9)])
def test_inverse_law_has_its_tail_exponent(kappa: float, gamma: float) -> None:
    law = HighTemperatureMP(kappa, gamma)
    large = np.array([1e10, 1e12])
    log_density = law.log_density(1 / large) - 2 * np.log(large)
    slope = np.diff(log_density)[0] / np.log(100)
    # The next term is of relative order x^min(1, a+1).
    assert slope == pytest.approx(-((kappa / 2) * (1 / gamma - 1) + 1), abs=0.3 if law.a < 0 else 1e-6)


@pytest.mark.parametrize(("kappa", "gamma"), [(0.02, 0.3), (3.0, 0.9999), (1e-3, 1e-3), (2000.0, 0.3)])
def test_distribution_function_reaches_from_zero_to_one(kappa: float, gamma: float) -> None:
    law = HighTemperatureMP(kappa, gamma)
    levels = law.cdf(np.concatenate([[-1.0, 0.0], np.geomspace(1e-200, 1e4, 400)]))
    assert levels[:2].tolist() == [0.0, 0.0]
    assert np.all(np.diff(levels) >= -1e-13)
    assert levels[-1] == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize(("kappa", "gamma"), [(0.0, 0.5), (-1.0, 0.5), (np.inf, 0.5), (1.0, 1.0), (1.0, 0.0)])
def test_bad_parameters_are_refused(kappa: float, gamma: float) -> None:
    with pytest.raises(InputError):
        HighTemperatureMP(kappa, gamma)
