"""Merged variances compared with the draws that they replace."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from attnlaw.theory.limit.mixture import CELL, OutputLaw, merge_variances

RANDOM = np.random.default_rng(0)
DRAWS = {
    "inverse gamma": 1 / RANDOM.gamma(2.5, 0.4, 5000),
    "log-normal over 40 orders": np.exp(20 * RANDOM.standard_normal(3000)),
    "one cell": np.exp(CELL * RANDOM.beta(0.3, 2.0, 1000)),
    "two values": np.repeat([1.0, 1.01], [10, 990]),
    "nearly equal": 1 + 1e-9 * RANDOM.standard_normal(100),
    "one": np.array([3.0]),
}


@pytest.mark.parametrize("draws", DRAWS.values(), ids=DRAWS)
def test_moments_of_the_logarithm_up_to_the_third_are_kept(draws):
    v, weights = merge_variances(draws)
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1, abs=1e-13)
    scale = max(np.abs(np.log(draws)).max(), CELL)
    for order in (1, 2, 3):
        exact = math.fsum(np.log(draws) ** order) / len(draws)
        assert weights @ np.log(v) ** order == pytest.approx(exact, abs=1e-13 * scale**order)


@pytest.mark.parametrize("power", [-3.0, -0.5, 2.0])
@pytest.mark.parametrize("draws", [DRAWS["inverse gamma"], DRAWS["one cell"]], ids=["many", "one cell"])
def test_powers_err_by_no_more_than_the_bound(draws, power):
    # f(s) = exp(power s): its fourth derivative is at most power^4 exp(|power| h) f within a cell.
    v, weights = merge_variances(draws)
    exact = math.fsum(draws**power) / len(draws)
    bound = power**4 * math.exp(abs(power) * CELL) * CELL**4 / 1536 * exact
    assert abs(weights @ v**power - exact) < bound + 1e-13 * exact


def test_few_points_stand_for_many_and_lie_among_them():
    draws = DRAWS["inverse gamma"]
    v, _ = merge_variances(draws)
    assert len(v) < 2 * math.log(draws.max() / draws.min()) / CELL + 4
    assert draws.min() * (1 - 1e-12) <= v.min()
    assert v.max() <= draws.max() * (1 + 1e-12)


def test_the_density_is_the_plain_average_of_normals_also_far_out():
    draws = DRAWS["inverse gamma"]
    y = np.linspace(0, 3, 7)
    law = OutputLaw(draws, None, np.ones(len(draws)))
    parts = np.array_split(draws, 40)
    plain = np.mean([stats.norm.pdf(y[:, None], scale=np.sqrt(part)).mean(axis=1) for part in parts], axis=0)
    np.testing.assert_allclose(law.density(y), plain, rtol=1e-6)
    below = np.mean([stats.norm.cdf(y[:, None], scale=np.sqrt(part)).mean(axis=1) for part in parts], axis=0)
    np.testing.assert_allclose(law.distribution(y).mean(axis=0), below, rtol=1e-7)
    far = np.array([60 * math.sqrt(draws.max())])
    each = [stats.norm.logpdf(far[:, None], scale=np.sqrt(part)) for part in parts]
    exact = [
        np.logaddexp.reduce(log_densities, axis=1) - math.log(log_densities.shape[1])
        for log_densities in each
    ]
    np.testing.assert_allclose(law.log_density(far), exact, rtol=1e-4)


def test_draws_of_zero_keep_their_share():
    v, weights = merge_variances(np.array([0.0, 1.0, 0.0, 1.02, 5.0]))
    assert v[0] == 0
    assert weights[0] == pytest.approx(0.4)
    assert weights @ v == pytest.approx(7.02 / 5)
