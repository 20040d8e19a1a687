"""Trained untied students beside reference runs: self pairs, flow, factors in time.

Where `long`, the sizes are those of the reference runs, the seeds 0 to K - 1.
"""

from __future__ import annotations

import numpy as np
import pytest
from theory.learn.early_modes import half_time, small_start

from attnlaw.theory.learn.data import draw_pairs, draw_risk, hidden_target
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.risk import Linear, Risk
from attnlaw.theory.learn.simulate import simulate
from attnlaw.theory.learn.solvers import PAIR_FACTORS, train_direct, train_factors
from attnlaw.theory.learn.state_evolution import state_evolution

VALUES = np.array([3.0, 2.2, 1.6, 1.1])  # the only singular values of a target of d = 40


def mean_and_error(samples: list) -> tuple[np.ndarray, np.ndarray]:
    return np.mean(samples, axis=0), np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))


def test_factors_under_infinite_data_learn_modes_in_order() -> None:
    """d = 40, eps = .02, small steps: half heights as the logistic has them, within four errors and a step.

    Reference runs: 1.575(18), 2.123(22), 2.824(35), 3.915(62).
    """
    d, eps, step, half_times = 40, 0.02, 0.01, []
    target = np.diag(np.append(VALUES, np.zeros(d - 4)))
    for seed in range(6):
        first, second = eps * np.random.default_rng(seed).standard_normal((2, d, d))
        reached = np.zeros(4)
        for count in range(1, 600):
            miss = first @ second.T / d - target
            first, second = first - step * miss @ second, second - step * miss.T @ first
            height = np.einsum("ik,ik->i", first[:4], second[:4]) / d
            reached[(reached == 0) & (height > VALUES / 2)] = step * count
        assert list(np.argsort(reached)) == [0, 1, 2, 3]
        half_times.append(reached)
    mean, error = mean_and_error(half_times)
    expected = [half_time(float(s), small_start(eps)) for s in VALUES]
    # Euler's steps are late by about s step/2 of an e-fold each: a step of the clock at these rates.
    assert np.all(np.abs(mean - expected) < 4 * error + 2 * VALUES * step * np.array(expected) / 2 + step)


def test_the_first_modes_are_seen_through_all_of_the_noise() -> None:
    """The gradient at zero, tokens, d = 40, alpha_P = 4, Delta = .5: top values of `S* + delta0 Z`.

    Reference runs of four seeds: 3.00(10), 2.296(38), 1.663(34), 1.266(24).
    """
    d, top_values = 40, []
    target = Target.discrete([0.0, 1.0], [0.9, 0.1])
    problem = Problem(4.0, target=target, noise=0.5, weight_decay=0.1, attention="untied")
    for seed in range(12):
        rng = np.random.default_rng(seed)
        teacher = hidden_target(np.append(VALUES, np.zeros(d - 4)), rng)
        risk = draw_risk(problem, teacher, 4 * d * d, "tokens", rng)
        seen = risk.sensing.adjoint(risk.labels) / (4.0 * d)
        top_values.append(np.linalg.svd(seen, compute_uv=False)[:4])
    mean, error = mean_and_error(top_values)
    # Noise of tokens is larger in the direction of a mode, by s^2/d: 5% of the shift or less.
    assert np.all(np.abs(mean - [3.058, 2.278, 1.708, 1.257]) < 4 * error + 0.01)


def all_pairs_risk(
    size: int, tokens: int, alpha: float, self_noise: float, seed: int
) -> tuple[Risk, np.ndarray]:
    """Labels of all ordered pairs, noise 1/4 on those of two tokens and `self_noise` on self pairs."""
    rng = np.random.default_rng(seed)
    teacher = hidden_target(Target.product(0.3 if tokens == 2 else 0.5).quantiles(size), rng)
    seen = draw_pairs(round(alpha * size**2), tokens, "all", size, rng)
    variance = np.array([self_noise if a == b else 0.25 for a, b in seen.places])
    clean = seen.fields(teacher)
    labels = clean + np.sqrt(variance) * rng.standard_normal(clean.shape)
    return Risk(seen, Linear(np.ones(clean.shape), ordered=True), labels), teacher


@pytest.mark.long
@pytest.mark.parametrize(("self_noise", "error", "deviation"), [(0.25, 0.466, 0.007), (0.5, 0.540, 0.008)])
def test_why_self_pairs_are_refused(self_noise: float, error: float, deviation: float) -> None:
    """Factors, T = 2, alpha .15, d = 50: well above .413, which the count of pairs would say."""
    errors = []
    for seed in range(8):
        risk, teacher = all_pairs_risk(50, 2, 0.15, self_noise, seed)
        learned = train_factors(risk, 0.5, np.random.default_rng(seed), form=PAIR_FACTORS).matrix
        errors.append(float(((learned - teacher) ** 2).sum() / 50))
    mean, standard_error = mean_and_error(errors)
    assert abs(mean - error) < 4 * np.hypot(standard_error, deviation)
    assert mean - 0.413 > 4 * standard_error


@pytest.mark.long
@pytest.mark.parametrize(("size", "symmetric", "deviation"), [(30, 0.2099, 0.0031), (60, 0.2000, 0.0034)])
def test_all_pairs_of_the_direct_student_from_tokens(size: int, symmetric: float, deviation: float) -> None:
    """T = 4, alpha .08, Delta .5, lambda .1: both parts of the error come down to .17722 and .22792."""
    errors = []
    for seed in range(8):
        risk, teacher = all_pairs_risk(size, 4, 0.08, 0.5, seed)
        miss = train_direct(risk, 0.1).matrix - teacher
        parts = (miss + miss.T) / 2, (miss - miss.T) / 2
        errors.append([float((part**2).sum() / size) for part in parts])
    mean, standard_errors = mean_and_error(errors)
    assert abs(mean[0] - symmetric) < 4 * np.hypot(standard_errors[0], deviation)
    assert abs(mean[1] - 0.2226) < 4 * np.hypot(standard_errors[1], 0.002) + 0.2226 / size


@pytest.mark.long
def test_flow_on_tokens() -> None:
    """Direct student, alpha_P 1.5, t = 2, Delta .5, no decay: .26034 in the limit, for every k0.

    Reference runs: .2741(30), .2651(29), .2647(15) at d = 30, 45, 80; the first is run here.
    """
    problem = Problem(
        1.5,
        target=Target.product(1.0),
        noise=0.5,
        weight_decay=0.0,
        student="direct",
        flow_time=2.0,
        attention="untied",
    )
    assert state_evolution(problem).estimation_error.value == pytest.approx(0.26034, abs=5.1e-6)
    estimate = simulate(problem, size=30, seeds=8).estimation_error
    assert abs(estimate.value - 0.2741) < 4 * np.hypot(estimate.error, 0.0030)
