"""Growth exponents against scipy's regression, made data with known noise, and counts of ranks."""

import numpy as np
import pytest
from scipy.stats import linregress

from attnlaw.core.errors import InputError
from attnlaw.theory.bounds.proxy_growth import growth

DEPTH, WIDTH, SEED = (part.ravel() for part in np.meshgrid([2, 4, 8], [64, 256, 1024], [0, 1]))


def test_on_a_full_grid_each_exponent_is_a_simple_regression():
    """Depth and width are uncorrelated on a grid, so slopes are those of one variable at a time."""
    rng = np.random.default_rng(0)
    y = 1.5 * np.log10(DEPTH) + 0.7 * np.log10(WIDTH) + 0.1 * rng.standard_normal(18)
    fit = growth(DEPTH, WIDTH, y)
    assert fit.depth == pytest.approx(linregress(np.log10(DEPTH), y).slope, rel=1e-12)
    assert fit.width == pytest.approx(linregress(np.log10(WIDTH), y).slope, rel=1e-12)
    for error, variable in ((fit.depth_error, DEPTH), (fit.width_error, WIDTH)):
        assert error == pytest.approx(fit.residual / np.sqrt(18) / np.std(np.log10(variable)), rel=1e-12)


@pytest.mark.slow
def test_standard_errors_are_the_spread_of_the_exponents_over_repetitions():
    """Over 2000 draws; the standard error of an estimated standard deviation is then 1.6 %."""
    rng = np.random.default_rng(1)
    fits = [growth(DEPTH, WIDTH, 0.2 * rng.standard_normal(18)) for _ in range(2000)]
    for name in ("depth", "width"):
        claimed = np.sqrt(np.mean([getattr(fit, f"{name}_error") ** 2 for fit in fits]))
        seen = np.std([getattr(fit, name) for fit in fits])
        assert claimed == pytest.approx(seen, rel=4 * 0.016 * np.sqrt(1 + 1 / 15))
    residual = np.sqrt(np.mean([fit.residual**2 for fit in fits]))
    spread = np.sqrt(np.mean([fit.seed_spread**2 for fit in fits]))
    assert residual == pytest.approx(0.2, rel=4 / np.sqrt(2 * 2000 * 15))
    assert spread == pytest.approx(0.2, rel=4 / np.sqrt(2 * 2000 * 9))


def test_misfit_is_in_the_residual_and_not_in_the_seed_spread():
    curved = np.log10(DEPTH) ** 2
    fit = growth(DEPTH, WIDTH, curved)
    assert fit.seed_spread == pytest.approx(0, abs=1e-12)
    assert fit.residual > 0.01


def test_without_repetitions_or_freedom_errors_are_missing():
    once = growth([2, 4, 2], [8, 8, 16], [0.0, 1.0, 2.0])
    assert (once.depth_error, once.width_error, once.residual, once.seed_spread) == (None,) * 4
    assert (once.depth, once.width) == pytest.approx((1 / np.log10(2), 2 / np.log10(2)))


@pytest.mark.parametrize(
    ("depth", "width", "message"),
    [
        ([2, 4], [8, 16], "three or more models.*found 2"),
        ([2, 2, 2], [8, 8, 8], "same depth and width"),
        ([2, 4, 8, 8], [16, 32, 64, 64], "depth and width grow together"),
    ],
)
def test_sizes_that_determine_nothing_are_refused(depth, width, message):
    with pytest.raises(InputError, match=message):
        growth(depth, width, np.zeros(len(depth)))


def test_one_size_alone_is_enough_for_its_exponent():
    """At equal width: the exponent of depth is a simple regression, and there is none of width."""
    rng = np.random.default_rng(2)
    L, y = np.repeat([1, 3, 9], 2), rng.standard_normal(6)
    by_scipy = linregress(np.log10(L), y)
    fit = growth(L, np.full(6, 64), y)
    assert (fit.depth, fit.depth_error) == pytest.approx((by_scipy.slope, by_scipy.stderr), rel=1e-12)
    assert (fit.width, fit.width_error) == (None, None)
    turned = growth(np.full(6, 64), L, y)
    assert (turned.width, turned.width_error) == pytest.approx((fit.depth, fit.depth_error), rel=1e-12)
    assert (turned.depth, turned.exponential) == (None, None)


def test_an_exponential_is_told_from_a_power():
    rng = np.random.default_rng(3)
    noise = 0.05 * rng.standard_normal(18)
    assert growth(DEPTH, WIDTH, 2.0 * DEPTH + np.log10(WIDTH) + noise).exponential
    assert growth(DEPTH, WIDTH, 2.0 * np.log10(DEPTH) + np.log10(WIDTH) + noise).exponential is False
    two = DEPTH < 8  # two depths fit both
    assert growth(DEPTH[two], WIDTH[two], noise[two]).exponential is None


def test_a_count_of_full_ranks_has_the_exponents_of_arithmetic():
    """All p = 0 and heads of size 32: L (2 (N/32) sqrt(32 N) + 2 N) + sqrt(L), between N and N^1.5."""
    count = DEPTH * (2 * WIDTH / 32 * np.sqrt(32 * WIDTH) + 2 * WIDTH) + np.sqrt(DEPTH)
    fit = growth(DEPTH, WIDTH, np.log10(count))
    assert fit.depth == pytest.approx(1, abs=0.01)
    assert 1 < fit.width < 1.5
