"""Counts of values on a grid against the values themselves."""

import numpy as np
import pytest
import scipy
from scipy import stats

from attnlaw.analysis.fit import null_draws
from attnlaw.analysis.fit.null import Null, null_of_shape
from attnlaw.analysis.fit.null_draws import CountedSpectra, DrawnSpectra, draw_matrices, middle_half
from attnlaw.numerics.symmetric import count_eigenvalues_below


def counted(low, high, draws, seed=0):
    sample = draw_matrices(low, high, draws, np.random.default_rng(seed))
    assert isinstance(sample, CountedSpectra)
    return sample


def gaussian_values(rng, rows, cols):
    return np.linalg.svd(rng.standard_normal((rows, cols)), compute_uv=False)


@pytest.mark.parametrize("size", [2, 101, 230])  # below, at and beyond the rows that are added up at a time
def test_counts_are_those_of_eigenvalues(size):
    rng = np.random.default_rng(size)
    diagonal, off = rng.standard_normal((3, size)), rng.standard_normal((3, size - 1))
    points = np.linspace(-4, 4, 97)
    values = [scipy.linalg.eigvalsh_tridiagonal(*pair) for pair in zip(diagonal, off, strict=True)]
    expected = [np.searchsorted(found, points) for found in values]
    assert (count_eigenvalues_below(diagonal, off, points) == expected).all()


def test_a_zero_pivot_is_counted_once():
    # Eigenvalues -1 and 1: the first pivot is 0 at x = 0.
    assert count_eigenvalues_below(
        np.zeros((1, 2)), np.ones((1, 1)), np.array([-2.0, 0.0, 2.0])
    ).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(("low", "high"), [(130, 130), (160, 400), (300, 330)])
def test_counted_draws_are_those_of_their_values(low, high):
    sample = counted(low, high, 60)
    exact = DrawnSpectra(sample.values)
    assert np.sqrt(np.mean(exact.values**2, axis=1)) == pytest.approx(1.0, rel=1e-12)
    assert sample.values[:, 0] == pytest.approx([sample._top(draw) for draw in range(60)], rel=1e-12)
    # The sum takes each count for its cell: a count is off by less than 1/12^(1/2) within a cell, and cells
    # are independent.
    step = np.diff(sample.grid).min()
    error = step * np.sqrt(null_draws.POINTS / 12)
    assert np.abs(sample.middle_sums - exact.middle_sums).max() < 4 * error
    # The draws that may be the edge have the precision of their values.
    for level in (0.1, 0.5, 0.9, 0.99):
        assert sample.relative_edge(level) == pytest.approx(exact.relative_edge(level), rel=1e-12)


def test_scale_and_edge_are_those_of_all_values():
    rng = np.random.default_rng(3)
    sample = counted(200, 260, 200)
    null, exact = Null(sample, None), Null(DrawnSpectra(sample.values), None)
    for factor in (0.02, 5.0):
        values = factor * gaussian_values(rng, 200, 260)
        seen, expected = null.compare(values), exact.compare(values)
        assert seen.edge == pytest.approx(expected.edge, rel=1e-12)
        assert seen.scale == pytest.approx(expected.scale, rel=1e-4)
        assert seen.outliers == expected.outliers


def test_the_distance_is_the_integral_between_two_step_functions():
    rng = np.random.default_rng(4)
    sample = counted(150, 300, 20)
    values = gaussian_values(rng, 150, 300)
    values[0] *= 3  # far beyond the grid's even part
    values /= np.sqrt(np.mean(values**2))
    _, distance = sample.distances(values)
    x = np.linspace(0, sample.grid[-1], 400_001)
    steps = np.array([np.searchsorted(drawn[::-1], x) for drawn in (*sample.values, values)])
    gaps = np.abs(steps[-1] - steps.mean(axis=0))
    # The sum over the grid is off by up to half a step where the outer part of the grid is coarse.
    coarse = np.diff(sample.grid)[np.searchsorted(sample.grid, values[0]) - 1]
    assert distance == pytest.approx(np.trapezoid(gaps, x), abs=coarse)


def test_only_few_draws_need_all_their_values(monkeypatch):
    sample, computed = counted(768, 3072, 100), []
    exact = CountedSpectra._exact_values
    monkeypatch.setattr(
        CountedSpectra, "_exact_values", lambda self, draw: computed.append(draw) or exact(self, draw)
    )
    edge = sample.relative_edge(0.99)
    assert 1 <= len(computed) <= 10
    assert edge == DrawnSpectra(sample.values).relative_edge(0.99)


def test_the_edge_scale_of_large_matrices_is_that_of_all_values():
    """It is the spread of tops in units of scales, which a grid does not resolve."""
    null = null_of_shape(1100, 1300, draws=30)
    tops, sums = null.sample.values[:, 0], null.sample.values[:, middle_half(1100)].sum(axis=1)
    expected = np.std(tops / sums * sums.mean(), ddof=1) / 1.268
    assert null.edge_scale == pytest.approx(expected, rel=1e-9)


def test_p_values_of_counts_are_ranks(monkeypatch):
    """p-values of Gaussian matrices, each with draws of its own, are uniform on their 20 levels."""
    monkeypatch.setattr(null_draws, "SMALL", 0)
    rng = np.random.default_rng(5)
    trials, draws = 600, 19
    ranks = np.empty(trials, dtype=int)
    for trial in range(trials):
        null = null_of_shape(10, 15, draws=draws, seed=10_000 + trial)
        assert isinstance(null.sample, CountedSpectra)
        ranks[trial] = round(null.compare(gaussian_values(rng, 10, 15)).p_value * (draws + 1))
    counts = np.bincount(ranks, minlength=draws + 2)[1:]
    assert stats.chisquare(counts).pvalue > 0.001
