"""Proximal operators against brute minimisation, their pull against differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from attnlaw.numerics.prox import HINGE, LOGISTIC, SQUARE, Loss

LOSSES = [SQUARE, LOGISTIC, HINGE]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("V", [0.01, 0.7, 4.5, 26.0, 3000.0])
def test_against_brute_minimisation(loss: Loss, V: float) -> None:
    omega = np.array([-2 * V - 3, -V, -0.9, 0.0, 0.4, 1.7, 40.0])
    for y in (-1.0, 1.0):
        z = loss.proximal(np.full(omega.size, y), omega, V)
        for place, minimiser in zip(omega, z, strict=True):

            def objective(x: float, y: float = y, place: float = place) -> float:
                return float(loss.value(np.array([y]), np.array([x]))[0]) + (x - place) ** 2 / (2 * V)

            best = minimize_scalar(
                objective, bounds=(place - V * (2 + abs(place)) - 1, place + V * (2 + abs(place)) + 1)
            )
            # A minimiser by values alone is right to the root of round-off; no value may be lower.
            assert objective(float(minimiser)) <= best.fun + 1e-12 * (1 + abs(best.fun))
            assert abs(minimiser - best.x) < 1e-3 * (1 + abs(best.x)) * max(1.0, V**0.5)


@pytest.mark.parametrize("V", [4.0, 26.196437, 500.0, 1e6])
def test_the_logistic_equation_is_solved_to_round_off(V: float) -> None:
    """Newton's method from elsewhere falls into cycles here."""
    omega = np.linspace(-2 * V, 20, 4001)
    z = LOGISTIC.proximal(np.ones_like(omega), omega, V)
    tail = 1 / (1 + np.exp(z))
    rise = 1 + V * tail * (1 - tail)
    left = np.abs(z - omega - V * tail) / rise  # the distance to the root
    assert (left / (1 + np.abs(z) + np.abs(omega) / rise)).max() < 2e-15


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("V", [0.0, 0.5, 3.0])
def test_the_pull_and_its_slope(loss: Loss, V: float) -> None:
    omega = np.array([-4.1, -1.3, 0.25, 0.8, 2.2])  # off the corners 1 - V and 1
    y, h = np.ones(5), 1e-6
    g, bend = loss.pull(y, omega, V)
    if V > 0:
        assert g == pytest.approx((loss.proximal(y, omega, V) - omega) / V, abs=1e-13)
    difference = (loss.pull(y, omega + h, V)[0] - loss.pull(y, omega - h, V)[0]) / (2 * h)
    assert bend == pytest.approx(-difference, abs=1e-8)


def test_labels_mirror() -> None:
    omega = np.linspace(-5, 5, 11)
    for loss in (LOGISTIC, HINGE):
        left = loss.proximal(-np.ones(11), omega, 2.0)
        assert left == pytest.approx(-loss.proximal(np.ones(11), -omega, 2.0), abs=1e-15)
