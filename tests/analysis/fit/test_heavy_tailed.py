"""kappa by maximum likelihood: against its sampler, and against a plain search."""

import numpy as np
import pytest
from oracles.beta_laguerre import beta_laguerre
from scipy import stats
from scipy.optimize import minimize_scalar

from attnlaw.analysis.fit.heavy_tailed import DROP, fit_kappa, kappas_of_null
from attnlaw.analysis.fit.null import null_of_shape
from attnlaw.theory.laws.head_null import HeadNull
from attnlaw.theory.laws.heavy_tailed import HighTemperatureMP


def test_kappa_of_the_sampler_lies_in_its_interval():
    trials, inside = 20, 0
    for seed in range(trials):
        x = beta_laguerre(300, 3.0, 0.25, seed)
        fit = fit_kappa(x / x.mean(), 0.25)
        inside += fit.low <= 3.0 <= fit.high
    assert inside >= stats.binom.ppf(0.001, trials, 0.95)


def test_published_size_of_the_interval():
    # N = 800, kappa = 12 (arXiv 2506.03470): estimates between 11.0 and 16.1.
    x = beta_laguerre(800, 12.0, 0.25, seed=0)
    fit = fit_kappa(x / x.mean(), 0.25)
    assert abs(fit.kappa - 12.0) < 3 * fit.error
    assert 1.0 < fit.error < 3.0


def test_maximum_and_interval_are_those_of_a_plain_search():
    x = beta_laguerre(200, 1.5, 0.1, seed=1)
    x = x / x.mean()

    def negative(log_kappa):
        return -HighTemperatureMP(float(np.exp(log_kappa)), 0.1).log_density(x).sum()

    best = minimize_scalar(negative, bounds=(-2.0, 4.0), method="bounded", options={"xatol": 1e-6})
    fit = fit_kappa(x, 0.1)
    # A parabola over a quarter octave: its cubic term is small against the standard error.
    assert abs(np.log(fit.kappa) - best.x) < 0.05 * fit.error / fit.kappa
    assert fit.log_likelihood * x.size == pytest.approx(-best.fun, abs=0.01)
    for end in (fit.low, fit.high):
        # Linear between grid points a quarter octave apart.
        assert -negative(np.log(end)) == pytest.approx(-best.fun - DROP, abs=0.3)


def test_density_and_distribution_function_are_those_of_the_law_at_kappa():
    x = beta_laguerre(200, 1.5, 0.1, seed=1)
    fit = fit_kappa(x / x.mean(), 0.1)
    law = HighTemperatureMP(fit.kappa, 0.1)
    at = np.linspace(0.05, 4.0, 40)
    # Linear over a quarter octave: a second difference of (ln 2 / 4)^2 / 8 = 0.004.
    assert fit.cdf(at) == pytest.approx(law.cdf(at), abs=0.004)
    assert fit.density(at) == pytest.approx(law.density(at), abs=0.01)


def test_a_gaussian_matrix_has_no_kappa_to_speak_of():
    rng = np.random.default_rng(2)
    x = np.linalg.svd(rng.standard_normal((100, 400)), compute_uv=False) ** 2
    fit = fit_kappa(x / x.mean(), 0.25)
    assert fit.high is None
    assert fit.low > 30


def random_head(rng, rows, inner, cols):
    """Eigenvalues at mean 1 of a product of Gaussian factors, each factor formed."""
    product = rng.standard_normal((rows, inner)) @ rng.standard_normal((inner, cols))
    values = np.linalg.svd(product, compute_uv=False)[:inner] ** 2
    return values / values.mean()


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "gamma"), [((64, 64, 16), 0.25), ((32, 128, 16), 0.125), ((10, 50), 0.2)])
def test_kappas_of_a_null_are_those_of_its_draws(shape, gamma):
    null = null_of_shape(*shape, draws=24)
    run_each_case = [fit_kappa(values[::-1] ** 2, gamma) for values in null.draws]
    kappas = kappas_of_null(null, gamma)
    assert kappas == pytest.approx([np.inf if fit.kappa is None else fit.kappa for fit in run_each_case])
    # Fluctuating matrices have both: the grid ends at 4096.
    assert np.isinf(kappas).any() == (len(shape) == 2)


def test_kappa_of_a_random_head_is_that_of_the_law_of_its_null():
    gamma = 64 / 768
    x = HeadNull(gamma).quantile((np.arange(2000) + 0.5) / 2000)
    limit = fit_kappa(x / x.mean(), gamma).kappa
    kappas = kappas_of_null(null_of_shape(768, 768, 64), gamma)
    assert np.quantile(kappas, 0.01) < limit < np.quantile(kappas, 0.99)
    # The second moment matches at kappa = 2, the likelihood does not.
    assert (kappas > 2).all()


@pytest.mark.parametrize("shape", [(64, 16, 64), (48, 16, 192)])
def test_heavier_than_the_null_has_the_level_it_states(shape):
    rng = np.random.default_rng(5)
    rows, inner, cols = shape
    gamma = inner / max(rows, cols)
    kappas = kappas_of_null(null_of_shape(rows, cols, inner), gamma)
    trials = 40
    called = sum(fit_kappa(random_head(rng, *shape), gamma).heavier(kappas) for _ in range(trials))
    # More than this many come once in a thousand, the chance being a Beta(2, 199) of the draws.
    assert called <= stats.betabinom.ppf(0.999, trials, 2, 199)
    heavy = beta_laguerre(inner, 0.25 * float(np.median(kappas)), gamma, rng)
    assert fit_kappa(heavy / heavy.mean(), gamma).heavier(kappas)


def test_a_kappa_below_the_grid_is_heavier_and_one_above_is_not():
    kappas = kappas_of_null(null_of_shape(64, 64, 16), 0.25)
    heaviest = fit_kappa(np.append(np.full(15, 1e-60), 16.0), 0.25)
    assert (heaviest.kappa, heaviest.kappa_or_limit) == (None, 0.0)
    assert heaviest.heavier(kappas)
    equal = fit_kappa(np.linspace(0.99, 1.01, 16), 0.25)
    assert (equal.kappa, equal.kappa_or_limit) == (None, np.inf)
    assert not equal.heavier(kappas)
