"""Properties that every law of the table must have."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import kstest
from theory.laws.law_table import CASES, Case

from attnlaw.numerics.quadrature import gauss_legendre
from attnlaw.theory.laws.law import Bounded

KS_LEVEL = 1e-3  # none of the laws in the table should fall below


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def inner_points(case: Case) -> np.ndarray:
    """Points well inside the continuous part."""
    mass = case.law.mass_of_atoms
    return (
        case.law.quantile(mass + (1 - mass) * np.linspace(0.1, 0.9, 9)) if case.law.intervals else np.empty(0)
    )


def moment_by_quadrature(case: Case, power: float) -> float:
    x, w = case.law.nodes()
    return float((w * x**power).sum() + sum(weight * place**power for place, weight in case.law.atoms))


def moment_by_contour(case: Case, order: int) -> float:
    """Return `1/(2 pi i) int z^k g(z) dz` around the support on an ellipse, by the trapezoidal rule.

    The ellipse is half the length of the support away from it, so the rule converges like (1/3)^count.
    """
    low, high = case.ends
    middle, radius = 0.5 * (low + high), 0.5 * (high - low)
    theta = (np.arange(128) + 0.5) * (2 * np.pi / 128)
    z = middle + radius * (1.5 * np.cos(theta) + 1.0j * np.sin(theta))
    dz = radius * (-1.5 * np.sin(theta) + 1.0j * np.cos(theta))
    return float((z**order * case.law.stieltjes(z) * dz / 1j).mean().real)


def test_mass_is_one(case: Case) -> None:
    assert moment_by_quadrature(case, 0) == pytest.approx(1.0, abs=case.error)
    assert case.law.cdf(case.ends[1]) == pytest.approx(1.0, abs=case.error)


def test_density_is_the_imaginary_part_of_the_transform(case: Case) -> None:
    x = inner_points(case)
    assert -case.law.stieltjes(x).imag / np.pi == pytest.approx(case.law.density(x), rel=1e-9)
    assert np.exp(case.law.log_density(x)) == pytest.approx(case.law.density(x), rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["density", "log_density", "cdf", "quantile", "stieltjes"])
def test_a_table_of_points_is_read_point_by_point(case: Case, name: str) -> None:
    evaluate = getattr(case.law, name)
    points = np.linspace(0.1, 0.9, 9) if name == "quantile" else inner_points(case)
    alone = [evaluate(point) for point in points]
    assert evaluate(points.reshape(-1, 3)).ravel() == pytest.approx(np.array(alone), rel=1e-12)


def test_density_is_the_slope_of_the_distribution_function(case: Case) -> None:
    x = inner_points(case)
    u, w = gauss_legendre(80)
    for low, high in pairwise(x):
        gaps = sorted(end for pair in case.law.intervals for end in pair if low < end < high)
        area = 0.0
        for part in pairwise([low, *gaps, high]):
            at, slope = Bounded(*part).at(np.pi * u)
            area += np.pi * float((w * slope) @ case.law.density(at))
        # The default table of the distribution function is linear between 4000 angles: error 1e-6.
        assert area == pytest.approx(float(case.law.cdf(high) - case.law.cdf(low)), abs=2e-6)


def test_transform_is_the_integral_of_the_density(case: Case) -> None:
    low, high = case.ends if not case.heavy else (case.law.support[0], float(case.law.quantile(0.9)))
    z = np.array(
        [low - 0.5 * (high - low) + 0.1j, 0.5 * (low + high) + 0.8j * (high - low), high - 1j * (high - low)]
    )
    expected = case.law.stieltjes_by_quadrature(z)
    assert case.law.stieltjes(z) == pytest.approx(expected, rel=1e-10 + 10 * case.error)


def test_real_transform_off_the_support_is_the_limit(case: Case) -> None:
    low, high = case.law.support
    x = [low - 0.4, low - 2.0] + ([high + 0.4, high + 2.0] if np.isfinite(high) else [])
    x += [0.5 * (left[1] + right[0]) for left, right in pairwise(case.law.intervals)]
    x = np.array(x)
    assert case.law.stieltjes(x) == pytest.approx(
        case.law.stieltjes_by_quadrature(x), rel=1e-9 + 10 * case.error
    )
    assert case.law.stieltjes(x) == pytest.approx(case.law.stieltjes(x + 1e-9j), abs=2e-8 + case.error)
    assert case.law.stieltjes(x).imag == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_moments_by_three_routes(case: Case, order: int) -> None:
    law, first = case.law, moment_by_quadrature(case, order)
    # Closed form where the law has one, else the quadrature again.
    assert law.moment(order) == pytest.approx(first, rel=1e-9 + case.error)
    if case.heavy:
        # Mellin transform of g on the negative axis: int t^(-1/2) (-g(-t)) dt = pi E x^(-1/2).
        s = np.linspace(-80.0, 80.0, 2001)
        t = np.exp(s)
        mellin = float((np.sqrt(t) * -law.stieltjes(-t).real).sum() * (s[1] - s[0]) / np.pi)
        assert mellin == pytest.approx(moment_by_quadrature(case, -0.5), rel=1e-9)
    else:
        assert moment_by_contour(case, order) == pytest.approx(first, rel=1e-9 + 2 * case.error)
    draws = law.sample(4000, seed=11) ** order
    spread = np.sqrt(max(law.moment(2 * order) - first**2, 0.0)) if order < 3 else draws.std()
    assert draws.mean() == pytest.approx(first, abs=4.5 * spread / np.sqrt(draws.size) + case.error)


def test_quantile_inverts_the_distribution_function(case: Case) -> None:
    if not case.law.intervals:
        pytest.skip("a discrete law has steps")
    levels = np.linspace(case.law.mass_of_atoms + 0.01, 0.99, 25)
    # The table is linear between 4000 angles: its error is the square of that step times the slope.
    assert case.law.cdf(case.law.quantile(levels)) == pytest.approx(levels, abs=1e-6)


def test_samples_follow_the_law(case: Case) -> None:
    law = case.law
    draws = law.sample(2000, seed=7)
    atoms = [place for place, _ in law.atoms]
    for place, weight in law.atoms:
        share = np.mean(draws == place)
        assert share == pytest.approx(weight, abs=4 * np.sqrt(weight * (1 - weight) / draws.size))
    continuous = draws[~np.isin(draws, atoms)]
    if continuous.size:

        def below(x: np.ndarray) -> np.ndarray:
            steps = sum(weight * (x >= place) for place, weight in law.atoms)
            return (law.cdf(x) - steps) / (1 - law.mass_of_atoms)

        assert kstest(continuous, below).pvalue > KS_LEVEL
