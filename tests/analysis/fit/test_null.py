"""The finite-size null: its draws against formed matrices, its p-values against their promise."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from attnlaw.analysis.fit import null as null_module
from attnlaw.analysis.fit.null import (
    Null,
    NullPreparer,
    Rejections,
    _beta_binomial,
    false_alarms,
    null_of_shape,
    null_shape,
    null_test,
)
from attnlaw.analysis.fit.null_draws import draw_matrices, draw_products
from attnlaw.spectra import matrix_spectrum, product_spectrum
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.laws.head_null import HeadNull
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur


def gaussian_head(rng, rows, cols, inner):
    product = rng.standard_normal((rows, inner)) @ rng.standard_normal((inner, cols))
    return np.linalg.svd(product, compute_uv=False)[: min(rows, inner, cols)]


def gaussian_matrix(rng, rows, cols):
    return np.linalg.svd(rng.standard_normal((rows, cols)), compute_uv=False)


@pytest.mark.parametrize("inner", [None, 6, 17, 30])
def test_draws_are_those_of_formed_matrices(inner):
    rng = np.random.default_rng(0)
    rows, cols, count = 14, 20, 1500
    if inner is None:
        short = draw_matrices(rows, cols, count, rng).values
        formed = np.array([gaussian_matrix(rng, rows, cols) for _ in range(count)])
    else:
        short = draw_products(rows, cols, inner, count, rng).values
        formed = np.array([gaussian_head(rng, rows, cols, inner) for _ in range(count)])
    formed /= np.sqrt(np.mean(formed**2, axis=1, keepdims=True))
    error = np.sqrt((short.var(axis=0) + formed.var(axis=0)) / count)
    assert (np.abs(short.mean(axis=0) - formed.mean(axis=0)) < 4.5 * error).all()
    # The variance of n draws of nearly normal values has relative error sqrt(2/n).
    assert short.var(axis=0) == pytest.approx(formed.var(axis=0), rel=5 * np.sqrt(4 / count))


def test_p_values_are_ranks_whatever_the_size():
    rng = np.random.default_rng(1)
    trials, draws = 600, 19
    p_values = np.empty(trials)
    for trial in range(trials):
        values = rng.standard_normal((2, 12, 4))
        spectrum = np.linalg.svd(values[0] @ values[1].T, compute_uv=False)[:4]
        p_values[trial] = null_of_shape(12, 12, 4, draws=draws, seed=trial).compare(7.0 * spectrum).p_value
    ranks = np.round(p_values * (draws + 1)).astype(int)
    assert p_values * (draws + 1) == pytest.approx(ranks)
    counts = np.bincount(ranks, minlength=draws + 2)[1:]
    assert stats.chisquare(counts).pvalue > 0.001


def test_false_alarms_of_fresh_matrices_are_nominal():
    rng = np.random.default_rng(2)
    seeds, spectra, alarms, beyond = 10, 60, 0, 0
    for seed in range(seeds):
        for inner in (None, 8):
            null = null_of_shape(16, 24, inner, seed=seed)
            for _ in range(spectra):
                values = gaussian_matrix(rng, 16, 24) if inner is None else gaussian_head(rng, 16, 24, inner)
                seen = null.compare(values)
                alarms += seen.p_value <= 0.01
                beyond += seen.outliers > 0
    chances = false_alarms([(spectra, 200)] * (2 * seeds))
    assert chances @ np.arange(chances.size) == pytest.approx(2 * seeds * spectra * 2 / 201)
    most = int(np.searchsorted(chances.cumsum(), 0.999))
    assert alarms <= most
    assert beyond <= most


def test_false_alarms_have_the_distribution_of_a_simulation():
    rng = np.random.default_rng(3)
    rounds, spectra, draws = 20_000, 30, 99
    edge = np.sort(rng.random((rounds, draws)), axis=1)[:, -5]  # level 0.05: the fifth largest draw
    counts = (rng.random((rounds, spectra)) > edge[:, None]).sum(axis=1)
    chances = false_alarms([(spectra, draws)], level=0.05)
    expected = chances[:8] * rounds
    observed = np.bincount(counts, minlength=8)[:8]
    assert (np.abs(observed - expected) < 4.5 * np.sqrt(expected)).all()


@pytest.mark.parametrize(("n", "a", "b"), [(0, 1, 100), (7, 2, 199), (300, 1, 100)])
def test_chances_are_those_of_scipy(n, a, b):
    assert _beta_binomial(n, a, b) == pytest.approx(stats.betabinom.pmf(np.arange(n + 1), n, a, b), rel=1e-12)


def test_rejections_by_hand():
    """Two shapes: of 3 spectra with 99 draws and 1 with 200; one without a test does not count."""
    tests = [(0.01, "a", 99), (0.5, "a", 99), (0.02, "a", 99), (0.005, "b", 200), (None, None, None)]
    rejections = Rejections.count(tests)
    assert (rejections.tested, rejections.rejected) == (4, 2)
    assert rejections.expected == pytest.approx(3 / 100 + 2 / 201)
    assert rejections.p_value == pytest.approx(false_alarms([(3, 99), (1, 200)])[2:].sum())


def test_the_null_of_a_spectrum_is_that_of_its_shape():
    rng = np.random.default_rng(0)
    thin = rng.standard_normal((40, 6)), rng.standard_normal((6, 30))
    head, matrix = product_spectrum(*thin), matrix_spectrum(thin[0] @ thin[1] + rng.standard_normal((40, 30)))
    assert (null_test(head).shape, null_test(matrix).shape) == ("30 x 40 through 6", "30 x 40")
    expected = null_of_shape(40, 30, 6).compare(head.values)
    assert (null_test(head).p_value, null_test(head).outliers) == (expected.p_value, expected.outliers)
    assert null_test(replace(head, latent=True)) is None
    assert null_test(replace(head, route="lanczos")) is None
    assert null_test(product_spectrum(thin[0][:, :1], thin[1][:1])) is None  # one value


def test_a_planted_spike_is_one_outlier_and_leaves_the_scale_alone():
    rng = np.random.default_rng(4)
    matrix = 0.3 * rng.standard_normal((60, 90))
    left, right = rng.standard_normal(60), rng.standard_normal(90)
    null = null_of_shape(60, 90)
    before = null.compare(np.linalg.svd(matrix, compute_uv=False))
    spike = 12.0 * np.outer(left / np.linalg.norm(left), right / np.linalg.norm(right))
    after = null.compare(np.linalg.svd(matrix + spike, compute_uv=False))
    assert (before.outliers, after.outliers) == (0, 1)
    assert before.p_value > 0.01 >= after.p_value
    # One value moves up by rank, the others interlace: the middle half moves by less than one spacing in 60.
    assert after.scale == pytest.approx(before.scale, rel=1 / 30)


def test_scale_is_the_standard_deviation_of_the_entries():
    rng = np.random.default_rng(5)
    null = null_of_shape(80, 120)
    seen = null.compare(np.linalg.svd(0.02 * rng.standard_normal((80, 120)), compute_uv=False))
    assert seen.scale == pytest.approx(0.02 * np.sqrt(120), rel=5 * null.scale_deviation)


def test_edge_scale_is_that_of_tracy_and_widom():
    p, n = 100, 200
    null = null_of_shape(p, n, draws=1500)
    # Johnstone (2001), centred as by Ma (2012), for eigenvalues; a square root halves the relative scale.
    high, low = np.sqrt(n - 0.5), np.sqrt(p - 0.5)
    top = (high + low) ** 2
    scale = (high + low) * (1 / high + 1 / low) ** (1 / 3)
    expected = scale / (2 * np.sqrt(top)) / np.sqrt(n)
    edge_scale = null.edge_scale
    # Relative error 1/sqrt(2 draws) of a deviation, and p^(-2/3) of the limit.
    assert edge_scale == pytest.approx(expected, rel=4 / np.sqrt(3000) + p ** (-2 / 3))


def test_null_tends_to_its_limiting_laws():
    levels = (np.arange(64) + 0.5) / 64
    for null, law in (
        (null_of_shape(256, 256, 64), HeadNull(0.25)),
        (null_of_shape(64, 256, 256), HeadNull(0.25)),
        (null_of_shape(64, 256), MarchenkoPastur(4.0, scale=0.5)),
    ):
        # Values of a spectrum of n sit within about 1/n of the limit's quantiles, more at the edge.
        assert np.abs(null.mean[::-1] - np.sqrt(law.quantile(levels))).mean() < 1 / 64


def test_curve_is_a_density():
    for null in (null_of_shape(64, 64, 16), null_of_shape(40, 60)):
        x, density = null.curve
        assert x.size <= 64
        # Bins of 1/64 of the range smooth by 1/100: a trapezoid of 64 points is right to a few parts in 1000.
        assert np.trapezoid(density, x) == pytest.approx(1.0, abs=0.01)
        assert np.trapezoid(density * x**2, x) == pytest.approx(1.0, abs=0.02)


def test_spectra_without_size_have_no_p_value():
    assert null_of_shape(8, 8, 4).compare(np.zeros(4)).p_value is None
    assert null_of_shape(8, 8, 4).compare(np.zeros(4)).outliers is None
    assert null_of_shape(8, 8, 1).compare(np.ones(1)).p_value is None
    assert null_of_shape(8, 8, 4).compare([1e200, 1e200, 0.0, 0.0]).p_value == pytest.approx(1 / 201)


def test_zeros_in_the_middle_half_leave_no_scale():
    null = null_of_shape(32, 32, 8)
    for rank, outliers in ((2, None), (5, None), (6, 0), (8, 0)):  # the middle half: the third to the sixth
        seen = null.compare(np.where(np.arange(8) < rank, 3.0 * null.mean, 0.0))
        assert seen.outliers == outliers
        assert [number is None for number in (seen.scale, seen.edge)] == [rank < 6] * 2
        if rank >= 6:
            assert seen.scale == pytest.approx(3.0)
        assert seen.p_value == pytest.approx(1 / 201) or rank == 8  # the null has full rank


def test_a_null_is_drawn_once_and_by_its_seed():
    assert null_of_shape(10, 12) is null_of_shape(12, 10)
    assert null_of_shape(10, 12, seed=1).draws[0, 0] != null_of_shape(10, 12).draws[0, 0]
    assert isinstance(null_of_shape(2000, 2100, 4), Null)


@pytest.mark.parametrize(("shape", "inner"), [((96, 160), None), ((128, 128), 32), ((128, 96), 32)])
def test_the_curve_is_the_density_of_the_draws(shape, inner):
    """The limit's mass below each decile of the draws, within what the finite size shifts it (about 1/n)."""
    null = null_of_shape(*shape, inner=inner)
    x, density = null.curve
    steps = 0.5 * (density[1:] + density[:-1]) * np.diff(x)
    mass = np.concatenate([[0.0], np.cumsum(steps)])
    assert mass[-1] == pytest.approx(1.0, abs=2e-3)  # trapezium over 64 points
    levels = np.linspace(0.1, 0.9, 9)
    assert np.interp(np.quantile(null.draws, levels), x, mass) == pytest.approx(levels, abs=1.5 / null.size)


def test_the_null_of_each_shape_is_drawn_once(monkeypatch):
    drawn = []
    monkeypatch.setattr(null_module, "null_test", lambda spectrum: drawn.append(null_shape(spectrum)))
    seen = NullPreparer()
    for shape in ((8, 4), (4, 8), (8, 8)):
        seen(Spectrum(np.ones(4), shape, 1.0, 1.0, "svd"))
    seen(Spectrum(np.ones(4), (9, 4), 1.0, 1.0, "lanczos"))
    assert drawn == ["4 x 8", "8 x 8"]
