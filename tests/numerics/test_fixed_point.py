"""Solvers stop, and say how."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from attnlaw.numerics.fixed_point import accelerated_iteration, bracketed_roots


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5))
def test_roots_agree_with_brentq(levels: list[float]) -> None:
    wanted = np.array(levels)
    roots = bracketed_roots(
        lambda x, i: x + np.expm1(x) - wanted[i], np.zeros(wanted.size), np.full(wanted.size, 9.0)
    )
    for x, level in zip(roots.x, levels, strict=True):
        expected = brentq(lambda t, level=level: t + np.expm1(t) - level, 0.0, 9.0, xtol=1e-14)
        assert abs(x - expected) <= 1e-12 * max(expected, 1e-2)


def test_only_active_members_are_evaluated() -> None:
    sizes = []

    def function(x: np.ndarray, which: np.ndarray) -> np.ndarray:
        sizes.append(which.size)
        return np.where(which == 0, x, x**3 - 0.3)

    bracketed_roots(function, np.array([-1.0, 0.0]), np.array([1.0, 1.0]))
    assert sizes[0] == 2
    assert sizes[-1] == 1


def test_a_member_without_a_sign_change_keeps_its_better_end() -> None:
    roots = bracketed_roots(lambda x, i: x**2 + 1, np.array([1.0]), np.array([2.0]))
    assert roots.x[0] == 1.0
    assert roots.residual[0] == 2.0
    assert roots.steps == 0


@pytest.mark.parametrize("rate", [0.5, 0.99, 0.9999, -3.0])
def test_a_slow_or_unstable_linear_map_takes_few_steps(rate: float) -> None:
    """Secants are exact for a linear map; plain steps would number 1/(1 - rate)."""
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    slope, goal = turn @ np.diag([rate, 0.3]) @ turn.T, np.array([0.7, -0.2])
    result = accelerated_iteration(lambda x: goal + slope @ (x - goal), np.zeros(2), tolerance=1e-10)
    assert result.converged
    assert result.steps <= 8
    # What a residual leaves is up to 1/(1 - rate) times larger.
    assert np.abs(result.state - goal).max() <= 1e-10 / abs(1 - rate)


def test_the_error_tells_the_distance_of_a_slow_iteration() -> None:
    """x <- x + 1e-3 (1 - x): at a residual of 1e-6 the distance is 1e-3."""
    seen: list[float] = []

    def update(x: np.ndarray) -> np.ndarray:
        seen.append(float(x[0]))
        return x + 1e-3 * (1 - x) + 1e-7 * (1 - x) ** 2

    result = accelerated_iteration(update, np.array([0.99]), tolerance=2e-5)
    assert result.converged
    away = abs(float(result.state[0]) - 1)
    assert result.residual < 2e-3 * away + 1e-9
    assert 0.5 * away < result.error


def test_a_jumping_map_ends_on_a_plateau() -> None:
    """`x <- -sign(x)` has no fixed point."""
    result = accelerated_iteration(
        lambda x: np.where(x > 0, -1.0, 1.0), np.array([1.0]), patience=10, max_steps=1000
    )
    assert not result.converged
    assert result.steps < 20


def test_divergence_to_infinity_is_a_value() -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        result = accelerated_iteration(lambda x: np.exp(x * x), np.array([3.0]), damping=0.0)
    assert not result.converged
    assert np.all(np.isfinite(result.state))
