"""Singular values of whole matrices: against the LAPACK SVD, made spectra, mpmath and naive sums."""

import mpmath
import numpy as np
import pytest
from scipy.linalg import svdvals

from attnlaw.spectra import exact, matrix_spectrum
from attnlaw.spectra.exact import GRAM_LIMIT


def with_values(values, rows, cols, seed=0):
    """A matrix with the given singular values up to the round-off of forming it, a few eps."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((rows, len(values))))[0]
    right = np.linalg.qr(rng.standard_normal((cols, len(values))))[0]
    return (left * values) @ right.T


def naive_norms(matrix):
    columns = [np.sqrt(sum(float(x) ** 2 for x in column)) for column in matrix.T]
    return sum(columns), sum(abs(float(x)) for x in matrix.ravel())


def assert_within_the_promise(values, reference):
    """1e-12 s_1 everywhere, 1e-9 of itself above 1e-4 s_1."""
    top = reference[0]
    assert np.max(np.abs(values - reference)) <= 1e-12 * top
    large = reference > 1e-4 * top
    assert np.max(np.abs(values[large] / reference[large] - 1)) <= 1e-9


@pytest.mark.parametrize("shape", [(1, 7), (7, 1), (1, 1), (30, 30), (20, 50), (50, 20)])
def test_all_values_and_norms_of_any_shape(shape):
    matrix = np.random.default_rng(1).standard_normal(shape)
    spectrum = matrix_spectrum(matrix)
    reference = svdvals(matrix)
    assert spectrum.shape == shape
    assert spectrum.values.shape == reference.shape
    assert_within_the_promise(spectrum.values, reference)
    assert (spectrum.norm_21, spectrum.norm_11) == pytest.approx(naive_norms(matrix), rel=1e-13)
    assert matrix_spectrum(matrix.T).values == pytest.approx(spectrum.values, rel=1e-12)
    assert matrix_spectrum(np.asfortranarray(matrix)).norm_11 == pytest.approx(spectrum.norm_11, rel=1e-14)


# Half of the values at s_1 is the hardest for the Gram matrix: its round-off is then the largest.
HARD = {
    "geometric": lambda n, low: np.geomspace(1, low, n),
    "half_at_the_top": lambda n, low: np.r_[np.ones(n // 2), np.full(n - n // 2, low)],
    "few_below": lambda n, low: np.r_[np.ones(n - 3), np.full(3, low)],
    "one_above": lambda n, low: np.r_[1, np.full(n - 1, low)],
}


@pytest.mark.parametrize("spectrum", HARD)
@pytest.mark.parametrize(("side", "route"), [(1.01, "gram"), (0.99, "svd")])
def test_both_routes_keep_the_promise_on_their_side_of_the_limit(spectrum, side, route):
    n = 384
    made = HARD[spectrum](n, side * GRAM_LIMIT)
    matrix = with_values(made, n, 2 * n)
    measured = matrix_spectrum(matrix)
    assert measured.route == route
    assert_within_the_promise(measured.values, svdvals(matrix))
    assert np.max(np.abs(measured.values - made)) < 1e-12


def test_an_ill_conditioned_matrix_against_mpmath():
    matrix = with_values(np.geomspace(1, 1e-9, 10), 10, 12)
    with mpmath.workdps(40):
        exact = mpmath.svd_r(mpmath.matrix(matrix.tolist()), compute_uv=False)
    reference = np.array([float(value) for value in exact])
    spectrum = matrix_spectrum(matrix)
    assert spectrum.route == "svd"
    assert_within_the_promise(spectrum.values, reference)
    assert np.max(np.abs(spectrum.values - reference)) <= 10 * np.finfo(float).eps


def test_identity_repeated_values_and_rank_one():
    assert matrix_spectrum(np.eye(6)).values == pytest.approx(np.ones(6), rel=1e-14)
    repeated = matrix_spectrum(with_values(np.array([2.0, 2.0, 2.0, 1.0]), 4, 9))
    assert repeated.values == pytest.approx([2, 2, 2, 1], rel=1e-13)
    rank_one = matrix_spectrum(np.outer([3.0, 4.0, 0.0], [1.0, 2.0, 2.0, 4.0]))
    assert rank_one.values[0] == pytest.approx(25, rel=1e-14)
    assert rank_one.values[1:] == pytest.approx([0, 0], abs=1e-13)
    assert rank_one.numerical_rank == 1
    assert rank_one.norm_21 == pytest.approx(5 * 9, rel=1e-14)
    assert rank_one.norm_11 == pytest.approx(7 * 9, rel=1e-14)


def test_the_sum_of_absolute_entries_does_not_depend_on_where_the_matrix_lies():
    entries = np.random.default_rng(3).standard_normal(40 * 30)
    sums = set()
    for offset in range(8):
        place = np.empty(entries.size + 8)[offset : offset + entries.size]
        place[:] = entries
        sums.add(matrix_spectrum(place.reshape(40, 30)).norm_11)
    assert len(sums) == 1


@pytest.mark.parametrize("block", [1, 7, 10**9])
def test_the_sum_of_absolute_entries_does_not_depend_on_the_blocks(block, monkeypatch):
    matrix = np.random.default_rng(4).standard_normal((13, 9))
    monkeypatch.setattr(exact, "BLOCK", block)
    assert matrix_spectrum(matrix).norm_11 == pytest.approx(np.abs(matrix).sum(), rel=1e-14)


def test_a_zero_matrix():
    spectrum = matrix_spectrum(np.zeros((3, 5)))
    assert spectrum.values.tolist() == [0, 0, 0]
    assert (spectrum.norm_21, spectrum.norm_11, spectrum.numerical_rank) == (0, 0, 0)


@pytest.mark.parametrize("scale", [2.0**990, 2.0**-990, 2.0**300, 2.0**-300])
def test_scaling_by_powers_of_two_is_exact(scale):
    matrix = np.random.default_rng(2).standard_normal((6, 9))
    plain, scaled = matrix_spectrum(matrix), matrix_spectrum(matrix * scale)
    assert scaled.values / scale == pytest.approx(plain.values, rel=1e-13)
    assert scaled.norm_21 / scale == pytest.approx(plain.norm_21, rel=1e-13)
    assert scaled.norm_11 / scale == pytest.approx(plain.norm_11, rel=1e-13)


def test_denormal_and_largest_entries():
    denormal = matrix_spectrum(np.full((3, 3), 1e-320))
    assert denormal.values[0] == pytest.approx(3e-320, abs=5e-324)
    largest = float(np.finfo(np.float64).max)
    assert matrix_spectrum(np.diag([largest, 1.0])).spectral == pytest.approx(largest, rel=1e-14)


def test_norms_past_float64_are_refused():
    with pytest.raises(OverflowError, match="too large for float64"):
        matrix_spectrum(np.full((4, 4), 1e308))
