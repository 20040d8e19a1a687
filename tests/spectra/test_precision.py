"""float32 where storing took more: its error against float64, the gate, and the routes of thin factors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from attnlaw.checkpoints.blocks import NormFold
from attnlaw.spectra import exact, factored
from attnlaw.spectra.exact import entry_norms, gram_matrix, matrix_spectrum
from attnlaw.spectra.factored import product_spectrum, spectrum_and_roots
from attnlaw.spectra.precision import EPS, least_ratio, rounding, single_errors

BFLOAT16 = rounding("bfloat16")


def made(rows: int, cols: int, condition: float, seed: int = 0) -> np.ndarray:
    """A float64 matrix whose singular values fall geometrically."""
    rng, size = np.random.default_rng(seed), min(rows, cols)
    left, right = (np.linalg.qr(rng.standard_normal((n, size)))[0] for n in (rows, cols))
    return (left * np.geomspace(1, 1 / condition, size)) @ right.T


def stored(matrix: np.ndarray) -> np.ndarray:
    """As bfloat16 keeps it, widened."""
    return matrix.astype(ml_dtypes.bfloat16).astype(np.float32)


SHAPES = [(96, 384, 3), (384, 96, 10), (300, 420, 20), (128, 640, 40)]


@pytest.mark.parametrize(("rows", "cols", "condition"), SHAPES)
def test_float32_stays_within_its_error_and_below_what_storing_did(rows, cols, condition):
    before = made(rows, cols, condition)
    matrix = stored(before)
    spectrum = matrix_spectrum(matrix, rounding=BFLOAT16)
    assert spectrum.precision == "float32"
    values = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    off = np.abs(spectrum.values - values)
    assert np.all(off <= single_errors(values))
    storing = np.abs(np.linalg.svd(before, compute_uv=False) - values)
    assert np.sqrt(np.mean(off**2)) < np.sqrt(np.mean(storing**2))
    # The stated root mean square of what storing did, over min(rows, cols) values, within 5 standard errors.
    expected = BFLOAT16 * np.linalg.norm(matrix) / np.sqrt(matrix.size)
    assert abs(np.mean((storing / expected) ** 2) - 1) < 5 * np.sqrt(2 / values.size)


@pytest.mark.parametrize(("rows", "cols", "condition"), SHAPES)
def test_errors_of_a_float32_row_cover_what_moved(rows, cols, condition):
    matrix = stored(made(rows, cols, condition))
    actual, expected = matrix_spectrum(matrix, rounding=BFLOAT16), matrix_spectrum(matrix.astype(np.float64))
    assert expected.error(lambda spectrum: spectrum.nuclear) is None
    for quantity in (
        lambda spectrum: spectrum.nuclear,
        lambda spectrum: spectrum.frobenius,
        lambda spectrum: spectrum.stable_rank,
        lambda spectrum: spectrum.effective_rank,
        lambda spectrum: spectrum.condition,
        lambda spectrum: spectrum.schatten_sum(0.25),
    ):
        assert abs(quantity(actual) - quantity(expected)) <= actual.error(quantity)
    assert abs(actual.spectral - expected.spectral) <= actual.spectral_error
    assert actual.numerical_rank == expected.numerical_rank == min(rows, cols)
    assert (actual.norm_21, actual.norm_11) == pytest.approx((expected.norm_21, expected.norm_11), rel=1e-14)


def test_below_the_ratio_a_matrix_goes_the_float64_way_to_the_same_values():
    for condition in (10, 30, 60, 1e3, 1e6):
        matrix = stored(made(200, 320, condition))
        values = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
        ratio = least_ratio(values**2, matrix.shape, BFLOAT16)
        spectrum = matrix_spectrum(matrix, rounding=BFLOAT16)
        assert spectrum.precision == ("float32" if values[-1] / values[0] > ratio else "float64")
        if spectrum.precision == "float64":
            assert np.allclose(spectrum.values, values, rtol=1e-9, atol=1e-12 * values[0])
    assert spectrum.precision == "float64"
    assert ratio == pytest.approx(
        4 * EPS * values[0] * np.sqrt(matrix.size) / (2 * BFLOAT16 * np.linalg.norm(values)), rel=1e-12
    )


def test_the_ratio_of_a_gaussian_matrix_is_the_stated_one():
    values = np.linalg.svd(np.random.default_rng(0).standard_normal((96, 384)), compute_uv=False)
    stated = 4 * EPS * (96**0.5 + 384**0.5) / (2 * BFLOAT16)
    # The largest value of a Gaussian matrix lies within n^(-2/3) or so of its edge.
    assert least_ratio(values**2, (96, 384), BFLOAT16) == pytest.approx(stated, rel=96 ** (-2 / 3))


def test_weights_of_more_than_16_bits_take_float64():
    assert rounding("float64") is rounding("float32") is None
    assert matrix_spectrum(stored(made(60, 90, 3))).precision == "float64"


def test_a_zero_matrix_and_one_of_huge_entries_are_measured():
    zero = matrix_spectrum(np.zeros((3, 5), np.float32), rounding=BFLOAT16)
    assert (zero.values.tolist(), zero.precision) == ([0.0] * 3, "float64")
    matrix = stored(made(60, 90, 3))
    huge = matrix_spectrum(matrix * np.float32(2.0**100), rounding=BFLOAT16)
    assert huge.precision == "float32"
    assert np.allclose(
        huge.values / 2.0**100, matrix_spectrum(matrix, rounding=BFLOAT16).values, rtol=4 * EPS
    )


def test_sizes_as_applied_stay_within_their_error():
    matrix = stored(made(300, 420, 20))
    fold = NormFold(np.exp(np.random.default_rng(1).standard_normal(300)), True)
    spectrum = matrix_spectrum(matrix, fold, BFLOAT16)
    assert spectrum.precision == "float32"
    whole = np.linalg.svd(fold(matrix.astype(np.float64)), compute_uv=False)
    assert (
        abs(spectrum.applied.spectral.value - whole[0]) <= spectrum.applied.spectral.error < 1e-4 * whole[0]
    )
    assert spectrum.applied.frobenius == pytest.approx(np.sqrt(np.sum(whole**2)), rel=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("have", "want"), [("float32", "float64"), ("float64", "float32"), ("float32", "float32")]
)
def test_slabs_add_up_to_the_gram_matrix(order, have, want, monkeypatch):
    monkeypatch.setattr(exact, "SLAB", 600 * 7)
    wide = np.asarray(np.random.default_rng(0).standard_normal((600, 700)), have, order=order)
    gram = gram_matrix(wide, np.dtype(want))
    assert gram.dtype == want
    if want == "float32":  # the upper triangle is enough there
        assert not np.tril(gram, -1).any()
        gram = gram + np.triu(gram, 1).T
    assert np.array_equal(gram, gram.T)
    direct = wide.astype(np.float64) @ wide.astype(np.float64).T
    # Sums of 700 products, each rounded: at most 700 eps of their absolute sum.
    absolute = np.abs(wide).astype(np.float64) @ np.abs(wide).astype(np.float64).T
    assert np.all(np.abs(gram - direct) <= 700 * np.finfo(want).eps * absolute)


def test_norms_of_float32_entries_are_summed_in_float64(monkeypatch):
    matrix = stored(made(70, 130, 3))
    monkeypatch.setattr(exact, "BLOCK", 70 * 9)
    assert entry_norms(matrix) == pytest.approx(entry_norms(matrix.astype(np.float64)), rel=1e-14)


def test_cholesky_factors_give_the_values_of_qr():
    rng = np.random.default_rng(3)
    left, right = made(400, 32, 100, 1), made(32, 300, 30, 2)
    gain = np.exp(rng.standard_normal(400))[:, None]
    quick, roots, folded = spectrum_and_roots(left, right, (gain * left, right), quick=True)
    assert quick.route == "cholesky"
    plain = product_spectrum(left, right)
    assert plain.route == "qr"
    dense = np.linalg.svd((gain * left) @ right, compute_uv=False)[:32]
    # eps (s_1 / s)^2 of the factors, 1e4 and 1e3.
    assert np.allclose(quick.values, plain.values, rtol=1e-10)
    assert np.allclose(quick.applied.values, dense, rtol=1e-10)
    assert np.allclose(roots[0][0].T @ roots[0][0], left.T @ left, atol=1e-14)
    assert folded is not None


@pytest.mark.parametrize("condition", [1e5, np.inf])
def test_factors_that_cholesky_would_spoil_go_by_qr(condition):
    left = made(200, 16, min(condition, 1e6))
    if condition == np.inf:
        left[:, 5] = left[:, 3]
    right = made(16, 150, 4)
    spectrum = spectrum_and_roots(left, right, None, quick=True)[0]
    assert spectrum.route == "qr"
    assert np.allclose(spectrum.values, product_spectrum(left, right).values, rtol=1e-9, atol=1e-14)


def test_a_factor_wider_than_tall_goes_by_qr():
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((5, 8)), rng.standard_normal((8, 40))
    spectrum = spectrum_and_roots(left, right, None, quick=True)[0]
    assert spectrum.route == "qr"
    assert np.allclose(spectrum.values, np.linalg.svd(left @ right, compute_uv=False)[:5])
    assert factored.CHOLESKY_LIMIT == 1e-3
