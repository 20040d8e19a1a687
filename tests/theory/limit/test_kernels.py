"""Activations and kernels compared with quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.special import ndtr
from scipy.stats import norm

from attnlaw.core.errors import InputError
from attnlaw.theory.limit.kernels import (
    activation,
    apply,
    gelu,
    gelu_kernel,
    kernel_map,
    mehler_kernel,
    moments,
    relu_kernel,
)

CASES = [(1.0, 1.0, 0.0), (0.5, 2.0, 0.6), (1.5, 0.3, -0.5)]


def kernel(function, *arguments: float) -> float:
    return float(function(*(np.array([value]) for value in arguments))[0])


@pytest.mark.parametrize(("a", "b", "c"), CASES)
def test_relu_kernel_by_quadrature(a, b, c):
    # u = sqrt(a) x, v = c/sqrt(a) x + sqrt(b - c^2/a) z; both are positive from their kinks on.
    slope, rest = c / math.sqrt(a), math.sqrt(b - c * c / a)

    def integrand(z: float, x: float) -> float:
        return math.sqrt(a) * x * (slope * x + rest * z) * math.exp(-(x * x + z * z) / 2) / (2 * math.pi)

    total, _ = dblquad(
        integrand, 0, 9, lambda x: -slope * x / rest, lambda x: 9 - slope * x / rest, epsabs=1e-9
    )
    assert kernel(relu_kernel, a, b, c) == pytest.approx(total, abs=1e-7)


@pytest.mark.parametrize(("a", "b", "c"), CASES)
def test_gelu_kernel_by_quadrature(a, b, c):
    # GELU is analytic: Gauss-Hermite rules of 60 and 80 points agree to the tolerance.
    totals = []
    for points in (60, 80):
        x, w = np.polynomial.hermite_e.hermegauss(points)
        u = math.sqrt(a) * x[:, None]
        v = c / math.sqrt(a) * x[:, None] + math.sqrt(b - c * c / a) * x
        totals.append(float((w[:, None] * w * u * ndtr(u) * v * ndtr(v)).sum()) / (2 * math.pi))
    assert totals[0] == pytest.approx(totals[1], abs=1e-8)
    assert kernel(gelu_kernel, a, b, c) == pytest.approx(totals[1], abs=1e-8)


@pytest.mark.parametrize(("a", "b", "c"), CASES)
def test_the_series_of_gelu_against_its_closed_form(a, b, c):
    matrix = mehler_kernel(gelu, np.array([[a, c], [c, b]]))
    assert matrix[0, 1] == pytest.approx(kernel(gelu_kernel, a, b, c), abs=1e-13)
    # On the diagonal the terms that are left out are E psi^2 - sum c_k^2: below 1e-12 up to variance 2.
    for place, variance in enumerate((a, b)):
        assert matrix[place, place] == pytest.approx(kernel(gelu_kernel, *[variance] * 3), abs=1e-12)


@pytest.mark.parametrize("name", ["gelu_new", "silu"])
@pytest.mark.parametrize(("a", "b", "c"), CASES)
def test_kernels_by_series_against_quadrature(name, a, b, c):
    # Rules of 60 and 90 points agree to the tolerance: both functions have poles off the real line.
    totals = []
    for points in (60, 90):
        x, w = np.polynomial.hermite_e.hermegauss(points)
        u = math.sqrt(a) * x[:, None]
        v = c / math.sqrt(a) * x[:, None] + math.sqrt(b - c * c / a) * x
        totals.append(float((w[:, None] * w * apply(name, u) * apply(name, v)).sum()) / (2 * math.pi))
    assert totals[0] == pytest.approx(totals[1], abs=1e-6)
    assert kernel_map(name, np.array([[a, c], [c, b]]))[0, 1] == pytest.approx(totals[1], abs=1e-6)


@pytest.mark.parametrize("name", ["identity", "relu", "gelu", "gelu_new", "silu", "clip:0.5", "clip:3"])
def test_moments_by_quadrature(name):
    def moment(k: int) -> float:
        return quad(
            lambda g: float(apply(name, np.array([g]))[0]) ** k * norm.pdf(g),
            -12,
            12,
            points=[-3, -0.5, 0, 0.5, 3],
            epsabs=1e-12,
        )[0]

    second_moment, squared_mean = moments(name)
    assert second_moment == pytest.approx(moment(2), abs=1e-9)
    assert squared_mean == pytest.approx(moment(1) ** 2, abs=1e-9)


def test_kernel_map_handles_parallel_and_zero_tokens():
    gram = np.array([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(kernel_map("relu", gram), gram / 2, atol=1e-12)
    assert np.isfinite(kernel_map("gelu", gram)).all()


@pytest.mark.parametrize("name", ["swish", "clip", "clip:", "clip:-1", "clip:nan", "clip:inf", "clip:C"])
def test_unknown_activations_are_refused(name):
    with pytest.raises(
        InputError, match=r"expected one of identity, relu, .*gelu_new, .*clip:C.*, for example .*clip:2"
    ):
        activation(name)
