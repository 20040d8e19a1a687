"""Effective ranks against sums written out, reference values, and where no tail is long enough."""

from __future__ import annotations

import numpy as np
import pytest

from attnlaw.core.errors import InputError
from attnlaw.theory.regression.effective_ranks import effective_ranks

POWER = np.arange(1, 3001) ** -1.5
SPIKED = np.repeat([10.0, 0.02], [5, 2000])


def test_against_sums_written_out() -> None:
    values = np.random.default_rng(0).exponential(size=40)
    ranks = effective_ranks(values)
    ordered = sorted(values, reverse=True)
    for k in range(40):
        rest = ordered[k:]
        assert ranks.r[k] == pytest.approx(sum(rest) / rest[0], rel=1e-12)
        assert ranks.R[k] == pytest.approx(sum(rest) ** 2 / sum(x * x for x in rest), rel=1e-12)
    assert ranks.at(39) == (1.0, 1.0)


def test_reference_values() -> None:
    ranks = effective_ranks(POWER)
    assert ranks.at(0) == pytest.approx((2.5759, 5.5198), abs=5e-5)
    split = ranks.split(100)
    assert split.k == 57
    assert pytest.approx(341.60, abs=5e-3) == split.R
    assert split.noise_terms == pytest.approx((0.57, 0.293), abs=5e-4)
    assert ranks.r[56] < 100 <= split.r
    other = effective_ranks(SPIKED).split(100)
    assert (other.k, other.noise_terms) == (5, pytest.approx((0.05, 0.05), rel=1e-9))


def test_scale_and_zeros_drop_out() -> None:
    ranks, scaled = effective_ranks(POWER), effective_ranks(np.append(1e-30 * POWER, np.zeros(5)))
    assert scaled.r == pytest.approx(ranks.r, rel=1e-12)


def test_the_constant_b_asks_for_a_longer_tail() -> None:
    ranks = effective_ranks(POWER)
    assert ranks.split(100, b=2.0).k > ranks.split(100).k
    assert ranks.split(50, b=2.0).k == ranks.split(100).k


def test_where_no_tail_is_long_enough() -> None:
    """r_k rises, then ends at 1: all k are searched, and the remark tells the longest."""
    ranks = effective_ranks(np.ones(80))
    assert ranks.split(80).k == 0
    none = ranks.split(81)
    assert (none.k, none.r, none.R, none.noise_terms) == (None, None, None, None)
    assert none.remark == (
        "no tail of this spectrum has an effective rank of 81, the longest has 80: 81 samples cannot be "
        "fitted without harm; use fewer samples, or add a ridge"
    )


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [1.0, -0.1], [np.inf]])
def test_what_is_no_spectrum(values: list[float]) -> None:
    with pytest.raises(
        InputError, match="not negative, with at least one above 0; give the eigenvalues of a covariance"
    ):
        effective_ranks(values)


def test_a_place_beyond_the_end() -> None:
    with pytest.raises(
        InputError, match="k: found 2, expected a whole number of at least 0 and of at most 1"
    ):
        effective_ranks([1.0, 1.0]).at(2)
