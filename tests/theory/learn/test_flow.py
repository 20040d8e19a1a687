"""Gradient flow on a fixed data set: reference values, its end, small steps, trained matrices; factors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from theory.learn.early_modes import first_mode, half_time, least_flow_error, population_mode, small_start

from attnlaw.core.errors import BadSetting, as_option
from attnlaw.theory.learn.agreement import agreement
from attnlaw.theory.learn.data import draw_risk, hidden_target
from attnlaw.theory.learn.problem import ObservationGroup, Problem, Target
from attnlaw.theory.learn.simulate import simulate
from attnlaw.theory.learn.solvers import train_flow
from attnlaw.theory.learn.state_evolution import state_evolution, state_evolutions
from attnlaw.theory.learn.students import STUDENTS
from attnlaw.verbs.learn import VERB


def direct(alpha: float, time: float | None, decay: float = 0.0, **more: Any) -> Problem:
    given = {"noise": 0.5, "attention": "untied"} | more
    return Problem(alpha, weight_decay=decay, student="direct", flow_time=time, **given)


# Solved by other code; Gaussian sensing at d = 40 beside it: root mean square of 56 scores .59.
@pytest.mark.parametrize(
    ("alpha", "time", "error", "loss"),
    [
        (1.5, 0.5, 0.41090, 0.30702),
        (1.5, 2.0, 0.26034, 0.12405),
        (1.5, 8.0, 0.33872, 0.08790),
        (0.7, 0.5, 0.65925, None),
        (0.7, 2.0, 0.53455, None),
        (0.7, 8.0, 0.60531, None),
    ],
)
def test_reference_values(alpha: float, time: float, error: float, loss: float | None) -> None:
    prediction = state_evolution(direct(alpha, time))
    assert prediction.estimation_error.value == pytest.approx(error, abs=5.1e-6)
    if loss is not None:
        assert prediction.training_loss.value == pytest.approx(loss, abs=5.1e-6)
    assert prediction.spectrum.moment(2) == pytest.approx(prediction.norm.value, rel=1e-9)
    E = 1 - 2 * prediction.overlap.value + prediction.norm.value
    assert prediction.estimation_error.value == pytest.approx(E, rel=1e-9)


@pytest.mark.parametrize(
    ("attention", "alpha", "tokens"), [("untied", 0.7, 1), ("tied", 0.2, 1), ("tied", 0.1, 3)]
)
def test_its_end_is_the_ridge(attention: str, alpha: float, tokens: int) -> None:
    """Tied at alpha .2, lambda .1: 1.022695, .044878, .563357, as the ridge has it."""
    end = direct(alpha, 1e6, 0.1, attention=attention, tokens=tokens)
    late, ridge = state_evolutions([end, replace(end, flow_time=None)])
    for name in ("estimation_error", "training_loss", "overlap", "norm"):
        assert getattr(late, name).value == pytest.approx(getattr(ridge, name).value, rel=1e-8), name
    if (attention, tokens) == ("tied", 1):
        values = [late.estimation_error.value, late.training_loss.value, late.norm.value]
        assert values == pytest.approx([1.022695, 0.044878, 0.563357], abs=5.1e-7)


@pytest.mark.parametrize(
    ("alpha", "stopped", "best"),
    [(0.5, 0.64507, 0.64039), (1.0, 0.40003, 0.39039), (1.5, 0.25917, 0.25), (3.0, 0.10953, 0.10611)],
)
def test_early_stopping_costs_little(alpha: float, stopped: float, best: float) -> None:
    def error(log_time: float) -> float:
        return state_evolution(direct(alpha, float(np.exp(log_time)))).estimation_error.value

    least = minimize_scalar(error, bounds=(-3, 4), method="bounded", options={"xatol": 1e-5})
    assert least.fun == pytest.approx(stopped, abs=6e-6)
    ridge = state_evolution(direct(alpha, None, 0.25)).estimation_error.value
    assert ridge == pytest.approx(best, abs=6e-6)
    assert 1.007 < least.fun / ridge < 1.038


def test_early_stopping_costs_at_most_four_percent() -> None:
    """3.9%, near alpha_P = 1.9."""

    def cost(alpha: float) -> float:
        times = np.exp(np.linspace(0.2, 1.6, 60))
        stopped = state_evolutions([direct(alpha, float(time)) for time in times])
        ridge = state_evolution(direct(alpha, None, 0.25)).estimation_error.value
        return min(prediction.estimation_error.value for prediction in stopped) / ridge - 1

    before, most, after = (cost(alpha) for alpha in (1.6, 1.9, 2.2))
    assert most == pytest.approx(0.039, abs=5e-4)
    assert most > max(before, after)


def test_small_steps_of_gradient_descent_reach_the_same_matrix() -> None:
    """Steps of size eta on the summed risk: `t = 2 d eta steps`; Euler's error halves with the step."""
    problem = direct(0.8, 1.5, 0.1)
    rng = np.random.default_rng(0)
    teacher = hidden_target(problem.target.quantiles(8), rng)
    risk = draw_risk(problem, teacher, 51, "ginibre", rng)
    exact = train_flow(risk, 0.1, 1.5).matrix

    def euler(steps: int) -> np.ndarray:
        matrix, eta = np.zeros((8, 8)), 1.5 / (2 * 8 * steps)
        for _ in range(steps):
            matrix = matrix - eta * (risk(matrix)[1] + 2 * 0.1 * 8 * matrix)
        return matrix

    far, near = (np.linalg.norm(euler(steps) - exact) for steps in (400, 800))
    assert near == pytest.approx(far / 2, rel=0.02)
    assert near < 2e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize("attention", ["tied", "untied"])
def test_trained_students_agree_in_time(attention: str) -> None:
    """Gaussian sensing, d = 20, twelve seeds: within four standard errors."""
    sensing = {"tied": "goe", "untied": "ginibre"}[attention]
    problem = direct(0.7, 2.0, 0.05, attention=attention)
    report = agreement(state_evolution(problem), [simulate(problem, size=20, seeds=12, sensing=sensing)])
    assert report.worst < 4
    assert report.spectrum_distance < 0.06


@pytest.mark.parametrize(("value", "time"), [(3.0, 1.603), (2.2, 2.115), (1.6, 2.808), (1.1, 3.915)])
def test_modes_of_factors_appear_in_order_of_size(value: float, time: float) -> None:
    """eps = .02; trained at d = 40: 1.575(18), 2.123(22), 2.824(35), 3.915(62)."""
    start = small_start(0.02)
    assert half_time(value, start) == pytest.approx(time, abs=6e-4)
    t, step = half_time(value, start), 1e-5
    curve = population_mode(value, start, np.array([0.0, t - step, t, t + step]))
    assert (curve[0], curve[2]) == pytest.approx((start, value / 2), rel=1e-9)
    # ds/dt = 2 s (value - s), the flow of balanced factors.
    slope = (curve[3] - curve[1]) / (2 * step)
    assert slope == pytest.approx(2 * curve[2] * (value - curve[2]), rel=1e-6)


def test_the_first_mode_is_seen_through_all_of_the_noise() -> None:
    """d = 40, four values, Delta .5, alpha_P 4; trained: 3.00(10), 2.296(38), 1.663(34), 1.266(24)."""
    values = [3.0, 2.2, 1.6, 1.1]
    delta2 = (sum(s * s for s in values) / 40 + 0.25) / 4
    lone = Target.discrete([0.0, 1e-9])  # the rest is zero
    lone_first = [s + delta2 / s for s in values]
    assert lone_first == pytest.approx([3.058, 2.278, 1.708, 1.257], abs=6e-4)
    first_modes = [first_mode(lone, 1.0, 2 * delta2, s) for s in values]
    assert first_modes == pytest.approx(lone_first, rel=1e-9)


@pytest.mark.parametrize(
    ("alpha", "deviation", "error"),
    [(1.5, 0.02, 0.1375), (1.5, 0.1, 0.1331), (1.5, 0.01, 0.1394), (3.0, 0.02, 0.0534), (8.0, 0.02, 0.0173)],
)
def test_least_error_of_factors_over_time(alpha: float, deviation: float, error: float) -> None:
    """A heuristic; trained at eps = .02: .1404(44), .0528(7), .0174(5)."""
    least_error = least_flow_error(Target.product(0.3), alpha, 0.5, small_start(deviation))
    assert least_error == pytest.approx(error, abs=6e-5)


def test_refusals() -> None:
    def error_message(**given: Any) -> str:
        with pytest.raises(BadSetting) as caught:
            VERB.cases(given)
        return caught.value.message(as_option)

    flowing = " or ".join(name for name, student in STUDENTS.items() if student.has_flow)
    assert error_message(flow_time=2.0) == (
        f"--flow-time needs --student {flowing}; for factors, use attnlaw dynamics"
    )
    assert error_message(flow_time=2.0, student="bayes").startswith(f"--flow-time needs --student {flowing}")
    assert error_message(flow_time=2.0, student="direct", output="softmax", tokens=2).startswith(
        "--flow-time needs --output linear"
    )
    with pytest.raises(BadSetting, match="flow_time cannot be combined with groups"):
        Problem(0.2, student="direct", flow_time=1.0, groups=(ObservationGroup(),))
