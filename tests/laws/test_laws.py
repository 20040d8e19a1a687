"""What every law must satisfy, and the closed forms of the classical ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from attnlaw.errors import InputError
from attnlaw.laws.discrete import Discrete
from attnlaw.laws.free_convolution import FreeConvolution
from attnlaw.laws.law import Law
from attnlaw.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.laws.rectified import Rectified
from attnlaw.laws.semicircle import Semicircle
from attnlaw.laws.shrunk import Shrunk

BLURRED = FreeConvolution(MarchenkoPastur(0.5), 0.4)
LAWS = {
    "semicircle": Semicircle(1.3),
    "marchenko-pastur low rank": MarchenkoPastur(0.3, 2.0),
    "marchenko-pastur full rank": MarchenkoPastur(2.5),
    "free convolution": BLURRED,
    "free convolution, two intervals": FreeConvolution(MarchenkoPastur(0.1), 0.2),
    "free convolution, discrete": FreeConvolution(Discrete((0.0, 1.0, 4.0), (0.5, 0.3, 0.2)), 0.7),
    "rectified": Rectified(BLURRED, 0.6, 1.2),
    "shrunk": Shrunk(BLURRED),
}


@pytest.fixture(params=LAWS, scope="module")
def law(request: pytest.FixtureRequest) -> Law:
    return LAWS[request.param]


def test_mass_is_one(law: Law) -> None:
    total = law.mass_of_atoms + law.nodes()[1].sum()
    # The convolution's own nodes and the generic angle rule at a kink: six digits are the coarsest (shrunk).
    assert total == pytest.approx(1.0, abs=1e-6)


def test_density_is_the_imaginary_part_of_the_transform(law: Law) -> None:
    low, high = law.intervals[-1]
    x = np.linspace(low, high, 9)[1:-1]
    assert -law.stieltjes(x).imag / np.pi == pytest.approx(law.density(x), abs=1e-12)


def test_transform_is_the_integral_of_the_density(law: Law) -> None:
    theta = (np.arange(3000) + 0.5) * np.pi / 3000
    for z in (law.support[1] + 0.5 + 0.3j, -1.0 - 2.0j):
        g = sum(weight / (z - place) for place, weight in law.atoms)
        for low, high in law.intervals:
            x = 0.5 * (low + high) - 0.5 * (high - low) * np.cos(theta)
            g += (law.density(x) / (z - x) * np.sin(theta)).sum() * 0.5 * (high - low) * np.pi / 3000
        # The coarsest are a jump of the density at zero (rectified) and a tabulated density (shrunk).
        assert law.stieltjes(np.array(z)) == pytest.approx(g, abs=2e-6)


def test_quantile_inverts_the_distribution_function(law: Law) -> None:
    levels = np.linspace(law.mass_of_atoms + 0.01, 0.99, 25)
    # The table is linear between 4000 angles: its error is the square of that step times the slope.
    assert law.cdf(law.quantile(levels)) == pytest.approx(levels, abs=1e-6)


def test_samples_follow_the_law(law: Law) -> None:
    draws = law.sample(2000, seed=7)
    continuous = draws[draws > law.quantile(law.mass_of_atoms)] if law.atoms else draws
    level = law.mass_of_atoms
    result = kstest(continuous, lambda x: (law.cdf(x) - level) / (1 - level))
    assert result.pvalue > 1e-3
    assert abs(1 - continuous.size / draws.size - level) < 4 * np.sqrt(0.25 / draws.size)


def test_real_transform_off_the_support_is_the_limit(law: Law) -> None:
    x = law.support[1] + np.array([0.4, 2.0])
    assert law.stieltjes(x) == pytest.approx(law.stieltjes(x + 1e-9j), abs=2e-6)  # shrunk: a table
    assert np.all(law.stieltjes(x).imag == pytest.approx(0.0, abs=1e-12))


def test_semicircle_moments_are_catalan_numbers() -> None:
    law = Semicircle(2.0)
    assert [law.moment(k) / 2.0**k for k in (0, 2, 4, 6, 8)] == pytest.approx([1, 1, 2, 5, 14], rel=1e-12)
    assert [law.moment(k) for k in (1, 3)] == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.parametrize("kappa", [0.2, 0.9, 1.0, 3.0])
def test_marchenko_pastur_moments(kappa: float) -> None:
    law = MarchenkoPastur(kappa)
    # Moments of W W^T / sqrt(m d): Narayana polynomials in kappa over kappa^(k/2).
    expected = [kappa, kappa + kappa**2, kappa + 3 * kappa**2 + kappa**3]
    found = [law.moment(k) * kappa ** (k / 2) for k in (1, 2, 3)]
    assert found == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("kappa", [0.2, 1.0, 3.0])
def test_marchenko_pastur_closed_distribution_function(kappa: float) -> None:
    law = MarchenkoPastur(kappa)
    for x in np.linspace(*law.intervals[0], 6)[1:]:
        expected = (
            law.mass_of_atoms + quad(lambda t: float(law.density(t)), law.intervals[0][0], x, limit=200)[0]
        )
        assert law.cdf(x) == pytest.approx(expected, abs=1e-7)
    assert law.cdf(law.quantile([0.85, 0.95])) == pytest.approx([0.85, 0.95], abs=1e-13)


def test_marchenko_pastur_is_the_spectrum_of_a_gaussian_product() -> None:
    d, m = 400, 200
    W = np.random.default_rng(3).normal(size=(d, m))
    eigenvalues = np.linalg.eigvalsh(W @ W.T / np.sqrt(m * d))[d - m :]
    law = MarchenkoPastur(m / d)
    distance = kstest(eigenvalues, lambda x: (law.cdf(x) - 0.5) / 0.5).statistic
    # Eigenvalues are rigid: the distance is of order log(d)/d, far below 1/sqrt(m).
    assert distance < 3 * np.log(d) / d


def test_discrete_law() -> None:
    law = Discrete((3.0, 0.0), (0.25, 0.75))
    assert law.atoms == ((0.0, 0.75), (3.0, 0.25))
    assert law.cdf([-1.0, 0.0, 2.9, 3.0]).tolist() == [0.0, 0.75, 0.75, 1.0]
    assert law.stieltjes(2.0 + 1j) == pytest.approx(0.75 / (2 + 1j) + 0.25 / (-1 + 1j))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Semicircle(0.0),
        lambda: MarchenkoPastur(-1.0),
        lambda: MarchenkoPastur(1.0, 0.0),
        lambda: Discrete((1.0,), (0.5,)),
        lambda: Discrete((), ()),
        lambda: FreeConvolution(MarchenkoPastur(1.0), 0.0),
        lambda: FreeConvolution(Semicircle(1.0), 1.0),  # type: ignore[arg-type]
        lambda: Semicircle(1.0).quantile(1.5),
    ],
)
def test_bad_laws_are_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]
