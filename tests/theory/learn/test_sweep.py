"""Curves, and the best weight decay."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from attnlaw.core.errors import InputError
from attnlaw.theory.learn.problem import ObservationGroup, Problem, Target
from attnlaw.theory.learn.state_evolution import best_weight_decay, curve, state_evolution

PROBLEM = Problem(0.3, target=Target.marchenko_pastur(0.3), noise=0.5)


def test_best_regularisation_row() -> None:
    factorized = best_weight_decay(PROBLEM)
    direct = best_weight_decay(replace(PROBLEM, student="direct"))
    bayes = state_evolution(replace(PROBLEM, student="bayes"))
    errors = [
        factorized.prediction.estimation_error.value,
        direct.prediction.estimation_error.value,
        bayes.estimation_error.value,
    ]
    assert errors == pytest.approx([0.3652, 0.7209, 0.3401], abs=0.5e-4)
    assert factorized.remark is None
    assert direct.remark is None


@pytest.mark.parametrize("noise", [0.5, 1e-3])
def test_the_direct_student_has_a_closed_form(noise: float) -> None:
    """Neighbours of Delta/(2 Q*) lie higher, four times as much at twice the distance."""
    problem = replace(PROBLEM, student="direct", noise=noise, alpha=0.6)
    best = best_weight_decay(problem)
    assert (best.weight_decay, best.remark) == (noise / (2 * 1.3), None)
    least = best.prediction.estimation_error.value
    steps = [1 - 0.02, 1 - 0.01, 1 + 0.01, 1 + 0.02]
    rise = [
        state_evolution(replace(problem, weight_decay=best.weight_decay * step)).estimation_error.value
        / least
        - 1
        for step in steps
    ]
    # A parabola about its lowest point: corrections are of the order of the step.
    assert min(rise) > 0
    assert rise[0] / rise[1] == pytest.approx(4.0, rel=0.1)
    assert rise[3] / rise[2] == pytest.approx(4.0, rel=0.1)


def test_hardly_any_noise_wants_hardly_any_decay() -> None:
    best = best_weight_decay(replace(PROBLEM, student="direct", noise=1e-12, alpha=0.6))
    assert (best.weight_decay, best.remark) == (1e-12 / (2 * 1.3), None)
    # Beyond interpolation and without decay E = Delta/(4 alpha - 2), which 1e-12 does not change.
    assert best.prediction.estimation_error.value == pytest.approx(1e-12 / 0.4, rel=1e-9)


def test_groups_of_the_direct_student_are_searched() -> None:
    """One group of weight 2 is the plain loss with half the penalty: twice the closed form is the best."""
    groups = (ObservationGroup(weight=2.0, noise=0.5),)
    best = best_weight_decay(replace(PROBLEM, student="direct", noise=0.0, groups=groups))
    assert best.weight_decay == pytest.approx(2 * 0.5 / (2 * 1.3), rel=1e-3)


def test_best_is_better_than_its_neighbours() -> None:
    best = best_weight_decay(PROBLEM)
    for factor in (0.9, 1.1):
        other = state_evolution(replace(PROBLEM, weight_decay=best.weight_decay * factor))
        assert other.estimation_error.value > best.prediction.estimation_error.value


def test_clean_labels_want_no_decay() -> None:
    best = best_weight_decay(replace(PROBLEM, noise=0.0, alpha=0.45), points=9, rounds=1)
    assert "at the end of the searched range" in best.remark
    # The lower end: 1e-4 sqrt(2 alpha Q*), with Q* = 1 + kappa.
    assert best.weight_decay == pytest.approx(1e-4 * math.sqrt(2 * 0.45 * 1.3), rel=1e-9)


def test_bayes_has_no_decay() -> None:
    with pytest.raises(InputError, match=r"has no weight decay; choose factorized or (.* or )?direct"):
        best_weight_decay(replace(PROBLEM, student="bayes"))


def test_errors_fall_along_a_curve() -> None:
    seen: list[tuple[int, int]] = []
    bayes = curve(replace(PROBLEM, student="bayes"), [0.1, 0.2, 0.4, 0.8], lambda *state: seen.append(state))
    errors = [prediction.estimation_error.value for prediction in bayes]
    assert errors == sorted(errors, reverse=True)
    assert seen[-1] == (4, 4)
