"""Kernel ridge as linear ridge: slopes by quadrature, reference ratios, fitted kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from theory.regression.agree import holds, z_score
from theory.regression.test_risk import two_groups

from attnlaw.core.errors import InputError
from attnlaw.theory.limit.kernels import apply, linearised
from attnlaw.theory.regression.kernels import (
    KERNELS,
    effective_weights,
    kernel_matrix,
    kernel_weights,
    linear_equivalent,
)
from attnlaw.theory.regression.risk import ridge_risk
from attnlaw.theory.regression.simulate import simulate_kernel_ridge, simulate_ridge


@pytest.mark.parametrize("name", ["identity", "relu", "gelu"])
@pytest.mark.parametrize("variance", [0.3, 1.0, 2.2])
def test_slope_and_remainder_by_quadrature(name: str, variance: float) -> None:
    """Stein: E psi'(u) = E u psi(u)/v. The slope of GELU is 1/4 at every variance, as that of ReLU."""

    def mean(function) -> float:
        density = lambda u: math.exp(-u * u / (2 * variance)) / math.sqrt(2 * math.pi * variance)  # noqa: E731
        both = (
            quad(lambda u: function(u) * density(u), *ends, epsabs=1e-13)[0] for ends in ((-30, 0), (0, 30))
        )
        return sum(both)

    psi = lambda u: float(apply(name, np.array([u]))[0])  # noqa: E731
    slope, remainder = linearised(name, variance)
    assert slope == pytest.approx((mean(lambda u: u * psi(u)) / variance) ** 2, abs=1e-10)
    assert slope == pytest.approx(1.0 if name == "identity" else 0.25, abs=1e-11)
    left = mean(lambda u: psi(u) ** 2) - mean(psi) ** 2 - slope * variance
    assert remainder == pytest.approx(left, abs=1e-10)


def test_an_activation_without_a_kernel_is_refused() -> None:
    with pytest.raises(
        InputError, match="activation: found 'clip:2', expected an activation whose kernel is known"
    ):
        linearised("clip:2", 1.0)
    with pytest.raises(InputError, match=f"kernel: found 'cubic', expected one of {', '.join(KERNELS)}$"):
        linear_equivalent(two_groups(20), "cubic")


def test_what_is_left_of_importance_weights() -> None:
    """tau 1 and 2.2: second over first is .130 and .777 at ridge .01 and 1; with equal weights .125, .252."""
    for ridge, weighted, equal in ((0.01, 0.130, 0.125), (1.0, 0.777, 0.252)):
        for weights, ratio in (((0.25, 4.0), weighted), ((1.0, 1.0), equal)):
            first, second = kernel_weights(two_groups(200, weights, ridge), "exp")
            assert second / first == pytest.approx(ratio, abs=5.1e-4)
    gamma = [math.e - 2, math.exp(2.2) - 3.2]
    assert gamma == pytest.approx([0.7183, 5.8250], abs=5e-5)
    assert kernel_weights(two_groups(200, (0.25, 4.0), 0.5), "exp") == pytest.approx(
        effective_weights([0.25, 4.0], 1.0, gamma, 0.5), rel=1e-12
    )


def test_the_identity_is_linear_ridge() -> None:
    """Kernel ridge K + ridge with K = X X^T/p is ridge regression with ridge p/n; by theory and by fits."""
    kernel, linear = two_groups(60, (0.25, 4.0), 0.3), two_groups(60, (0.25, 4.0), 0.3 / 1.5)
    assert ridge_risk(linear_equivalent(kernel, "identity")).excess == pytest.approx(
        ridge_risk(linear).excess, rel=1e-10
    )
    fitted, linear_fit = simulate_kernel_ridge(kernel, "identity", seeds=1), simulate_ridge(linear, seeds=1)
    # The same inputs; 1000 test inputs instead of their covariance.
    assert fitted.variance.value == pytest.approx(linear_fit.variance.value, rel=0.1)
    assert fitted.bias.value == pytest.approx(linear_fit.bias.value, rel=0.25)


def test_the_matrix_of_a_wide_layer() -> None:
    """E psi(w.x) psi(w.y) over 200,000 drawn neurons w ~ N(0, I/p)."""
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((4, 7)), rng.standard_normal((200_000, 7)) / 7**0.5
    for name in ("relu", "gelu"):
        out = apply(name, X @ W.T)
        products = out[:, None] * out
        error = products.std(axis=-1) / 200_000**0.5
        assert (np.abs(products.mean(axis=-1) - kernel_matrix(name, X, X)) < 5 * error).all()


def family(cases, sizes, seeds) -> list[float]:
    scores = []
    for place, (kernel, weights, ridge) in enumerate(cases):
        pairs = []
        for p, count in zip(sizes, seeds, strict=True):
            problem = two_groups(p, weights, ridge)
            limit = ridge_risk(linear_equivalent(problem, kernel))
            pairs.append((simulate_kernel_ridge(problem, kernel, seeds=count, seed=place), limit))
        for name in ("bias", "variance"):
            ratios = [getattr(m, name) / getattr(t, name) for m, t in pairs]
            scores.append(z_score(1.0, sizes, ratios))
    return scores


@pytest.mark.slow
def test_fitted_kernels_tend_to_the_theory() -> None:
    """Corrections are 3 to 30 per cent: extrapolated in 1/p. Each case has inputs of its own.

    A first family, p = 60, 120, 240 with 48, 24, 12 draws that both cases shared, failed: its rms was 1.66
    (-1.8, 1.9, -1.0, 1.8). On shared draws the cases have correlations of 0.92 (bias) and 0.87 (variance), so
    its four z were worth two, which are so far out in 6 of 100 families. With 150 draws a size p (ratio - 1)
    of the variance is the same at 40, 60 and 120: no bias beyond 1/p.
    """
    cases = [("exp", (0.25, 4.0), 0.1), ("relu", (0.25, 4.0), 0.01)]
    scores = family(cases, (40, 60, 120), (150, 100, 50))
    assert holds(scores), scores


@pytest.mark.long
def test_larger_kernels_tend_to_the_theory() -> None:
    cases = [
        ("exp", (0.25, 4.0), 0.1),
        ("relu", (0.25, 4.0), 0.01),
        ("exp", (1.0, 1.0), 1.0),
        ("gelu", (0.25, 4.0), 0.1),
    ]
    scores = family(cases, (100, 200, 400), (64, 32, 16))
    assert holds(scores), scores
