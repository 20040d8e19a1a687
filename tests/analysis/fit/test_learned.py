"""The learned-spectrum law: tables against the laws themselves, fits against draws of the theory."""

from dataclasses import replace

import numpy as np
import pytest
from analysis.fit.blurred import blurred
from scipy import stats

from attnlaw.analysis.fit.learned import angle_tables, fit_learned
from attnlaw.theory.laws.free_convolution import FreeConvolution
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.symmetric_product import SymmetricProduct
from attnlaw.theory.laws.transformed import Folded
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.state_evolution import state_evolution
from attnlaw.theory.learn.target import Target


def trained(rng, size, target_rank, noise, threshold):
    """Positive eigenvalues of (S* + noise Z - threshold)_+, S* of the given rank."""
    m = round(target_rank * size)
    factor = rng.standard_normal((size, m))
    blur = rng.standard_normal((size, size))
    seen = factor @ factor.T / np.sqrt(m * size) + noise * (blur + blur.T) / np.sqrt(2 * size)
    values = np.linalg.eigvalsh(seen)
    return values[values > threshold] - (threshold if np.isfinite(threshold) else 0.0)


@pytest.mark.parametrize(("rank_ratio", "noise"), [(0.1, 0.3), (0.25, 1.0), (2.0, 0.5)])
def test_tables_are_the_blurred_laws(rank_ratio, noise):
    law = FreeConvolution(MarchenkoPastur(rank_ratio), noise)
    (table,) = angle_tables(MarchenkoPastur(rank_ratio), np.array([noise]))
    p = np.linspace(0.02, 0.98, 25)
    x = law.quantile(p)
    width = x[-1] - x[0]
    # Linear between 64 angles or more: (pi/64)^2/8 = 3e-4 of the range.
    assert table.quantile(p) == pytest.approx(x, abs=1e-3 * width)
    assert table.cdf(x) == pytest.approx(law.cdf(x), abs=5e-4)
    assert table.density(x) == pytest.approx(law.density(x), rel=5e-3)
    assert (table.density(np.array([-99.0, 99.0])) == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "target_rank", "noise", "threshold"),
    [(256, 0.25, 0.3, 0.55), (200, 0.5, 0.5, 1.5), (256, 0.25, 1.5, 2.0), (300, 0.1, 0.5, 1.2)],
)
def test_spectra_drawn_from_the_theory_are_plausible_and_their_parameters_inside_the_ranges(
    size, target_rank, noise, threshold
):
    rng = np.random.default_rng(size)
    trials = 20
    fits = [fit_learned(trained(rng, size, target_rank, noise, threshold), size) for _ in range(trials)]
    # Nine in ten are promised; fewer than this many come once in a thousand.
    enough = stats.binom.ppf(0.001, trials, 0.9)
    assert sum(fit.plausible for fit in fits) >= enough
    for name, true in (("noise_level", noise), ("threshold", threshold), ("target_rank", target_rank)):
        parameters = [getattr(fit, name) for fit in fits if fit.plausible]
        assert sum(parameter.low <= true <= parameter.high for parameter in parameters) >= enough
        for parameter in parameters:
            if parameter.value is not None:
                assert parameter.low <= parameter.value <= parameter.high <= 3 * parameter.low


@pytest.mark.parametrize(
    ("size", "k", "target_rank", "noise"),
    [(64, 8, 0.3, 0.5), (64, 32, 0.11, 0.3), (256, 64, 0.16, 0.25), (192, 96, 0.11, 0.6)],
)
def test_nearly_all_spectra_of_the_theory_fit_at_any_size(size, k, target_rank, noise):
    """Parameters between those of the grid; k values kept of every draw, few of them large."""
    rng = np.random.default_rng(k)
    trials, near = 20, 0
    for _ in range(trials):
        values = trained(rng, size, target_rank, noise, -np.inf)
        near += fit_learned(values[-k:] - 0.5 * (values[-k] + values[-k - 1]), size).plausible
    # 98% are promised; fewer than this many come once in a thousand.
    assert near >= stats.binom.ppf(0.001, trials, 0.98)


def test_simple_spectra_that_the_theory_cannot_give_do_not_fit():
    """A geometric series from 1 to 3 no longer: with b below t it is as near as the theory's own spectra."""
    k, size = 32, 256
    i = np.arange(1, k + 1)
    others = [
        k + 1.0 - i,
        1.0 / i,
        np.where(i > k // 2, 1.0, 3.0),
        np.linspace(0.5, 2, k),
    ]
    assert not any(fit_learned(values, size).plausible for values in others)
    assert not fit_learned(np.geomspace(1, 3, k), size, limited=False).plausible


def test_state_evolution_and_the_fit_speak_of_the_same_law():
    problem = Problem(alpha=0.3, noise=0.5, weight_decay=0.6, target=Target.marchenko_pastur(0.5))
    prediction = state_evolution(problem)
    size = 300
    k = round(prediction.rank_fraction.value * size)
    levels = 1 - prediction.rank_fraction.value * (np.arange(k) + 0.5) / k
    fit = fit_learned(prediction.spectrum.quantile(levels), size)
    assert fit.plausible
    assert fit.noise_level.low <= prediction.noise_level.value <= fit.noise_level.high
    assert fit.threshold.low <= prediction.threshold.value <= fit.threshold.high
    assert fit.target_rank.low <= 0.5 <= fit.target_rank.high
    assert fit.rank_fraction == pytest.approx(prediction.rank_fraction.value, abs=1 / size)


def test_a_threshold_in_a_wide_gap_is_identified_and_scales_with_the_matrix():
    values = trained(np.random.default_rng(2), 512, 0.1, 0.5, 1.2)
    fit, other = (fit_learned(factor * values, 512, limited=False) for factor in (1.0, 0.01))
    # Within the range, a factor of 1.1 to either side.
    assert fit.threshold.value == pytest.approx(1.2, rel=0.15)
    assert other.threshold.value == pytest.approx(0.01 * fit.threshold.value)
    assert other.scale.value == pytest.approx(0.01 * fit.scale.value)
    assert other.distance == pytest.approx(fit.distance)
    # Every law with such a gap has as many values above it as the target has directions.
    assert fit.target_rank.value == pytest.approx(0.1, rel=0.01)
    # Hidden: it moves the edges of the bulk by less than their fluctuations.
    assert fit.noise_level.value is None


def test_a_target_rank_that_two_laws_differ_in_is_not_identified():
    """Two laws of the theory whose ranks differ by a factor of four, and one spectrum that both fit."""
    values = trained(np.random.default_rng(200), 200, 0.5, 0.5, 1.5)
    fit = fit_learned(values, 200)
    assert fit.plausible
    for target_rank in (0.25, 1.0):
        distances = [law_distance(values, 200, target_rank, noise) for noise in (0.25, 0.35, 0.5, 0.7, 1.0)]
        assert min(distances) <= np.sqrt(fit.distance**2 + (1.5 / values.size) ** 2)
        assert fit.target_rank.low <= target_rank <= fit.target_rank.high
    assert fit.target_rank.value is None


def law_distance(values, size, target_rank, noise):
    """Relative distance of the values to the quantiles of one law, cut at their number, at the best scale."""
    law = FreeConvolution(MarchenkoPastur(target_rank), noise)
    k = values.size
    cut = law.quantile(np.array([1 - k / size]))[0]
    x = law.quantile(1 - (np.arange(k)[::-1] + 0.5) / size) - cut
    return np.sqrt(np.mean((values - x * (x @ values) / (x @ x)) ** 2) / np.mean(values**2))


def test_a_random_head_is_not_cut_by_weight_decay_and_its_parameters_are_withheld():
    """Width alone may leave it: the limited law contains it, and is asked of heads that are not random."""
    rng = np.random.default_rng(2)
    product = rng.standard_normal((256, 64)) @ rng.standard_normal((64, 256))
    values = np.linalg.svd(product, compute_uv=False)[:64]
    fit = fit_learned(values, 256, limited=False)
    assert not fit.plausible
    for parameter in (fit.noise_level, fit.threshold, fit.target_rank, fit.scale, fit.cut_ratio):
        assert (parameter.value, parameter.low, parameter.high) == (None, None, None)
    narrow = fit_learned(values, 256)
    assert narrow.plausible
    assert narrow.cut_ratio.high < 1


def narrow(rng, size, k, target_rank, noise, share, attention):
    """The k largest values of a blurred target, b = share t taken off."""
    x = blurred(rng, size, round(target_rank * size), noise, attention)
    return x[-k:] - share * 0.5 * (x[-k] + x[-k - 1])


@pytest.mark.parametrize("attention", ["tied", "untied"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_what_cut_the_rank_is_inside_its_range(attention, share):
    """Twelve draws at k = 64; 98% are promised to fit, fewer than this many come once in a thousand."""
    rng = np.random.default_rng(round(10 * share))
    fits = [fit_learned(narrow(rng, 256, 64, 0.3, 0.7, share, attention), 256, attention) for _ in range(12)]
    near = [fit for fit in fits if fit.plausible]
    assert len(near) >= stats.binom.ppf(0.001, 12, 0.98)
    # Half a step of the grid of b/t beside the ends.
    assert all(fit.cut_ratio.low - 0.025 <= share <= fit.cut_ratio.high + 0.025 for fit in near)
    assert all(fit.cut_ratio.low <= fit.cut_ratio.value <= fit.cut_ratio.high for fit in near)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["tied", "untied"])
def test_a_wide_student_and_a_narrow_one_are_told_apart(attention):
    """State evolution's own spectra, cut by weight decay at rank .36 (.62) and by a width of a quarter."""
    free = Problem(0.6, noise=0.5, weight_decay=0.9, attention=attention)
    for width, cut in ((None, "decay"), (0.2, "width")):
        prediction = state_evolution(replace(free, width=width))
        size, rank = 300, prediction.rank_fraction.value
        k = round(rank * size)
        values = prediction.spectrum.quantile(1 - rank * (np.arange(k) + 0.5) / k)
        fit = fit_learned(values, size, attention)
        assert fit.plausible
        expected = 1.0 if cut == "decay" else prediction.threshold.value / prediction.cut.value
        assert fit.cut_ratio.low - 0.025 <= expected <= fit.cut_ratio.high + 0.025
        assert fit.law.cut is None or fit.law.cut > fit.law.threshold


@pytest.mark.parametrize(("rank_ratio", "noise"), [(0.1, 0.3), (0.25, 1.0), (2.0, 0.5)])
def test_tables_of_untied_laws_are_those_of_absolute_values(rank_ratio, noise):
    """Away from zero, where the table's first step is, and from the gap at 1 - rank_ratio."""
    law = Folded(FreeConvolution(SymmetricProduct(rank_ratio), noise))
    (table,) = angle_tables(SymmetricProduct(rank_ratio), np.array([noise]))
    p = np.linspace(0.05, 0.97, 25)
    p = p[np.abs(p - (1 - rank_ratio)) > 0.01]
    x = law.quantile(p)
    assert table.quantile(p) == pytest.approx(x, abs=1e-3 * (x[-1] - x[0]))
    assert table.cdf(x) == pytest.approx(law.cdf(x), abs=5e-4)
    assert table.density(x) == pytest.approx(law.density(x), rel=5e-3, abs=1e-3)


def test_density_and_distribution_function_belong_to_the_positive_part():
    values = trained(np.random.default_rng(3), 256, 0.25, 1.5, 2.0)
    fit = fit_learned(values, 256)
    atom = fit.law.mass_of_atoms
    # Two values of the table, each right to 5e-4 as above, over the mass of the positive part.
    error = 2 * 5e-4 / fit.rank_fraction
    assert fit.cdf(values) == pytest.approx((fit.law.cdf(values) - atom) / (1 - atom), abs=error)
    assert fit.density(values) == pytest.approx(fit.law.density(values) / (1 - atom), rel=5e-3, abs=1e-3)


def test_full_rank_and_few_values_have_no_fit():
    assert fit_learned(np.ones(16), 16) is None
    assert fit_learned(np.arange(1.0, 8.0), 64) is None
