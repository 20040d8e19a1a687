"""Power-law tails: against the package `powerlaw`, a plain loop, known exponents and scipy's optimisers."""

import warnings

import numpy as np
import pytest
from scipy import special, stats
from scipy.optimize import minimize

from attnlaw.analysis.fit.tail import (
    goodness_of_fit,
    hill,
    least_distance,
    log_normal_cdf,
    lognormal_tail,
    power_law_tail,
    power_law_tails,
)
from attnlaw.core.errors import InputError


def samples(n=90):
    rng = np.random.default_rng(3)
    return {
        "power law": rng.pareto(1.5, n) + 1,
        "steep": rng.pareto(4.0, n) + 1,
        "Gaussian matrix": np.linalg.svd(rng.standard_normal((n, 2 * n)), compute_uv=False) ** 2,
        "lognormal": np.exp(2 * rng.standard_normal(n)),
        "ties": np.round(5 * rng.pareto(1.5, n)) + 1,
        "small values": np.concatenate([rng.pareto(2.0, n // 2) + 1, 1e-12 * rng.random(n - n // 2)]),
    }


def plain(x):
    """x_min, alpha, distance and tail by a loop over all candidates, as the definition has it."""
    x = np.sort(x)
    best = None
    for x_min in np.unique(x)[:-2]:
        tail = x[x >= x_min]
        alpha = 1 + tail.size / np.log(tail / x_min).sum()
        below = np.array([(tail < value).mean() for value in tail])
        distance = np.abs(1 - (tail / x_min) ** (1 - alpha) - below).max()
        if best is None or distance < best[2]:
            best = x_min, alpha, distance, tail.size
    return best


@pytest.mark.parametrize("name", samples())
def test_equals_the_package_powerlaw(name):
    powerlaw = pytest.importorskip("powerlaw")
    x = samples()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Its default keeps alpha below 3, which drops every candidate x_min with a steeper tail.
        peer = powerlaw.Fit(x, verbose=0, parameter_ranges={"alpha": [1.0, None]})
    ours = power_law_tail(x)
    assert ours.alpha == pytest.approx(peer.alpha, rel=1e-6)
    assert ours.x_min == pytest.approx(peer.xmin, rel=1e-12)
    assert ours.ks == pytest.approx(peer.D, rel=1e-6)
    assert ours.size == peer.n_tail


@pytest.mark.parametrize("name", samples())
def test_equals_a_loop_over_all_candidates(name):
    x = samples()[name]
    ours = power_law_tail(x)
    assert (ours.x_min, ours.alpha, ours.ks, ours.size) == pytest.approx(plain(x), rel=1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_tied_values_count_as_one_candidate(seed):
    x = np.random.default_rng(seed).integers(1, 9, 30).astype(float)
    ours = power_law_tail(x)
    assert (ours.x_min, ours.alpha, ours.ks, ours.size) == pytest.approx(plain(x), rel=1e-10)


def test_many_spectra_at_once_are_those_one_by_one():
    rng = np.random.default_rng(0)
    spectra = [rng.pareto(1.7, n) + 1 for n in (40, 25, 40, 2, 25)]
    assert power_law_tails(spectra) == [power_law_tail(x) for x in spectra]
    assert power_law_tails(spectra)[3] is None


def test_exponent_of_a_power_law_is_found_within_its_error():
    rng = np.random.default_rng(1)
    deviations = []
    for _ in range(40):
        tail = power_law_tail(rng.pareto(1.5, 400) + 1)
        deviations.append((tail.alpha - 2.5) / tail.error)
    # The choice of x_min widens the spread beyond one standard error: half as much again is allowed.
    assert abs(np.mean(deviations)) < 4 * 1.5 / np.sqrt(40)
    assert np.std(deviations) < 1.5 * (1 + 4 / np.sqrt(80))


def test_scaling_the_eigenvalues_scales_x_min_alone():
    x = samples()["lognormal"]
    tail, other = power_law_tail(x), power_law_tail(1e-9 * x)
    assert (other.alpha, other.x_min, other.size) == pytest.approx((tail.alpha, 1e-9 * tail.x_min, tail.size))


def test_hill_is_its_formula():
    x = np.sort(samples()["power law"])[::-1]
    k = x.size // 2
    assert hill(x) == pytest.approx(1 + k / sum(np.log(x[i] / x[k]) for i in range(k)))
    assert hill([1.0]) is None


def test_zeros_are_left_out_and_bad_values_are_refused():
    x = samples()["power law"]
    assert power_law_tail(np.append(x, np.zeros(5))) == power_law_tail(x)
    assert power_law_tail([1.0, 2.0, 2.0, 3.0]) is None
    with pytest.raises(InputError, match="squared singular values"):
        power_law_tail([-1.0, 1.0, 2.0, 3.0, 4.0])


def test_a_search_with_an_answer_in_mind_gives_the_same_answer():
    rng = np.random.default_rng(2)
    y = np.sort(rng.exponential(size=(60, 50)), axis=1)
    distance = least_distance(y)[2]
    level = float(np.median(distance))
    assert ((least_distance(y, enough=level)[2] >= level) == (distance >= level)).all()


def test_goodness_of_fit_is_calibrated_and_sees_what_is_no_power_law():
    rng = np.random.default_rng(4)
    trials = 60
    p_values = []
    for trial in range(trials):
        x = rng.pareto(1.5, 80) + 1
        p_values.append(goodness_of_fit(x, power_law_tail(x), seed=trial, draws=60))
    # Below 0.1 in a tenth of the trials: no more than a binomial variable has but once in a thousand.
    assert np.sum(np.array(p_values) <= 0.1) <= stats.binom.ppf(0.999, trials, 0.1)
    assert np.mean(p_values) > 0.3
    bulk = np.linalg.svd(rng.standard_normal((300, 400)), compute_uv=False) ** 2
    whole = power_law_tail(bulk)
    assert goodness_of_fit(bulk, whole) == goodness_of_fit(bulk, whole)
    assert goodness_of_fit(bulk, whole) < 0.1


def plain_bootstrap(x, tail, rng, draws):
    """The semi-parametric bootstrap as Clauset et al. (2009) word it, one value at a time."""
    body = x[x < tail.x_min]
    further = 0
    for _ in range(draws):
        in_tail = rng.binomial(x.size, tail.size / x.size)
        synthetic = np.concatenate(
            [tail.x_min * (rng.pareto(tail.alpha - 1, in_tail) + 1), rng.choice(body, x.size - in_tail)]
        )
        further += plain(synthetic)[2] >= tail.ks
    return further / draws


@pytest.mark.slow
def test_goodness_of_fit_is_that_of_a_plain_bootstrap():
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.pareto(1.5, 12) + 1, rng.uniform(0.2, 1.0, 24)])
    tail = power_law_tail(x)
    draws = 300
    peer = plain_bootstrap(x, tail, rng, draws)
    ours = goodness_of_fit(x, tail, draws=2000)
    assert 0.05 < peer < 0.95
    assert ours == pytest.approx(peer, abs=4 * np.sqrt(peer * (1 - peer) * (1 / draws + 1 / 2000)))


def test_lognormal_is_the_maximum_of_its_likelihood():
    rng = np.random.default_rng(5)
    x = np.exp(rng.standard_normal(300))
    tail = power_law_tail(x)
    fit = lognormal_tail(x, tail)
    logs, start = np.log(x[x >= tail.x_min]), np.log(tail.x_min)

    def negative(parameters):
        mu, sigma = parameters
        normal = stats.norm(mu, sigma)
        return -(normal.logpdf(logs) - normal.logsf(start)).sum()

    best = minimize(
        negative, [fit.mu, fit.sigma], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    )
    assert (fit.mu, fit.sigma) == pytest.approx(best.x, rel=1e-5)
    assert fit.log_likelihood == pytest.approx(-(best.fun + logs.sum()) / logs.size, rel=1e-9)
    step = 1e-3 * np.array([fit.mu_error, fit.sigma_error])
    at = np.array([fit.mu, fit.sigma])
    information = np.empty((2, 2))
    for i in range(2):
        for j in range(2):
            e, f = np.eye(2)[i] * step, np.eye(2)[j] * step
            corners = (
                negative(at + e + f) - negative(at + e - f) - negative(at - e + f) + negative(at - e - f)
            )
            information[i, j] = corners / (4 * step[i] * step[j])
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    assert (fit.mu_error, fit.sigma_error) == pytest.approx(errors, rel=1e-3)
    above = stats.norm(fit.mu, fit.sigma).sf(logs) / stats.norm(fit.mu, fit.sigma).sf(start)
    assert fit.ks == pytest.approx(stats.kstest(1 - above, "uniform").statistic, rel=1e-9)


def test_a_lognormal_is_not_better_on_a_power_law():
    x = samples(200)["power law"]
    assert not lognormal_tail(x, power_law_tail(x)).better


@pytest.mark.parametrize("name", ["Gaussian matrix", "lognormal"])
def test_likelihood_ratio_is_that_of_the_package_powerlaw(name):
    powerlaw = pytest.importorskip("powerlaw")
    x = samples(200)[name]
    tail = power_law_tail(x)
    ours = lognormal_tail(x, tail)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranges = {"alpha": [1.0, None], "mu": [None, None], "sigma": [1e-9, None]}
        peer = powerlaw.Fit(x, xmin=tail.x_min, verbose=0, parameter_ranges=ranges)
        ratio, p_value = peer.distribution_compare("power_law", "lognormal")
    # The peer's lognormal comes from a simplex search stopped at 1e-4: it can only be less likely than ours.
    assert ours.ratio <= ratio + 1e-9 * abs(ratio)
    assert ours.ratio == pytest.approx(ratio, abs=0.02)
    assert ours.p_value == pytest.approx(p_value, abs=0.02)


def test_the_normal_distribution_function_agrees_with_scipy() -> None:
    places = np.concatenate([np.linspace(-110.0, 8.0, 2001), np.linspace(-20.1, -19.9, 21)])
    logs = np.array([log_normal_cdf(z) for z in places.tolist()])
    assert np.allclose(logs, special.log_ndtr(places), rtol=2e-14, atol=0)
