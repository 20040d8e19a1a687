"""Closed forms of the classical laws, and the errors they raise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from attnlaw.core.errors import InputError
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import FreeConvolution
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.semicircle import Semicircle


def test_semicircle_moments_are_catalan_numbers() -> None:
    law = Semicircle(2.0)
    assert [law.moment(k) / 2.0**k for k in (0, 2, 4, 6, 8)] == pytest.approx([1, 1, 2, 5, 14], rel=1e-12)
    assert [law.moment(k) for k in (1, 3)] == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.parametrize("kappa", [0.2, 0.9, 1.0, 3.0])
def test_marchenko_pastur_moments(kappa: float) -> None:
    law = MarchenkoPastur(kappa)
    # Moments of W W^T / sqrt(m d): Narayana polynomials in kappa over kappa^(k/2).
    expected = [kappa, kappa + kappa**2, kappa + 3 * kappa**2 + kappa**3]
    moments = [law.moment(k) * kappa ** (k / 2) for k in (1, 2, 3)]
    assert moments == pytest.approx(expected, rel=1e-11)


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
        lambda: FreeConvolution(Semicircle(1.0), -1.0),
        lambda: Semicircle(1.0).quantile(1.5),
    ],
)
def test_bad_laws_are_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]
