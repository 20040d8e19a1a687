"""Distances compared with closed forms for normals, errors with repeated runs, and the paper's estimate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from theory.limit.layer_draws import sample_stack

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.theory.limit.depth import Depth, stack_law
from attnlaw.theory.limit.distance import NOT_RESOLVED, distances, gaussian_kde, kernel_kl
from attnlaw.theory.limit.inputs import RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer, WeightVariances
from attnlaw.theory.limit.limit import density_rows
from attnlaw.theory.limit.mixture import OutputLaw, _kurtosis, gaussian_law, jackknife
from attnlaw.theory.limit.sampler import output_law


@pytest.mark.parametrize("ratio", [0.3, 1.0, 7.0])
def test_centred_normals(ratio):
    distance = distances(gaussian_law(ratio), gaussian_law(1.0))
    assert distance.kl.value == pytest.approx((ratio - 1 - math.log(ratio)) / 2, abs=1e-9)
    assert distance.w1.value == pytest.approx(abs(math.sqrt(ratio) - 1) * math.sqrt(2 / math.pi), abs=1e-6)
    if ratio != 1:
        y = math.sqrt(ratio * math.log(ratio) / (ratio - 1))  # where the densities cross
        gap = abs(stats.norm.cdf(y) - stats.norm.cdf(y / math.sqrt(ratio)))
        assert distance.ks.value == pytest.approx(gap, abs=1e-5)  # 3e-6 times a curvature of order 1
    assert distance.residual < 1e-9
    assert distance.kl.error < 1e-12


@pytest.mark.parametrize("shift", [0.5, -2.0])
def test_shifted_normals(shift):
    distance = distances(gaussian_law(1.0, shift), gaussian_law(1.0))
    assert distance.kl.value == pytest.approx(shift**2 / 2, abs=1e-8)
    assert distance.w1.value == pytest.approx(abs(shift), abs=1e-5)
    assert distance.ks.value == pytest.approx(2 * stats.norm.cdf(abs(shift) / 2) - 1, abs=1e-5)
    assert distance.residual < 1e-8


@pytest.mark.parametrize("shift", [0.5, -1e6])
def test_a_shift_leaves_variance_and_kurtosis(shift):
    law = gaussian_law(2.0, shift)
    assert law.mean().value == shift
    assert law.variance().value == pytest.approx(2.0, rel=1e-12)
    assert law.kurtosis().value == pytest.approx(3.0, rel=1e-12)


@pytest.mark.slow
def test_kurtosis_of_a_law_with_a_mean_is_that_of_its_draws():
    # ReLU tokens have a mean, which a residual hands on: about the mean 3.60, about zero 4.07.
    stack = Depth(AttentionLayer(RandomInputs(2, "relu")), residual=True)
    estimate = stack_law(stack, 50_000, seed=1).law.kurtosis()
    y = sample_stack(stack, 400_000, seed=2).outputs[:, 0, 0]
    z = (y - y.mean()) / y.std()
    kurtosis, skewness = (z**4).mean(), (z**3).mean()
    influence = z**4 - 2 * kurtosis * z**2 - 4 * skewness * z
    error = math.hypot(influence.std() / math.sqrt(len(y)), estimate.error)
    assert estimate.value == pytest.approx(kurtosis, abs=4 * error)
    assert error < 0.05


@pytest.mark.slow
def test_the_mean_of_a_law_is_that_of_its_draws():
    # ReLU tokens have the mean 1/sqrt(2 pi), which a residual hands on.
    law = stack_law(Depth(AttentionLayer(RandomInputs(2, "relu")), residual=True), 50_000, seed=1).law
    mean = law.mean()
    assert mean.value == pytest.approx(1 / math.sqrt(2 * math.pi), abs=4 * mean.error)
    assert mean.error == pytest.approx(law.means.std() / math.sqrt(50_000), rel=0.4)  # of 40 batches
    # Of all Gaussians the one of the same moments is the nearest.
    same = gaussian_law(law.variance().value, mean.value)
    others = (gaussian_law(law.variance().value), gaussian_law(1.2 * law.variance().value, mean.value))
    assert all(distances(law, same).kl.value < distances(law, other).kl.value for other in others)


def test_densities_cover_a_law_with_a_mean():
    laws = {16: gaussian_law(1.0, 100.0), math.inf: gaussian_law(4.0, 101.0)}
    rows = density_rows(laws)
    for width in (16, math.inf):
        y, p = zip(*((row["y"], row["density"]) for row in rows if row["width"] == width), strict=True)
        assert np.trapezoid(p, y) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.slow
def test_a_student_law_against_scipy():
    # Inverse-gamma variances make Student's t with 5 degrees of freedom.
    draws = 200_000
    v = 1 / np.random.default_rng(0).gamma(2.5, 1 / 2.5, draws)
    law = OutputLaw(v, None, np.ones(draws))
    y = np.linspace(-4, 4, 9)
    error = np.exp(law.log_density(y)).std(axis=0) / math.sqrt(40)
    assert (np.abs(law.density(y) - stats.t.pdf(y, 5)) < 5 * error).all()
    distance = distances(law, gaussian_law(5 / 3))
    expected = stats.t.expect(
        lambda x: stats.t.logpdf(x, 5) - stats.norm.logpdf(x, scale=math.sqrt(5 / 3)), (5,)
    )
    assert distance.kl.value == pytest.approx(expected, abs=4 * distance.kl.error)
    grid = np.linspace(-200, 200, 2_000_001)
    gap = np.abs(stats.t.cdf(grid, 5) - stats.norm.cdf(grid, scale=math.sqrt(5 / 3)))
    assert distance.w1.value == pytest.approx(np.trapezoid(gap, grid), abs=4 * distance.w1.error)
    assert distance.ks.value == pytest.approx(gap.max(), abs=4 * distance.ks.error)


@pytest.mark.long
def test_errors_are_the_spread_of_repeated_runs():
    runs = 60
    estimates = []
    for seed in range(runs):
        finite, limit = (
            output_law(AttentionLayer(RandomInputs(4), heads=2, width=n), 4000, seed=seed)
            for n in (32, math.inf)
        )
        d = distances(finite, limit)
        estimates.append((d.kl, d.w1, d.ks, finite.kurtosis(), finite.variance(), finite.score_variance()))
    for column in zip(*estimates, strict=True):
        spread = np.std([estimate.value for estimate in column], ddof=1)
        stated = math.sqrt(np.mean([estimate.error**2 for estimate in column]))
        # chi_59 / sqrt(59) lies in (0.69, 1.34) with probability 1 - 6e-4; 6 columns.
        assert 0.69 < spread / stated < 1.34


@pytest.mark.slow
def test_kl_is_free_of_its_first_order_bias():
    # Two samples of one law: the plain estimate is positive, the corrected one is centred at zero.
    divergences = []
    for seed in range(40):
        first, two = (output_law(AttentionLayer(RandomInputs(4)), 2000, seed=s) for s in (seed, 1000 + seed))
        divergences.append(distances(first, two).kl.value)
    assert abs(np.mean(divergences)) < 4 * np.std(divergences) / math.sqrt(len(divergences))


def test_an_atom_has_no_kl():
    v = np.ones(80)
    v[::2] = 0.0
    distance = distances(OutputLaw(v, None, v), gaussian_law(1.0))
    assert distance.kl is None
    # F - G = +-(1 - Phi)/2 off zero: the supremum is 1/4, the area E|y|/2.
    assert distance.ks.value == pytest.approx(0.25, abs=1e-3)
    assert distance.w1.value == pytest.approx(0.5 * math.sqrt(2 / math.pi), abs=1e-5)
    with pytest.raises(InputError, match="zero in every draw"):
        OutputLaw(np.zeros(80), None, v)


def with_residual(width, **options):
    layers = (AttentionLayer(RandomInputs(3), width=n, **options) for n in (width, math.inf))
    return [stack_law(Depth(layer, residual=True), 4000, seed=0).law for layer in layers]


@pytest.mark.parametrize("value", [1e-3, 1e-6])
def test_normals_too_narrow_for_a_density_have_no_kl(value):
    # Points but for their small deviation: the other two are those of the means.
    law, limit = with_residual(8, variances=WeightVariances(value=value))
    distance = distances(law, limit)
    assert distance.kl is None
    assert distance.residual > 1e-2
    deviation = math.sqrt(max(law.variances.max(), limit.variances.max()))
    w1 = stats.wasserstein_distance(law.means, limit.means)
    assert distance.w1.value == pytest.approx(w1, abs=min(2 * deviation, distance.w1.error))
    ks = stats.ks_2samp(law.means, limit.means).statistic
    assert distance.ks.value == pytest.approx(ks, abs=distance.ks.error)


def test_kl_with_a_residual_against_a_fine_grid():
    law, limit = with_residual(4)
    distance = distances(law, limit)
    assert 1e-9 < distance.residual <= 1e-2
    u = np.arange(math.log(1e-5), math.log(200), 0.02)
    y = np.concatenate([-np.exp(u[::-1]), np.exp(u)])
    log_p, log_q = (np.log(np.maximum(distribution.density(y), 1e-300)) for distribution in (law, limit))
    plain = np.exp(log_p) * (log_p - log_q) @ np.gradient(y)
    # The plain value is not corrected for its bias, which is of the order of the squared error.
    assert distance.kl.value == pytest.approx(plain, abs=2 * distance.kl.error)


def test_moments_about_any_point_give_one_kurtosis():
    # A die: about its mean, and about zero.
    faces = np.arange(1.0, 7.0)
    raw = np.array([(faces**k).mean() for k in (1, 2, 3, 4)])
    centred = np.array([((faces - 3.5) ** k).mean() for k in (1, 2, 3, 4)])
    expected = stats.kurtosis(faces, fisher=False)
    assert (_kurtosis(raw), _kurtosis(centred)) == pytest.approx((expected, expected), rel=1e-12)


def test_a_jackknife_is_no_shortcut_where_the_first_value_is_the_largest():
    values = np.concatenate([[2.0], np.ones(79)])
    estimate = jackknife(lambda mean: float(mean[0]), values[:, None])
    assert estimate.value == pytest.approx(values.mean(), rel=1e-12)
    assert estimate.error > 0


def test_too_few_draws_are_refused():
    with pytest.raises(InputError, match="at least 40"):
        jackknife(lambda mean: float(mean[0]), np.ones((39, 1)))


def test_the_binned_kernel_estimate_is_scipys():
    sample = np.random.default_rng(1).standard_t(4, 3000)
    grid = np.linspace(sample.min(), sample.max(), 500)
    direct = stats.gaussian_kde(sample)(grid)
    # Linear binning at 1/32 of a bandwidth: relative curvature error (1/32)^2 / 6.
    np.testing.assert_allclose(gaussian_kde(sample, grid), direct, atol=2e-4 * direct.max())


@pytest.mark.slow
@pytest.mark.parametrize(("n", "low", "high"), [(16, 0.029, 0.045), (64, 0.0028, 0.0042)])
def test_the_papers_recipe_gives_its_range(n, low, high):
    # Single runs scatter upwards (outliers of one sample meet the floor 1e-12 of the other): compare means.
    divergences = []
    for seed in range(8):
        finite = output_law(AttentionLayer(RandomInputs(4), heads=2, width=n), 50_000, seed=seed)
        limit = output_law(AttentionLayer(RandomInputs(4), heads=2), 50_000, seed=100 + seed)
        divergences.append(kernel_kl(finite.draw(seed), limit.draw(100 + seed)))
    error = np.std(divergences, ddof=1) / math.sqrt(len(divergences))
    assert low - 4 * error <= np.mean(divergences) <= high + 4 * error
    assert np.mean(divergences) > (0.0222 if n == 16 else 0.00213)  # what averages of normals give


def test_equal_values_have_no_kernel_estimate():
    with pytest.raises(InputError, match="varies"):
        gaussian_kde(np.ones(5), np.linspace(0, 1, 5))


def test_laws_with_an_atom_at_zero_have_a_divergence() -> None:
    """A quarter of zeros and N(0, 2), against a half of zeros and N(0, 1), in closed form."""
    ones = np.ones(800)
    law = OutputLaw(np.where(np.arange(800) % 4 == 0, 0.0, 2.0), None, ones)
    reference = OutputLaw(np.where(np.arange(800) % 2 == 0, 0.0, 1.0), None, ones)
    normals = (2 - 1 - math.log(2)) / 2
    expected = 0.25 * math.log(0.25 / 0.5) + 0.75 * (math.log(0.75 / 0.5) + normals)
    result = distances(law, reference)
    assert result.kl is not None
    assert result.kl.value == pytest.approx(expected, abs=1e-8)
    backwards = 0.5 * math.log(0.5 / 0.25) + 0.5 * (math.log(0.5 / 0.75) + (0.5 - 1 + math.log(2)) / 2)
    result = distances(reference, law)
    assert result.kl is not None
    assert result.kl.value == pytest.approx(backwards, abs=1e-8)


def test_an_atom_that_the_reference_lacks_has_no_divergence() -> None:
    ones = np.ones(80)
    law = OutputLaw(np.where(np.arange(80) < 20, 0.0, 1.0), None, ones)
    assert distances(law, OutputLaw(ones, None, ones)).kl is None
    other = distances(OutputLaw(ones, None, ones), law).kl
    assert other is not None
    assert other.value == pytest.approx(math.log(1 / 0.75), rel=0.1)


def test_a_divergence_that_a_few_draws_decide_is_left_out() -> None:
    """Far out, an average of normals is the normal of its largest draw, and log(p/q) is y^2/(2 v) there."""
    rng = np.random.default_rng(0)
    v, w = (np.exp(width * rng.standard_normal(2000)) for width in (20.0, 5.0))
    wide, narrow = (OutputLaw(draws, None, draws) for draws in (v, w))
    distance = distances(wide, narrow)
    assert distance.kl is None
    assert distance.why_no_kl == NOT_RESOLVED
    # A large divergence that every draw has is resolved: N(0, 1e6) from N(0, 1) is known in closed form.
    far = distances(gaussian_law(1e6), gaussian_law(1.0))
    assert far.why_no_kl is None
    assert far.kl.value == pytest.approx((1e6 - 1 - math.log(1e6)) / 2, rel=1e-9)


def test_a_missing_divergence_has_a_remark() -> None:
    for options, words in (
        ({"score": "linear", "depth": 4}, "it depends only on the few draws with the largest"),
        ({"score": "relu", "depth": 3, "residual": True}, "single draws are too narrow to integrate"),
    ):
        row = attnlaw.limit(width=16, draws=1000, **options).row()
        assert row["kl_to_limit"] is None
        assert row["remark"].startswith("there is no KL divergence to the limit: ")
        assert words in row["remark"]
    assert attnlaw.limit(width=16, draws=1000).row()["remark"] is None
