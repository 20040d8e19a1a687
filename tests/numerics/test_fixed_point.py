"""Solvers stop, and say how."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from attnlaw.numerics.fixed_point import bracketed_roots, damped_iteration


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5))
def test_roots_agree_with_brentq(levels: list[float]) -> None:
    wanted = np.array(levels)
    found = bracketed_roots(
        lambda x, i: x + np.expm1(x) - wanted[i], np.zeros(wanted.size), np.full(wanted.size, 9.0)
    )
    for x, level in zip(found.x, levels, strict=True):
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
    found = bracketed_roots(lambda x, i: x**2 + 1, np.array([1.0]), np.array([2.0]))
    assert found.x[0] == 1.0
    assert found.residual[0] == 2.0
    assert found.steps == 0


def test_a_cycle_ends_on_a_plateau() -> None:
    result = damped_iteration(lambda x: -x, np.array([1.0]), damping=0.0, patience=10, max_steps=1000)
    assert not result.converged
    assert result.steps < 20


def test_divergence_to_infinity_is_a_value() -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        result = damped_iteration(lambda x: np.exp(x * x), np.array([3.0]), damping=0.0)
    assert not result.converged
    assert np.all(np.isfinite(result.state))
