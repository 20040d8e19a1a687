"""Products of thin factors: against the formed product, mpmath and extended precision."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import extended_svd
from scipy.linalg import svdvals

from attnlaw.spectra import factored, product_spectrum
from attnlaw.spectra.precision import Underflow


def factors(rows, inner, cols, seed=0, decay=1.0):
    """Gaussian factors whose inner directions shrink from 1 to `decay`."""
    rng = np.random.default_rng(seed)
    root = np.geomspace(1, decay, inner)
    return rng.standard_normal((rows, inner)) * root, root[:, None] * rng.standard_normal((inner, cols))


@given(
    st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1)
)  # inner may exceed the sides
@settings(max_examples=60, deadline=None)
def test_values_and_norms_of_any_shape_equal_those_of_the_formed_product(rows, inner, cols, seed):
    left, right = factors(rows, inner, cols, seed)
    product = left @ right
    spectrum = product_spectrum(left, right)
    reference = svdvals(product)
    kept = min(rows, inner, cols)
    # Forming the product and both factorisations each err by a few eps of the factors' norms.
    error = 1e-14 * svdvals(left)[0] * svdvals(right)[0]
    assert spectrum.shape == (rows, cols)
    assert spectrum.values.shape == (kept,)
    assert np.max(np.abs(spectrum.values - reference[:kept])) <= error
    assert np.max(reference[kept:], initial=0.0) <= error
    norm_21 = sum(np.sqrt(sum(float(x) ** 2 for x in column)) for column in product.T)
    norm_11 = sum(abs(float(x)) for x in product.ravel())
    assert spectrum.norm_21 == pytest.approx(norm_21, abs=cols * error)
    assert spectrum.norm_11 == pytest.approx(norm_11, abs=rows * cols * error)


@pytest.mark.parametrize("block", [1, 7, 64, 10**9])
def test_the_sum_of_absolute_entries_does_not_depend_on_the_blocks(block, monkeypatch):
    left, right = factors(23, 4, 7)
    monkeypatch.setattr(factored, "BLOCK", block)
    assert product_spectrum(left, right).norm_11 == pytest.approx(np.abs(left @ right).sum(), rel=1e-13)


def test_sliced_and_transposed_views_give_the_same_numbers():
    left, right = factors(20, 6, 30)
    wide = np.zeros((20, 18))
    wide[:, 6:12] = left
    whole = product_spectrum(left, right)
    sliced = product_spectrum(wide[:, 6:12], np.asfortranarray(right))
    assert np.max(np.abs(sliced.values - whole.values)) <= 1e-14 * whole.spectral
    assert sliced.norm_11 == pytest.approx(whole.norm_11, rel=1e-14)


def test_an_ill_conditioned_product_against_mpmath():
    left, right = factors(12, 6, 10, decay=1e-4)
    with mpmath.workdps(50):
        product = mpmath.matrix(left.tolist()) * mpmath.matrix(right.tolist())
        exact = mpmath.svd_r(product, compute_uv=False)
        exact = sorted((float(value) for value in exact), reverse=True)[:6]
    values = product_spectrum(left, right).values
    assert exact[0] / exact[-1] > 1e7
    assert np.max(np.abs(values - exact)) <= 1e-14 * exact[0]
    assert np.max(np.abs(extended_svd.product_values(left, right) - exact)) <= 1e-16 * exact[0]


@pytest.mark.skipif(not extended_svd.PRECISE, reason="np.longdouble is no wider than float64 here")
def test_thin_factors_are_right_where_the_formed_product_is_not():
    left, right = factors(256, 32, 256, decay=1e-5)
    reference = extended_svd.product_values(left, right)
    assert reference[0] / reference[-1] > 1e9
    ours = np.abs(product_spectrum(left, right).values / reference - 1)
    dense = np.abs(svdvals(left @ right)[:32] / reference - 1)
    assert np.max(ours) < 1e-9 < np.max(dense)


def test_zero_factors_and_rank_one():
    left, right = factors(9, 3, 5)
    zero = product_spectrum(left, np.zeros_like(right))
    assert zero.values.tolist() == [0, 0, 0]
    assert (zero.norm_21, zero.norm_11) == (0, 0)
    repeated = product_spectrum(np.repeat(left[:, :1], 3, axis=1), np.repeat(right[:1], 3, axis=0))
    expected = 3 * np.linalg.norm(left[:, 0]) * np.linalg.norm(right[0])
    assert repeated.values == pytest.approx([expected, 0, 0], abs=1e-13 * expected)
    assert repeated.numerical_rank == 1


@pytest.mark.parametrize(
    ("left_scale", "right_scale"),
    [(2.0**990, 2.0**-990), (2.0**990, 1.0), (2.0**-300, 2.0**-300), (2.0**300, 2.0**300), (2.0**-1020, 1.0)],
)
def test_scaling_the_factors_by_powers_of_two_scales_everything(left_scale, right_scale):
    left, right = np.array([[3.0, 0.0], [4.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    scale = left_scale * right_scale
    spectrum = product_spectrum(left * left_scale, right * right_scale)
    assert spectrum.values == pytest.approx(np.array([10.0, 1.0]) * scale, rel=1e-14)
    assert spectrum.norm_21 == pytest.approx(11 * scale, rel=1e-14)
    assert spectrum.norm_11 == pytest.approx(15 * scale, rel=1e-14)


@pytest.mark.parametrize("scales", [(2.0**-1060, 1.0), (2.0**-600, 2.0**-600), (2.0**-1000, 2.0**-60)])
def test_products_too_small_for_float64_are_refused(scales):
    left, right = (scale * factor for scale, factor in zip(scales, factors(5, 3, 4), strict=True))
    with pytest.raises(Underflow, match="fewer than 12 digits"):
        product_spectrum(left, right)
    ones = np.ones((5, 3)), np.ones((3, 4))
    with pytest.raises(Underflow, match="fewer than 12 digits"):
        product_spectrum(*ones, folded=(left, right))


def test_products_past_float64_are_refused():
    with pytest.raises(OverflowError, match="too large for float64"):
        product_spectrum(np.full((4, 2), 1e300), np.full((2, 4), 1e300))


@pytest.mark.parametrize("exponent", [0, 60])  # 2^60 squared exceeds float32
@pytest.mark.parametrize("rows", [300, 301])
def test_the_sum_of_many_absolute_entries_is_right_to_1e_8(exponent, rows):
    rng = np.random.default_rng(0)
    left, right = (2.0**exponent * rng.standard_normal(shape) for shape in ((rows, 24), (24, 260)))

    def norm_11(first, second):
        return product_spectrum(first, second).norm_11

    expected = np.abs(left @ right).sum()
    # Rounding to float32 moves each of 13,440 entries of the factors by up to 6e-8, at random.
    assert norm_11(left, right) == pytest.approx(expected, rel=1e-8)
    assert norm_11(left, right) != expected  # float32 was used
    assert norm_11(left[:50], right) == pytest.approx(np.abs(left[:50] @ right).sum(), rel=1e-14)
    assert norm_11(0 * left, right) == 0
