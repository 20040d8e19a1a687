"""A spectrum's quantities against their definitions, written out with mpmath or entry by entry."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlaw.spectra import RANK_TOLERANCE, Spectrum

SINGULAR_VALUES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12).map(
    lambda values: np.sort(np.array(values))[::-1]
)


def made(values, shape=None):
    values = np.asarray(values, dtype=np.float64)
    return Spectrum(values, shape or (values.size, values.size), norm_21=1.0, norm_11=1.0, route="svd")


@settings(deadline=None)
@given(SINGULAR_VALUES)
def test_norms_and_ranks_follow_their_definitions(values):
    spectrum = made(values)
    exact = [mpmath.mpf(float(value)) for value in values]
    with mpmath.workdps(40):
        total = mpmath.fsum(exact)
        squares = mpmath.fsum(value**2 for value in exact)
        entropy = -mpmath.fsum(value / total * mpmath.log(value / total) for value in exact)
        expected = {
            "spectral": exact[0],
            "nuclear": total,
            "frobenius": mpmath.sqrt(squares),
            "stable_rank": squares / exact[0] ** 2,
            "effective_rank": mpmath.exp(entropy),
            "condition": exact[0] / exact[-1],
        }
    for name, value in expected.items():
        assert getattr(spectrum, name) == pytest.approx(float(value), rel=1e-13), name


@settings(deadline=None)
@given(SINGULAR_VALUES, st.floats(0.0, 2.0))
def test_schatten_sums_count_values_above_the_tolerance_only(values, p):
    spectrum = made(values)
    limit = 1e-10 * len(values) * max(float(values[0]), 1.0)
    kept = [mpmath.mpf(float(value)) for value in values if value > limit]
    expected = mpmath.fsum(value**p for value in kept)
    assert spectrum.schatten_sum(p) == pytest.approx(float(expected), rel=1e-12)
    assert spectrum.schatten_sum(0.0) == spectrum.numerical_rank == len(kept)


def test_the_rank_tolerance_uses_the_smaller_side_of_the_whole_matrix_and_one_for_small_matrices():
    assert RANK_TOLERANCE == 1e-10
    thin = made([2.0, 2.1e-8, 1.9e-8], shape=(100, 400))
    assert thin.tolerance == pytest.approx(2e-8, rel=1e-15)
    assert thin.numerical_rank == 2
    assert made([1e-3, 1.1e-8, 0.9e-8], shape=(100, 100)).numerical_rank == 2
    exactly_at = made([1.0, 1e-10 * 4], shape=(4, 4))
    assert exactly_at.numerical_rank == 1


def test_equal_values_are_as_many_as_they_are():
    spectrum = made([3.0] * 5)
    assert spectrum.stable_rank == pytest.approx(5, rel=1e-15)
    assert spectrum.effective_rank == pytest.approx(5, rel=1e-14)
    assert spectrum.condition == 1


def test_a_zero_matrix_has_norms_and_no_ranks():
    spectrum = made([0.0, 0.0])
    assert (spectrum.spectral, spectrum.frobenius, spectrum.nuclear) == (0, 0, 0)
    assert spectrum.numerical_rank == 0
    assert spectrum.schatten_sum(0.5) == 0
    assert spectrum.stable_rank is spectrum.effective_rank is spectrum.condition is None


@pytest.mark.parametrize("size", [1e300, 1e-300, 5e-324])
def test_extreme_sizes_neither_overflow_nor_vanish(size):
    spectrum = made([size, size])
    assert spectrum.frobenius == pytest.approx(math.sqrt(2) * size, rel=1e-15, abs=5e-324)
    assert spectrum.stable_rank == pytest.approx(2)
    assert spectrum.effective_rank == pytest.approx(2)


def test_a_condition_past_float64_is_missing():
    assert made([1e200, 1e-200]).condition is None
