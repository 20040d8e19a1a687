"""The null of a head: its edges, its moments by three methods, random heads, ratio one."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from scipy.stats import kstest

from attnlaw.core.errors import InputError
from attnlaw.theory.laws.head_null import HeadNull

RATIOS = [1e-5, 1 / 128, 0.25, 0.9, 1 - 1e-6, 1.0]


def test_edges_at_a_quarter() -> None:
    assert HeadNull(0.25).intervals[0] == pytest.approx((0.1362, 3.0982), abs=5e-5)


@pytest.mark.parametrize("ratio", RATIOS)
def test_edges_are_the_roots_of_the_discriminant(ratio: float) -> None:
    # Discriminant of v^3 + A v^2 + B v + C in x, B = 1 + 2c - x.
    A, B, C = ratio + 2, Polynomial([1 + 2 * ratio, -1.0]), ratio
    discriminant = 18 * A * B * C - 4 * A**3 * C + A**2 * B**2 - 4 * B**3 - 27 * C**2
    low, high = HeadNull(ratio).intervals[0]
    scale = max(abs(discriminant.coef))
    assert discriminant(np.array([low, high])) == pytest.approx(0.0, abs=1e-12 * scale * high**3)
    assert 0 <= low < 1 < high


@pytest.mark.parametrize("ratio", RATIOS)
def test_density_agrees_with_numpy_roots(ratio: float) -> None:
    law = HeadNull(ratio)
    low, high = law.intervals[0]
    for x in low + (high - low) * np.array([1e-3, 0.1, 0.5, 0.9, 0.999]):
        u = np.roots([ratio**2, ratio**2 + 2 * ratio, 1 + 2 * ratio - x, 1.0])
        # Roots next to an edge are nearly double, which costs np.roots half its digits.
        assert law.density(x) == pytest.approx(abs(u.imag).max() / (np.pi * x), rel=1e-6)


@pytest.mark.parametrize("ratio", [1 / 128, 0.25, 1.0])
def test_moments_follow_from_the_s_transform(ratio: float) -> None:
    # The free product has S(u) = (1 + c u)^-2, and chi(u) = u S(u)/(1 + u) inverts u(1/z) = sum m_k z^-k.
    order = 5
    squared = [(n + 1) * (-ratio) ** n for n in range(order)]
    chi = [0.0] + [sum((-1) ** (n - i) * squared[i] for i in range(n + 1)) for n in range(order)]
    moments = np.zeros(order + 1)
    for n in range(1, order + 1):
        power, composed = np.eye(order + 1)[0], np.zeros(order + 1)
        for coefficient in chi[1:]:
            power = np.convolve(power, moments)[: order + 1]
            composed += coefficient * power
        # chi(u(s)) = s, and chi starts with u itself: the missing part of the n-th coefficient is m_n.
        moments[n] = (n == 1) - composed[n]
    assert moments[1:] == pytest.approx([HeadNull(ratio).moment(k) for k in range(1, order + 1)], rel=1e-11)


def test_ratio_one_is_the_fuss_catalan_law() -> None:
    law = HeadNull(1.0)
    assert law.intervals == ((0.0, pytest.approx(27 / 4)),)
    x, w = law.nodes()
    for k in range(6):
        exact = comb(3 * k, k) / (2 * k + 1)
        assert (law.moment(k), w @ x**k) == pytest.approx((exact, exact), rel=1e-12)
    # x^(-2/3) sqrt(3)/(2 pi) at the hard edge (u = -1 - x^(1/3) e^(i pi/3)).
    tiny = np.array([1e-30, 1e-15])
    assert law.density(tiny) == pytest.approx(np.sqrt(3) / (2 * np.pi) * tiny ** (-2 / 3), rel=1e-4)


def test_small_ratio_is_a_semicircle() -> None:
    ratio = 1e-8
    law = HeadNull(ratio)
    sigma = np.sqrt(2 * ratio)
    x = 1 + sigma * np.array([-1.5, 0.0, 1.0])
    semicircle = np.sqrt(4 - ((x - 1) / sigma) ** 2) / (2 * np.pi * sigma)
    # The skewness of the law is of order sqrt(ratio).
    assert law.density(x) == pytest.approx(semicircle, rel=10 * np.sqrt(ratio))


def test_random_heads_follow_the_law() -> None:
    d, N, draws = 64, 256, 60
    rng = np.random.default_rng(2)
    values = []
    for _ in range(draws):
        A, B = 0.3 * rng.normal(size=(d, N)), 2.0 * rng.normal(size=(d, N))
        product = np.linalg.cholesky(A @ A.T).T @ np.linalg.cholesky(B @ B.T)
        values.append(np.linalg.svd(product, compute_uv=False) ** 2 / (N * 0.3 * 2.0) ** 2)
    # Eigenvalues are rigid, so the distance is below that of independent draws; 1/d is the finite-size shift.
    assert kstest(np.concatenate(values), HeadNull(d / N).cdf).statistic < 1.36 / np.sqrt(d * draws)


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.5, np.nan])
def test_bad_ratios_are_refused(ratio: float) -> None:
    with pytest.raises(InputError, match="d_head / N"):
        HeadNull(ratio)
