"""Quadrature rules against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from attnlaw.numerics.quadrature import (
    angle_of,
    cosine_coefficients,
    gauss_legendre,
    integral_above,
    midpoint_angles,
)


def test_gauss_legendre_is_exact_for_polynomials() -> None:
    x, w = gauss_legendre(40)
    assert [w @ x**k for k in (0, 1, 30, 79)] == pytest.approx([1, 1 / 2, 1 / 31, 1 / 80], rel=1e-13)


def test_rules_are_shared_and_read_only() -> None:
    assert gauss_legendre(40)[0] is gauss_legendre(40)[0]
    with pytest.raises(ValueError):
        gauss_legendre(40)[0][0] = 0.0


def test_series_integrates_above_any_angle() -> None:
    theta = midpoint_angles(64)
    values = np.sin(theta) ** 2 / (1.3 - np.cos(theta))
    coefficients = cosine_coefficients(values)
    for start in (0.0, 0.4, 1.5, 3.0):
        expected = quad(lambda t: np.sin(t) ** 2 / (1.3 - np.cos(t)), start, np.pi, epsabs=1e-14)[0]
        assert integral_above(coefficients[None], np.array(start))[0] == pytest.approx(expected, abs=1e-12)


def test_angle_of_inverts_an_increasing_series() -> None:
    position = cosine_coefficients(-np.cos(midpoint_angles(64)) - 0.2 * np.cos(midpoint_angles(64)) ** 3)
    angles = np.array([0.01, 0.7, 2.2, 3.1])
    levels = -np.cos(angles) - 0.2 * np.cos(angles) ** 3
    assert angle_of(np.tile(position, (4, 1)), levels) == pytest.approx(angles, abs=1e-11)
