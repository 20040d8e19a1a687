"""Free convolution with a semicircle: exact moments, two methods, random matrices."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.plain_convolution import edges, integral, transform
from scipy.stats import kstest

from attnlaw.theory.laws.convolution_nodes import biane_atoms
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.multi_head import MultiHeadLaw
from attnlaw.theory.laws.semicircle import Semicircle
from attnlaw.theory.laws.symmetric_product import SymmetricProduct

CASES = [(k0, a) for k0 in (0.05, 0.5, 0.9, 1.0, 2.0, 10.0) for a in (0.01, 0.1, 0.5, 1.0, 4.0)]


def free_moments(cumulants: list[float]) -> list[float]:
    """Moments 1..4 from free cumulants (non-crossing partitions)."""
    k1, k2, k3, k4 = cumulants
    return [
        k1,
        k2 + k1**2,
        k3 + 3 * k1 * k2 + k1**3,
        k4 + 4 * k1 * k3 + 2 * k2**2 + 6 * k1**2 * k2 + k1**4,
    ]


@pytest.mark.parametrize(("k0", "a"), CASES)
def test_moments_are_exact(k0: float, a: float) -> None:
    law = FreeConvolution(MarchenkoPastur(k0), a)
    cumulants = [k0 ** (1 - n / 2) for n in (1, 2, 3, 4)]
    cumulants[1] += a * a
    expected = free_moments(cumulants)
    assert law.moment(0) == pytest.approx(1.0, abs=1e-10)
    assert [law.moment(n) for n in (1, 2, 3, 4)] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("a", [0.02, 0.3, 0.9, 5.0])
def test_moments_of_a_discrete_base_are_exact(a: float) -> None:
    values, weights = np.array([0.0, 1.0, 3.0]), np.array([0.5, 0.3, 0.2])
    law = FreeConvolution(Discrete(tuple(values), tuple(weights)), a)
    m1, m2, m3, m4 = (float(weights @ values**n) for n in (1, 2, 3, 4))
    # E tr (S + aZ)^n for n = 3, 4 with freeness: words with two or four Z's.
    expected = [1, m1, m2 + a**2, m3 + 3 * a**2 * m1, m4 + a**2 * (4 * m2 + 2 * m1**2) + 2 * a**4]
    assert [law.moment(n) for n in range(5)] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("k0", "a"), [(0.1, 0.2), (0.5, 1.0), (3.0, 0.7)])
def test_density_and_edges_agree_with_numpy_roots(k0: float, a: float) -> None:
    law = FreeConvolution(MarchenkoPastur(k0), a)
    ends = [end for pair in law.intervals for end in pair]
    assert ends == pytest.approx(edges(k0, a), rel=1e-10)
    for low, high in law.intervals:
        for x in np.linspace(low, high, 7)[1:-1]:
            g = transform(k0, a, x)
            assert law.stieltjes(x) == pytest.approx(g, rel=1e-9)


@pytest.mark.parametrize(("k0", "a", "b"), [(0.1, 0.2, 0.05), (0.5, 1.0, 0.8), (3.0, 0.7, 2.0)])
def test_truncated_integrals_agree_with_adaptive_quadrature(k0: float, a: float, b: float) -> None:
    functions = [
        lambda x, g: 1.0,
        lambda x, g: x,
        lambda x, g: x * x,
        lambda x, g: g.real,
        lambda x, g: x * g.real,
    ]
    expected = [integral(k0, a, function, above=b) for function in functions]
    integrals = Truncated(MarchenkoPastur(k0), np.array([a])).above(np.array([b]))[:, 0]
    # quad meets a square-root edge: its own error estimate is about 1e-9.
    assert integrals == pytest.approx(np.array(expected), abs=3e-9)


@pytest.mark.parametrize("k0", [0.3, 2.0])
def test_little_noise_leaves_the_base(k0: float) -> None:
    base, a = MarchenkoPastur(k0), 1e-6
    x = np.linspace(*base.intervals[0], 7)[1:-1]
    # The difference is of order a^2; the cubic's near-infinite third root must not spoil the pair.
    assert FreeConvolution(base, a).stieltjes(x) == pytest.approx(base.stieltjes(x), rel=1e-9)


def fine_spectrum(k0: float) -> Discrete:
    """Return Marchenko-Pastur as quadrature points, so that Biane's method shares nothing with the cubic."""
    law = MarchenkoPastur(k0)
    points, weights = law.nodes()
    values = np.concatenate([points, [x for x, _ in law.atoms]])
    weights = np.concatenate([weights, [w for _, w in law.atoms]])
    return Discrete(tuple(values.tolist()), tuple((weights / weights.sum()).tolist()))


@pytest.mark.parametrize(("k0", "a"), [(0.5, 0.6), (0.5, 1.5), (2.0, 0.8)])
def test_biane_and_cubic_agree(k0: float, a: float) -> None:
    b = np.array([0.0, 0.3, 0.9, 2.0])
    cubic = Truncated(MarchenkoPastur(k0), np.full(4, a)).above(b)
    biane = Truncated(fine_spectrum(k0), np.full(4, a)).above(b)
    # 400 Gauss points replace the base law to rounding as seen from a distance a.
    assert biane == pytest.approx(cubic, abs=1e-9)
    x = np.linspace(0.2, 2.0, 5)
    other = FreeConvolution(fine_spectrum(k0), a)
    assert other.stieltjes(x) == pytest.approx(FreeConvolution(MarchenkoPastur(k0), a).stieltjes(x), abs=1e-9)


def test_scaling_the_base() -> None:
    law, scaled = FreeConvolution(MarchenkoPastur(0.5), 0.6), FreeConvolution(MarchenkoPastur(0.5, 3.0), 1.8)
    assert np.array(scaled.intervals) == pytest.approx(3.0 * np.array(law.intervals))
    assert scaled.density(3.0) == pytest.approx(law.density(1.0) / 3.0)


def test_batch_equals_one_by_one() -> None:
    a, b = np.array([0.05, 0.4, 2.0]), np.array([0.1, 0.5, 0.2])
    for base in (MarchenkoPastur(0.5), Discrete((0.0, 2.0), (0.6, 0.4))):
        together = Truncated(base, a).above(b)
        alone = [Truncated(base, a[i : i + 1]).above(b[i : i + 1])[:, 0] for i in range(3)]
        assert together == pytest.approx(np.array(alone).T, rel=1e-13)
        chosen = Truncated(base, a).above(b[[2, 0]], np.array([2, 0]))
        assert chosen == pytest.approx(together[:, [2, 0]], rel=1e-13)


def test_a_large_batch_some_of_whose_laws_have_a_gap() -> None:
    base, a = MarchenkoPastur(0.5), np.linspace(0.02, 2.0, 400)
    assert {len(FreeConvolution(base, width).intervals) for width in a[[0, -1]]} == {1, 2}
    b = 0.4 * a
    together = Truncated(base, a).above(b)
    for i in range(0, 400, 19):
        alone = Truncated(base, a[i : i + 1]).above(b[i : i + 1])[:, 0]
        assert together[:, i] == pytest.approx(alone, rel=1e-13)


def test_noise_on_a_matrix_gives_the_law() -> None:
    d, a = 500, 0.8
    target = MarchenkoPastur(0.5).quantile((np.arange(d) + 0.5) / d)
    Z = np.random.default_rng(5).normal(size=(d, d)) / np.sqrt(d)
    eigenvalues = np.linalg.eigvalsh(np.diag(target) + a * (Z + Z.T) / np.sqrt(2))
    law = FreeConvolution(MarchenkoPastur(0.5), a)
    assert kstest(eigenvalues, law.cdf).statistic < 3 * np.log(d) / d


@pytest.mark.parametrize("sigma", [1e-2, 1e-6, 1e-11, 1e-15, 1e-40])
def test_hardly_blurred_atoms_keep_their_mass_and_place(sigma: float) -> None:
    """By residues, a component has `int x dmu = sum p s + sigma^2 sum p_i p_j/(s_i - s_j)`, j outside it.

    Atoms of small weight at a large place are narrower than its rounding error. `Re g` there has the square
    of a semicircle of variance `p sigma^2`, `4 sigma^2 int (Re g)^2 = p^2`, plus what the other atoms add.
    """
    values, weights = np.array([0.0, 1e-3, 1e-3 + 1e-6, 1e3]), np.array([0.5, 0.3, 0.2 - 1e-7, 1e-7])
    groups = Truncated(Discrete(tuple(values), tuple(weights)), np.array([sigma])).node_groups()[0][1]
    components = {}
    for nodes in groups:
        step = np.pi / nodes.x.shape[-1]
        for i, low in enumerate(nodes.low[0]):
            mass = nodes.mass[0, i] * step
            assert nodes.high[0, i] > low
            components[float(low)] = (
                mass.sum(),
                mass @ nodes.x[0, i],
                4 * sigma**2 * mass @ nodes.re_g[0, i] ** 2,
            )
    parts = biane_atoms(values, weights, sigma)
    assert len(components) == len(parts)
    for part, low in zip(parts, sorted(components), strict=True):
        mass, mean, square = components[low]
        p, s = weights[part], values[part]
        assert mass == pytest.approx(p.sum(), rel=1e-12)
        others = np.delete(np.arange(4), np.arange(4)[part])
        push = (p[:, None] * weights[others] / (s[:, None] - values[others])).sum()
        assert mean == pytest.approx(p @ s + sigma**2 * push, rel=1e-12, abs=1e-14 * sigma)
        if len(s) == 1:
            near = sigma**2 * (weights[others] / (s - values[others]) ** 2).sum()
            assert square == pytest.approx(p[0] ** 2, rel=1e-12 + 9 * near)


def test_a_law_of_many_atoms_has_the_mass_of_its_moments() -> None:
    """A bulk of 200 close atoms needs thousands of nodes if the next atom is about to join it."""
    k = np.arange(1, 401)
    law = Discrete(tuple((20.0 / k).tolist()), (1 / 400,) * 400)
    for sigma in np.linspace(1.0, 1.6, 7).tolist():
        x, mass = FreeConvolution(law, sigma).nodes()
        assert mass.sum() == pytest.approx(1.0, abs=1e-12)
        assert mass @ x**2 == pytest.approx(law.moment(2) + sigma**2, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("radius", "sigma"), [(1.0, 0.75), (0.5, 2.0)])
def test_a_semicircle_plus_a_semicircle_is_one(radius: float, sigma: float) -> None:
    """The base is none of the solved laws: 400 quantiles stand for it, within 1/800 of every probability."""
    law, exact = FreeConvolution(Semicircle(radius), sigma), Semicircle(float(np.hypot(radius, sigma)))
    assert law.approximation == "400 quantiles are used to approximate the base law Semicircle"
    x = np.linspace(*exact.support, 200)
    assert np.abs(law.cdf(x) - exact.cdf(x)).max() < 1 / 800
    assert np.abs(law.density(x) - exact.density(x)).max() < 1 / 100


@pytest.mark.slow
def test_any_law_can_be_blurred() -> None:
    """A law of attention plus noise, against eigenvalues of matrices of that kind."""
    base, rng, size = MultiHeadLaw(1.0, 4, 2.0), np.random.default_rng(7), 600
    noise = rng.standard_normal((size, size)) / np.sqrt(2 * size)
    values = np.linalg.eigvalsh(np.diag(base.quantile(rng.random(size))) + 1.5 * (noise + noise.T))
    law = FreeConvolution(base, 1.5)
    # Random eigenvalues on the diagonal fluctuate as a sample of 600 does; 1.63 is the 1% point of its KS.
    assert np.abs(law.cdf(values) - (np.arange(size) + 0.5) / size).max() < 1.63 / np.sqrt(size)


def test_quantiles_are_used_only_where_they_must() -> None:
    for base in (MarchenkoPastur(0.5), SymmetricProduct(0.5), Discrete((1.0,), (1.0,))):
        law = FreeConvolution(base, 0.5)
        assert law.approximation is None
        assert law.solved_base is base
