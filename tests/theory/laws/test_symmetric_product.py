"""The product of two factors with noise: quartic and Biane's curve, draws, limits, both sides."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from attnlaw.theory.laws.convolution_nodes import product_edges, product_nodes, product_stieltjes
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.head_null import HeadNull
from attnlaw.theory.laws.semicircle import Semicircle
from attnlaw.theory.laws.symmetric_product import SymmetricProduct
from attnlaw.theory.laws.transformed import Folded, Rectified, rectify

RATIOS = (0.1, 0.5, 1.0, 3.0)


def as_atoms(law: SymmetricProduct) -> Discrete:
    """Return its quadrature as a discrete law, for the boundary curve, which does not use the quartic."""
    points, weights = law.nodes()
    atoms = np.array(law.atoms).reshape(-1, 2)
    weights = np.append(weights, atoms[:, 1])
    return Discrete(tuple(np.append(points, atoms[:, 0]).tolist()), tuple((weights / weights.sum()).tolist()))


@pytest.mark.parametrize("k", RATIOS)
@pytest.mark.parametrize("a", [0.05, 0.4, 1.0, 30.0])
def test_quartic_root_is_the_physical_one(k: float, a: float) -> None:
    """Every node has a root of the quartic; mass, variance and 2 int x Re g are known."""
    ((_, nodes),) = product_nodes(k, np.array([a]))
    x, re_g = nodes.x, nodes.re_g
    half, theta = (
        0.5 * (nodes.high - nodes.low)[..., None],
        (np.arange(x.shape[-1]) + 0.5) * np.pi / x.shape[-1],
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        density = nodes.mass / (half * np.sin(theta))
    g = (re_g - 1j * np.pi * density)[nodes.mass > 0]
    z = x[nodes.mass > 0]
    terms = [-(a**2) / k * g**4, z / k * g**3, (1 - 1 / k + a * a) * g**2, -z * g, np.ones_like(g)]
    assert np.abs(sum(terms)).max() <= 1e-12 * np.abs(terms).max()
    weight = nodes.mass * np.pi / x.shape[-1]
    integrals = [weight.sum(), (weight * x**2).sum() / (1 + a * a), 2 * (weight * x * re_g).sum()]
    np.testing.assert_allclose(integrals, 1.0, rtol=0, atol=2e-12)


@pytest.mark.slow
@pytest.mark.parametrize("k", RATIOS)
@pytest.mark.parametrize("b", [0.2, 1.1])
def test_integrals_of_both_sides_against_the_boundary_curve(k: float, b: float) -> None:
    """The curve adds nodes until the last coefficients of the mass are 1e-9, so its error is a few 1e-9."""
    law, a = SymmetricProduct(k), np.array([0.6])
    quartic = rectify(Truncated(law, a, 2), np.array([b]))
    curve = rectify(Truncated(as_atoms(law), a, 2), np.array([b]))
    one_sided = rectify(Truncated(law, a), np.array([b]))
    for name in ("J", "M1", "chi", "mass", "E"):
        assert getattr(quartic, name)[0] == pytest.approx(getattr(curve, name)[0], abs=1e-8), name
    for name in ("J", "M1", "chi", "mass"):
        assert getattr(quartic, name)[0] == pytest.approx(2 * getattr(one_sided, name)[0], rel=1e-13), name


def test_chi_is_the_derivative_of_J() -> None:
    """`chi = (dJ/da)/(2a)`; the central difference at two steps bounds its own error."""
    law, b = SymmetricProduct(0.3), np.array([0.7])

    def slope(h: float) -> float:
        high, low = (rectify(Truncated(law, np.array([0.8 + s * h]), 2), b).J[0] for s in (1, -1))
        return float(high - low) / (2 * h) / 1.6

    chi = float(rectify(Truncated(law, np.array([0.8]), 2), b).chi[0])
    assert chi == pytest.approx(slope(1e-3), abs=2 * abs(slope(2e-3) - slope(1e-3)) + 1e-11)


@pytest.mark.parametrize(
    ("a", "b", "cut"), [(0.004, 0.003, None), (0.004, 0.003, 0.006), (0.009, 0.002, 1.0)]
)
def test_small_errors_do_not_cancel(a: float, b: float, cut: float | None) -> None:
    """If a and b are small, E equals `Q - J - 2 b M1 + 2 a^2 chi` to the rounding error of those terms."""
    parts = rectify(
        Truncated(SymmetricProduct(0.3), np.array([a]), 2),
        np.array([b]),
        cut=None if cut is None else np.array([cut]),
    )
    plain = 1 - parts.J - 2 * b * parts.M1 + 2 * a * a * parts.chi
    assert parts.E[0] == pytest.approx(float(plain[0]), abs=1e-14)


@pytest.mark.parametrize("k", [0.3, 1.0])
def test_its_squares_are_a_free_product(k: float) -> None:
    law, levels = Folded(SymmetricProduct(k)), np.array([0.2, 0.5, 0.9])
    squares = HeadNull(k)
    expected = np.sqrt(squares.quantile(levels) / k)
    # Both quantiles are linear in tables of 4001 angles.
    np.testing.assert_allclose(law.quantile(1 - k + k * levels), expected, rtol=2e-5)
    assert law.moment(4) == pytest.approx(squares.moment(2) / k, rel=1e-10)


def test_drawn_products_have_its_singular_values() -> None:
    """A 600 x 600 product blurred by 0.5: the distance of sorted values is O(1/d) of their size."""
    rng, d, k = np.random.default_rng(0), 600, 0.4
    left, right = rng.standard_normal((2, d, round(k * d)))
    matrix = left @ right.T / np.sqrt(round(k * d) * d) + 0.5 * rng.standard_normal((d, d)) / np.sqrt(d)
    values = np.linalg.svd(matrix, compute_uv=False)[::-1]
    law = Folded(FreeConvolution(SymmetricProduct(k), 0.5))
    assert np.abs(values - law.quantile((np.arange(d) + 0.5) / d)).mean() < 10 / d


def test_many_factors_give_a_quarter_circle() -> None:
    """k -> infinity: the product is a Gaussian matrix; the fourth moment `2 + 1/k` says how near."""
    law = SymmetricProduct(1e5)
    assert law.moment(4) == pytest.approx(2 + 1e-5, rel=1e-9)
    low, high = product_edges(1e5, np.array([0.75]))
    assert (low[0, 0], high[0, 0]) == pytest.approx((-2.5, 2.5), rel=1e-4)
    x = np.linspace(-2.3, 2.3, 7)
    _, density = product_stieltjes(1e5, np.array(0.75), x)
    np.testing.assert_allclose(density, Semicircle(1.25).density(x), rtol=1e-4)


def test_a_gap_opens() -> None:
    """k = 0.3 has a gap at a = 0.3 and none at 0.6 (its intervals); the mass in the middle is 1 - k."""
    law = FreeConvolution(SymmetricProduct(0.3), 0.3)
    assert [len(FreeConvolution(SymmetricProduct(0.3), a).intervals) for a in (0.3, 0.6)] == [3, 1]
    middle = quad(lambda x: float(law.density(x)), *law.intervals[1], epsabs=1e-10)[0]
    assert middle == pytest.approx(0.7, abs=1e-8)


def test_rectified_singular_values_with_a_cut() -> None:
    law = Rectified(FreeConvolution(SymmetricProduct(0.5), 0.8), 0.6, 1.5, sides=2, cut=0.9)
    parts = rectify(
        Truncated(SymmetricProduct(0.5), np.array([0.8]), 2), np.array([0.6]), cut=np.array([0.9])
    )
    assert law.intervals[0][0] == pytest.approx(1.5 * 0.3)
    assert law.moment(2) == pytest.approx(1.5**2 * parts.J[0], rel=1e-9)
    assert law.moment(1) == pytest.approx(1.5 * parts.M1[0], rel=1e-9)
    assert 1 - law.atoms[0][1] == pytest.approx(parts.mass[0], rel=1e-12)
