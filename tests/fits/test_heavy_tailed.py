"""kappa by maximum likelihood: against its sampler, and against a plain search."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from attnlaw.fits.heavy_tailed import DROP, fit_kappa
from attnlaw.laws.htmp import HighTemperatureMP, beta_laguerre


def test_kappa_of_the_sampler_lies_in_its_interval():
    trials, inside = 20, 0
    for seed in range(trials):
        x = beta_laguerre(300, 3.0, 0.25, seed)
        found = fit_kappa(x / x.mean(), 0.25)
        inside += found.low <= 3.0 <= found.high
    assert inside >= stats.binom.ppf(0.001, trials, 0.95)


def test_published_size_of_the_interval():
    # N = 800, kappa = 12 (arXiv 2506.03470): estimates between 11.0 and 16.1.
    x = beta_laguerre(800, 12.0, 0.25, seed=0)
    found = fit_kappa(x / x.mean(), 0.25)
    assert abs(found.kappa - 12.0) < 3 * found.error
    assert 1.0 < found.error < 3.0


def test_maximum_and_interval_are_those_of_a_plain_search():
    x = beta_laguerre(200, 1.5, 0.1, seed=1)
    x = x / x.mean()

    def negative(log_kappa):
        return -HighTemperatureMP(float(np.exp(log_kappa)), 0.1).log_density(x).sum()

    best = minimize_scalar(negative, bounds=(-2.0, 4.0), method="bounded", options={"xatol": 1e-6})
    found = fit_kappa(x, 0.1)
    # A parabola over a quarter octave: its cubic term is small against the standard error.
    assert abs(np.log(found.kappa) - best.x) < 0.05 * found.error / found.kappa
    assert found.log_likelihood * x.size == pytest.approx(-best.fun, abs=0.01)
    for end in (found.low, found.high):
        # Linear between grid points a quarter octave apart.
        assert -negative(np.log(end)) == pytest.approx(-best.fun - DROP, abs=0.3)


def test_density_and_distribution_function_are_those_of_the_law_at_kappa():
    x = beta_laguerre(200, 1.5, 0.1, seed=1)
    found = fit_kappa(x / x.mean(), 0.1)
    law = HighTemperatureMP(found.kappa, 0.1)
    at = np.linspace(0.05, 4.0, 40)
    # Linear over a quarter octave: a second difference of (ln 2 / 4)^2 / 8 = 0.004.
    assert found.cdf(at) == pytest.approx(law.cdf(at), abs=0.004)
    assert found.density(at) == pytest.approx(law.density(at), abs=0.01)


def test_a_gaussian_matrix_has_no_kappa_to_speak_of():
    rng = np.random.default_rng(2)
    x = np.linalg.svd(rng.standard_normal((100, 400)), compute_uv=False) ** 2
    found = fit_kappa(x / x.mean(), 0.25)
    assert found.high is None
    assert found.low > 30


def test_a_random_head_has_kappa_near_two():
    rng = np.random.default_rng(3)
    values = np.linalg.svd(rng.standard_normal((768, 64)) @ rng.standard_normal((64, 768)), compute_uv=False)[
        :64
    ]
    found = fit_kappa(values**2 / np.mean(values**2), 64 / 768)
    assert found.low < 2.0 < found.high
