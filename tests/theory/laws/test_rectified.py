"""Soft thresholding of a blurred spectrum, and the optimal shrinkage."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.plain_convolution import integral

from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import Base, FreeConvolution, Truncated
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.transformed import Rectification, Rectified, Shrunk, rectify


def parts(base: Base, a: float, b: float) -> Rectification:
    return rectify(Truncated(base, np.array([a])), np.array([b]))


BASES: list[Base] = [
    MarchenkoPastur(0.1),
    MarchenkoPastur(0.5),
    MarchenkoPastur(2.0),
    Discrete((0.0, 1.0, 5.0), (0.6, 0.3, 0.1)),
]


@pytest.mark.parametrize("base", BASES, ids=str)
@pytest.mark.parametrize(("a", "b"), [(0.3, 0.1), (1.0, 0.0), (1.6, 1.2)])
def test_chi_is_the_derivative_of_J(base: Base, a: float, b: float) -> None:
    step = 1e-3 * a
    ahead = [parts(base, a + k * step, b).J[0] for k in (-2, -1, 1, 2)]
    slope = (ahead[0] - 8 * ahead[1] + 8 * ahead[2] - ahead[3]) / (12 * step)
    # Five-point rule: truncation of order step^4, rounding of order 1e-15/step.
    assert parts(base, a, b).chi[0] == pytest.approx(slope / (2 * a), rel=1e-8)


@pytest.mark.parametrize(("k0", "a", "b"), [(0.1, 0.3, 0.2), (0.5, 1.6, 1.3), (2.0, 0.5, 0.0)])
def test_integrals_agree_with_adaptive_quadrature(k0: float, a: float, b: float) -> None:
    integrals = parts(MarchenkoPastur(k0), a, b)
    assert integrals.J[0] == pytest.approx(integral(k0, a, lambda x, g: (x - b) ** 2, above=b), abs=3e-9)
    assert integrals.M1[0] == pytest.approx(integral(k0, a, lambda x, g: x - b, above=b), abs=3e-9)
    assert integrals.chi[0] == pytest.approx(
        2 * integral(k0, a, lambda x, g: (x - b) * g.real, above=b), abs=3e-9
    )


@pytest.mark.parametrize(("k0", "a", "b"), [(0.1, 0.3, 0.2), (0.5, 0.012, 0.005), (0.5, 0.01, 0.3)])
def test_distance_agrees_with_adaptive_quadrature(k0: float, a: float, b: float) -> None:
    """`Q - J - 2 b M1 + 2 a^2 chi` by quad, for a and b above and below the limit of what is small."""
    J = integral(k0, a, lambda x, g: (x - b) ** 2, above=b)
    M1 = integral(k0, a, lambda x, g: x - b, above=b)
    chi = 2 * integral(k0, a, lambda x, g: (x - b) * g.real, above=b)
    assert parts(MarchenkoPastur(k0), a, b).E[0] == pytest.approx(
        1 + k0 - J - 2 * b * M1 + 2 * a * a * chi, abs=3e-9
    )


@pytest.mark.parametrize("a", [1e-4, 1e-8])
@pytest.mark.parametrize("base", [MarchenkoPastur(0.5), Discrete((0.0, 1.0), (0.5, 0.5))], ids=str)
def test_distance_from_the_target_keeps_its_digits_where_noise_is_small(base: Base, a: float) -> None:
    """Half of the eigenvalues are zero, b = a: E/a^2 = 5/4 + 1/4 int_(x>t) (x-t)^2 rho_sc with t^2 = 2."""
    phi = np.pi / 4
    mass, first, second = (phi - 0.5) / np.pi, 4 * np.sin(phi) ** 3 / (3 * np.pi), phi / np.pi
    expected = 1.25 + (second - 2 * np.sqrt(2) * first + 2 * mass) / 4
    # Terms of relative order a times the mean of 1/s are left out.
    assert parts(base, a, a).E[0] / a**2 == pytest.approx(expected, rel=5 * a + 1e-12)


def test_the_law_has_the_moments_of_the_integrals() -> None:
    base, a, b, scale = MarchenkoPastur(0.5), 1.2, 0.7, 0.8
    law, known = Rectified(FreeConvolution(base, a), b, scale), parts(base, a, b)
    assert law.atoms[0] == (0.0, pytest.approx(1 - known.mass[0], abs=1e-12))
    assert law.moment(1) == pytest.approx(scale * known.M1[0], abs=1e-10)
    assert law.moment(2) == pytest.approx(scale**2 * known.J[0], abs=1e-10)


def test_principal_value_agrees_with_the_closed_transform() -> None:
    base = FreeConvolution(MarchenkoPastur(0.5), 1.0)
    law = Rectified(base, -9.0)  # nothing is cut: the law is the base moved by nine
    x = np.array([0.3, 1.0, 2.5])
    assert law.stieltjes(x + 9.0) == pytest.approx(base.stieltjes(x), abs=1e-9)


def test_shrinking_is_the_conditional_mean() -> None:
    base, a = MarchenkoPastur(0.5), 0.7
    law = Shrunk(FreeConvolution(base, a))
    square = integral(0.5, a, lambda x, g: (x - 2 * a * a * g.real) ** 2)
    assert law.moment(1) == pytest.approx(base.mean, abs=1e-10)
    assert law.moment(2) == pytest.approx(square, abs=3e-9)
    low, high = law.intervals[0]
    assert 0 <= low < high < FreeConvolution(base, a).intervals[0][1]
