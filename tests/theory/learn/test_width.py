"""Heads narrower than what they would learn: reference values, stability, limits, trained ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Outcome
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.learn.agreement import agreement
from attnlaw.theory.learn.problem import Problem, ProblemBatch, Target
from attnlaw.theory.learn.simulate import simulate
from attnlaw.theory.learn.stability import mean_square_slope
from attnlaw.theory.learn.state_evolution import state_evolution
from attnlaw.theory.learn.students.factorized import instability, solve
from attnlaw.verbs.learn import VERB


def untied(k0: float, alpha: float, noise: float, decay: float, width: float | None) -> Problem:
    return Problem(
        alpha,
        target=Target.product(k0),
        noise=noise,
        weight_decay=decay,
        width=width,
        attention="untied",
    )


# (k0, alpha_P, Delta, lt, kappa): E, training loss, stability at d = 40 and 160. Solved by other code;
# trained at d = 40 and 80 beside it, within 1.5 standard errors but for the third (restarts differ, training
# loss +5%).
REFERENCE = {
    (0.5, 0.5, 0.5, 0.2, 0.4): (".67615", ".02771", ".71", ".76"),
    (0.5, 0.5, 0.5, 0.2, 0.3): (".790352", ".036379", "1.03", "1.21"),
    (0.5, 0.5, 0.5, 0.2, 0.2): ("1.1034", ".0786", "1.57", "1.99"),
    (0.3, 1.5, 0.5, 0.3, 0.4): (".164525", ".136393", ".59", ".69"),
    (0.3, 1.5, 0.5, 0.3, 0.3): (".127224", ".165753", ".38", ".38"),
    (0.3, 1.5, 0.5, 0.3, 0.2): (".208936", ".255607", ".34", ".38"),
    (0.3, 1.5, 0.5, 0.02, 0.5): (".322992", ".10819", ".93", "1.10"),
    (0.3, 1.5, 0.5, 0.02, 0.3): (".155949", ".16104", ".47", ".48"),
}


def within(value: float, digits: str) -> bool:
    return abs(value - float(digits)) <= 1.01 * 10.0 ** -len(digits.partition(".")[2])


@pytest.mark.parametrize("case", REFERENCE)
def test_reference_values(case: tuple[float, float, float, float, float]) -> None:
    error, loss, small, large = REFERENCE[case]
    prediction = state_evolution(untied(*case))
    assert within(prediction.estimation_error.value, error)
    assert within(prediction.training_loss.value, loss)
    assert prediction.rank_fraction.value == pytest.approx(case[-1], abs=1e-9)
    batch = ProblemBatch.of([untied(*case)])
    assert within(instability(batch, solve(batch), 0, size=40), small)
    assert within(prediction.stability, large)
    assert (prediction.outcome is Outcome.UNSTABLE) == (prediction.stability > 1)
    sentence = (
        f"unstable (stability {prediction.stability:.3g} is above 1), so the training loss is a lower bound"
    )
    assert prediction.outcome is not Outcome.UNSTABLE or prediction.remark == sentence


def test_reference_of_a_wide_head() -> None:
    """kappa = 1 cuts nothing: .192373, .10618 and K/alpha_P = .44; trained: .1942(51), .1087(17), tokens
    at d = 60 .1963(14)."""
    prediction = state_evolution(untied(0.3, 1.5, 0.5, 0.3, 1.0))
    assert prediction.estimation_error.value == pytest.approx(0.192373, abs=5.1e-7)
    assert prediction.training_loss.value == pytest.approx(0.10618, abs=5.1e-6)
    delta, b = prediction.noise_level.value, prediction.threshold.value
    K = mean_square_slope(Target.product(0.3).with_both_signs().law, delta, b, sides=2, size=40)
    assert within(K / 1.5, ".44")
    assert prediction.stability is None


def test_tied_reference() -> None:
    """MP(0.5), alpha .3, Delta .5, lt .6, kappa .2; trained at d = 60: .6947(96), .4097(61)."""
    prediction = state_evolution(Problem(0.3, noise=0.5, weight_decay=0.6, width=0.2))
    assert prediction.estimation_error.value == pytest.approx(0.6789, abs=5e-5)
    assert prediction.training_loss.value == pytest.approx(0.4141, abs=5e-5)
    assert prediction.spectrum.moment(1) == pytest.approx(prediction.trace.value, rel=1e-9)


@pytest.mark.parametrize("width", [0.8, 1.0, 3.0])
@pytest.mark.parametrize("attention", ["tied", "untied"])
def test_a_width_above_the_rank_changes_nothing(attention: str, width: float) -> None:
    """The learned rank fractions are .39 and .72."""
    free = Problem(0.6, noise=0.5, weight_decay=0.3, attention=attention)
    wide, plain = state_evolution(replace(free, width=width)), state_evolution(free)
    assert plain.rank_fraction.value < 0.8
    assert wide.estimation_error.value == pytest.approx(plain.estimation_error.value, rel=1e-12)
    assert (wide.cut, wide.stability, wide.smallest_value) == (None, None, 0.0)


def test_the_equations_hold_by_another_route() -> None:
    """E, m and q by sums over the density of mu_delta on a fine grid, chi by the derivative of J in delta."""
    case = (0.3, 1.5, 0.5, 0.3, 0.2)
    prediction = state_evolution(untied(*case))
    delta, b, t = prediction.noise_level.value, prediction.threshold.value, prediction.cut.value
    law = FreeConvolution(prediction.problem.target.law, delta)
    angle = (np.arange(20_000) + 0.5) * np.pi / 40_000  # x = t + (top - t) sin^2: the edge is a square root
    top = law.intervals[-1][1]
    x = t + (top - t) * np.sin(angle) ** 2
    weight = 2 * law.density(x) * (top - t) * 2 * np.sin(angle) * np.cos(angle) * np.pi / 40_000
    re_g = law.stieltjes(x).real
    J, M1, chi = (float((weight * f).sum()) for f in ((x - b) ** 2, x - b, 2 * (x - b) * re_g))
    assert weight.sum() == pytest.approx(case[-1], rel=1e-6)
    assert prediction.norm.value == pytest.approx(J, rel=1e-6)
    assert prediction.nuclear_norm.value == pytest.approx(M1, rel=1e-6)
    assert prediction.overlap.value == pytest.approx(J + b * M1 - delta**2 * chi, rel=1e-5)
    assert case[3] / b + 2 * chi == pytest.approx(2 * case[1], rel=1e-5)
    assert prediction.estimation_error.value == pytest.approx(1 - 2 * prediction.overlap.value + J, rel=1e-5)
    assert prediction.smallest_value == pytest.approx(prediction.edges[0], rel=1e-12)


@pytest.mark.parametrize("sides", [1, 2])
def test_stability_by_a_loop_over_pairs(sides: int) -> None:
    """Quantiles by root finding and a double loop, at d = 20; the refined table is right to 1e-5."""
    problem = Problem(0.4, noise=0.5, weight_decay=0.3, width=0.2, attention=["tied", "untied"][sides - 1])
    batch = ProblemBatch.of([problem])
    point = solve(batch)
    delta, b, t = (float(values[0]) for values in (point.delta, point.b, point.cut))
    table = Truncated(problem.target.law, np.array([delta]), sides)

    def place(share: float) -> float:
        low = 0.0 if sides == 2 else -2 * delta
        return brentq(lambda x: float(table.above(np.array([x]))[0, 0]) - share, low, table.top[0])

    x = [place(1 - (i + 0.5) / 20) for i in range(20)]
    x = [-location for location in x] + x if sides == 2 else x
    f = [
        location - b if location > t else location + b if sides == 2 and location < -t else 0.0
        for location in x
    ]
    total = 0.0
    for i, (xi, fi) in enumerate(zip(x, f, strict=True)):
        for j, (xj, fj) in enumerate(zip(x, f, strict=True)):
            total += float(fi != 0) if i == j else ((fi - fj) / (xi - xj)) ** 2
    K = total / len(x) ** 2
    expected = K / (2 * problem.observations if sides == 1 else problem.observations)
    assert instability(batch, point, 0, size=20) == pytest.approx(expected, rel=1e-3)


def test_width_and_decay_together_beat_the_best_decay() -> None:
    """k0 = .3, alpha_P = 1.5, Delta = .5: .1272 with kappa = k0; .1391 at full width, best lt = .80."""
    narrow = state_evolution(untied(0.3, 1.5, 0.5, 0.3, 0.3)).estimation_error.value
    best = state_evolution(untied(0.3, 1.5, 0.5, 0.8, None)).estimation_error.value
    bayes = state_evolution(replace(untied(0.3, 1.5, 0.5, 0.8, None), student="bayes")).estimation_error.value
    assert (narrow, best, bayes) == pytest.approx((0.1272, 0.1391, 0.1184), abs=6e-5)


def test_an_outlier_must_be_beyond_the_cut() -> None:
    narrow = untied(0.5, 0.5, 0.5, 0.2, 0.2)
    prediction = state_evolution(narrow)
    assert prediction.cut.value > 2.6
    seen = state_evolution(replace(narrow, target=narrow.target.with_spikes(9.0))).outliers
    assert len(seen) == 1
    assert seen[0].location > prediction.smallest_value


def test_refusals() -> None:
    with pytest.raises(BadSetting, match="width needs student factorized, which has factors"):
        Problem(0.2, width=0.3, student="direct")
    with pytest.raises(BadSetting, match="width needs student factorized"):
        VERB.cases({"width": 0.3, "student": "bayes"})
    with pytest.raises(BadSetting, match="width needs output linear"):
        Problem(0.2, width=0.3, output="softmax", tokens=2)
    with pytest.raises(InputError, match=r"dimension 21 times width 0.3 is 6.3, expected a whole number"):
        simulate(Problem(0.2, width=0.3, target=Target.discrete([1.0])), size=21, seeds=1)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["tied", "untied"])
def test_narrow_heads_are_trained_beside_the_theory(attention: str) -> None:
    """Where the indicator is below .5: Gaussian sensing at d = 20, within four standard errors."""
    sensing = {"tied": "goe", "untied": "ginibre"}[attention]
    kind = Target.marchenko_pastur if attention == "tied" else Target.product
    alpha = {"tied": 0.75, "untied": 1.5}[attention]
    problem = Problem(alpha, target=kind(0.3), noise=0.5, weight_decay=0.3, width=0.3, attention=attention)
    theory = state_evolution(problem)
    assert theory.stability < 0.5
    measured = simulate(problem, size=20, seeds=8, sensing=sensing)
    assert (measured.solver, str(measured.outcome)) == ("narrow factors", "done")
    assert measured.rank_fraction.value == 0.3
    report = agreement(theory, [measured])
    assert report.worst < 4
