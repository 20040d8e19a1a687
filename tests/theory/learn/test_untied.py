"""Untied attention in theory: reference values, equations by another route, limits, thresholds, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from oracles.scaling_laws import leading_error, scaling_law
from scipy.optimize import minimize_scalar

from attnlaw.core.errors import BadSetting, InputError, as_option
from attnlaw.core.estimate import Outcome
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import Truncated
from attnlaw.theory.laws.semicircle import Semicircle
from attnlaw.theory.laws.transformed import rectify
from attnlaw.theory.learn.data import SENSINGS
from attnlaw.theory.learn.problem import ObservationGroup, Problem, Target
from attnlaw.theory.learn.state_evolution import best_weight_decay, state_evolution, state_evolutions
from attnlaw.theory.learn.thresholds import thresholds
from attnlaw.verbs.learn import SIMULATE, VERB

NAMES = (
    "noise_level", "threshold", "estimation_error", "training_loss", "rank_fraction", "norm", "overlap",
    "nuclear_norm",
)  # fmt: skip
# (k0, alpha_P, Delta, lt), then these quantities and the top edge; solved by other code, stable to 1e-12, and
# held against Gaussian sensing at d = 40, 60 and tokens up to d = 120.
REFERENCE = {
    (0.5, 0.5, 0.5, 0.2): "1.335560 1.179016 .641861 .025664 .527109 .681606 .519872 .490951 2.5956",
    (0.3, 0.6, 0.5, 0.5): "1.051169 1.061232 .412974 .102201 .462938 .552576 .569801 .395671 2.7224",
    (0.5, 1.2, 0.5, 0.6): ".639591 .483388 .240893 .131303 .635920 .724057 .741582 .526568 2.6762",
    (0.3, 0.4, 0.0, 0.02): ".951358 .933793 .362033 .000259 .480440 .579788 .608878 .408474 2.7731",
    (1.0, 0.8, 0.2, 0.1): ".767381 .431468 .371099 .009885 .744800 .869673 .749287 .654677 2.4991",
    (0.2, 2.0, 1.0, 1.5): ".564139 .487537 .136506 .376574 .523715 .744219 .803857 .423681 3.3669",
    (0.1, 0.2, 0.5, 0.6): "2.101143 3.075805 .632960 .209994 .198201 .235033 .301036 .168530 2.6946",
}
BAYES = (".57174", ".40066", ".23636", ".33338", ".32933", ".10465", ".58501")
DIRECT = (".64039", ".58059", ".32329", ".6", ".37016", ".28078", ".84564")


def untied(k0: float, alpha: float, noise: float, decay: float, **more: Any) -> Problem:
    return Problem(
        alpha, target=Target.product(k0), noise=noise, weight_decay=decay, attention="untied", **more
    )


def half_digit(digits: str) -> float:
    return 0.501 * 10.0 ** -len(digits.partition(".")[2])


@pytest.mark.parametrize("case", REFERENCE)
def test_reference_values(case: tuple[float, float, float, float]) -> None:
    prediction = state_evolution(untied(*case))
    assert (prediction.outcome, prediction.trace) == (Outcome.DONE, None)
    *digits, edge = REFERENCE[case].split()
    for name, value in zip(NAMES, digits, strict=True):
        assert getattr(prediction, name).value == pytest.approx(float(value), abs=half_digit(value)), name
    assert prediction.top_edge == pytest.approx(float(edge), abs=half_digit(edge))
    assert prediction.prediction_error == prediction.estimation_error  # one pair a sample


@pytest.mark.parametrize(("case", "bayes", "direct"), list(zip(REFERENCE, BAYES, DIRECT, strict=True)))
def test_reference_errors_of_the_others(
    case: tuple[float, float, float, float], bayes: str, direct: str
) -> None:
    problem = untied(*case)
    least = state_evolution(replace(problem, student="bayes"))
    assert least.estimation_error.value == pytest.approx(float(bayes), abs=half_digit(bayes))
    ridge = replace(problem, student="direct", weight_decay=max(problem.noise / 2, 1e-9))
    expected = pytest.approx(float(direct), abs=half_digit(direct))
    assert state_evolution(ridge).estimation_error.value == expected
    if problem.noise:
        assert best_weight_decay(ridge).weight_decay == problem.noise / 2


@pytest.mark.parametrize("student", ["factorized", "direct", "bayes"])
def test_the_spectrum_carries_rank_norm_and_nuclear_norm(student: str) -> None:
    prediction = state_evolution(untied(0.3, 0.6, 0.5, 0.5, student=student))
    assert prediction.nuclear_norm is not None
    assert prediction.rank_fraction is not None
    # The Bayes-optimal law is a table of 1201 points.
    error = 2e-5 if student == "bayes" else 1e-9
    assert prediction.spectrum.moment(2) == pytest.approx(prediction.norm.value, rel=error)
    assert prediction.spectrum.moment(1) == pytest.approx(prediction.nuclear_norm.value, rel=error)
    assert prediction.spectrum.nodes()[1].sum() == pytest.approx(prediction.rank_fraction.value, rel=error)
    assert 1 - prediction.atom_at_zero == pytest.approx(prediction.rank_fraction.value, rel=1e-12)


def test_the_equations_hold_by_another_route() -> None:
    """All four, at the solution, with the integrals of Biane's curve over the target's quadrature."""
    k0, alpha, noise, lt = 0.5, 1.2, 0.5, 0.6
    prediction = state_evolution(untied(k0, alpha, noise, lt))
    points, weights = prediction.problem.target.law.nodes()
    atoms = Discrete((*points.tolist(), 0.0), (*weights.tolist(), 1 - float(weights.sum())))
    delta, b = prediction.noise_level.value, prediction.threshold.value
    parts = rectify(Truncated(atoms, np.array([delta]), 2), np.array([b]))
    J, M1, chi = (float(getattr(parts, name)[0]) for name in ("J", "M1", "chi"))
    eps, E = b / lt, prediction.estimation_error.value
    assert 1 / eps + 2 * chi == pytest.approx(2 * alpha, rel=1e-7)
    assert delta**2 * alpha == pytest.approx(E + noise / 2, rel=1e-7)
    assert pytest.approx(1 - J - 2 * b * M1 + 2 * delta**2 * chi, rel=1e-7) == E
    assert prediction.training_loss.value == pytest.approx((E + noise / 2) / (2 * alpha * eps) ** 2, rel=1e-7)


@pytest.mark.parametrize(
    ("pairs", "tokens", "count"), [("cross", 1, 1), ("cross", 3, 9), ("causal", 3, 3), ("distinct", 3, 6)]
)
@pytest.mark.parametrize("student", ["factorized", "direct", "bayes"])
def test_pairs_enter_by_their_number(pairs: str, tokens: int, count: int, student: str) -> None:
    single = untied(0.3, 0.6, 0.5, 0.5, student=student)
    many = replace(single, alpha=0.6 / count, tokens=tokens, pairs=pairs)
    first, second = state_evolutions([single, many])
    assert second.estimation_error.value == pytest.approx(first.estimation_error.value, rel=1e-9)
    assert second.prediction_error.value == pytest.approx(count * first.estimation_error.value, rel=1e-9)
    if first.training_loss is not None:
        assert second.training_loss.value == pytest.approx(count * first.training_loss.value, rel=1e-9)


def test_a_large_decay_learns_nothing() -> None:
    prediction = state_evolution(untied(0.5, 0.5, 0.5, 50.0))
    assert (prediction.estimation_error.value, prediction.rank_fraction.value) == (1.0, 0.0)


@pytest.mark.parametrize("student", ["factorized", "direct"])
def test_no_decay_above_interpolation(student: str) -> None:
    """`E = Delta / (2 (alpha_P - 1))`: both are the same least squares."""
    prediction = state_evolution(untied(0.5, 1.5, 0.5, 0.0, student=student))
    assert prediction.estimation_error.value == pytest.approx(0.5, rel=1e-9)
    with pytest.raises(BadSetting, match=r"below interpolation \(alpha 1\)"):
        untied(0.5, 0.9, 0.5, 0.0, student=student)


@pytest.mark.parametrize(
    ("alpha", "limit", "small"), [(0.9, 2.448, 2.447), (0.97, 8.216, 8.191), (0.99, 24.86, 24.45)]
)
def test_the_error_at_interpolation_has_no_bound(alpha: float, limit: float, small: float) -> None:
    limit_problem, other = (untied(0.5, alpha, 0.5, decay) for decay in (1e-9, 1e-5))
    digit = 5.1e-4 if limit < 10 else 5.1e-3
    assert state_evolution(limit_problem).estimation_error.value == pytest.approx(limit, abs=digit)
    assert state_evolution(other).estimation_error.value == pytest.approx(small, abs=digit)


def test_a_target_of_many_factors_is_gaussian() -> None:
    """k0 -> infinity: a Gaussian target of variance 1, whose ridge is Bayes-optimal: `E = a^2/(1 + a^2)`."""
    prediction = state_evolution(untied(1e6, 0.7, 0.5, 0.1, student="bayes"))
    a2 = prediction.noise_level.value**2
    assert prediction.estimation_error.value == pytest.approx(a2 / (1 + a2), rel=1e-5)
    ridge = state_evolution(untied(1e6, 0.7, 0.5, 0.25, student="direct"))
    assert prediction.estimation_error.value == pytest.approx(ridge.estimation_error.value, rel=1e-5)


@pytest.mark.parametrize("k0", [0.3, 1.5])
def test_targets_by_their_singular_values(k0: float) -> None:
    """The product by its formula and by quantiles, rescaled to Q* = 1: 5e-5 with 200 of them."""
    values = Target.product(k0).values.quantile((np.arange(200) + 0.5) / 200)
    listed = Target.discrete((values / np.sqrt(np.mean(values**2))).tolist())
    product, same = untied(k0, 0.6, 0.5, 0.5), replace(untied(k0, 0.6, 0.5, 0.5), target=listed)
    first, second = (state_evolution(problem) for problem in (product, same))
    assert second.estimation_error.value == pytest.approx(first.estimation_error.value, rel=3e-4)
    spectrum = Semicircle(1.0).quantile((np.arange(64) + 0.5) / 64)
    assert Target.discrete(np.abs(spectrum).tolist()).with_both_signs().law.support[0] < 0


def test_a_lone_spike() -> None:
    """On zeros: at `s + delta^2/s - b`, squared overlap `1 - delta^2/s^2`; Bayes at `s - delta^2/s`."""
    problem = Problem(
        1.2,
        target=Target.discrete([0.0, 1.0], [0.999, 0.001]).with_spikes(6.0),
        noise=0.5,
        weight_decay=0.3,
        attention="untied",
    )
    prediction = state_evolution(problem)
    delta, b = prediction.noise_level.value, prediction.threshold.value
    (seen,) = prediction.outliers
    # The rest of the target moves both by its thousandth part.
    assert seen.location == pytest.approx(6 + delta**2 / 6 - b, rel=1e-3)
    assert seen.overlap == pytest.approx(1 - delta**2 / 36, rel=1e-3)
    best = state_evolution(replace(problem, student="bayes"))
    assert best.outliers[0].location == pytest.approx(6 - best.noise_level.value**2 / 6, rel=1e-3)


@pytest.mark.parametrize(("spike", "location", "overlap"), [(4.0, 3.628, 0.9658), (6.0, 5.587, 0.9875)])
def test_reference_outliers(spike: float, location: float, overlap: float) -> None:
    """Row 3; trained on tokens at d = 60: 3.599(29), 5.555(31); left .9636(25), right .9687(20), ..."""
    problem = untied(0.5, 1.2, 0.5, 0.6)
    (seen,) = state_evolution(replace(problem, target=problem.target.with_spikes(spike))).outliers
    assert (seen.location, seen.overlap) == pytest.approx((location, overlap), abs=6e-4)


@pytest.mark.parametrize(
    ("k0", "recovery", "place"),
    [
        (0.1, ".351144", "1.10387"),
        (0.2, ".571690", ".86773"),
        (0.3, ".725255", ".70321"),
        (0.5, ".905417", ".45759"),
        (0.8, ".994194", ".17164"),
    ],
)
def test_recovery_table(k0: float, recovery: str, place: str) -> None:
    sample_thresholds = thresholds(Target.product(k0), attention="untied")
    assert sample_thresholds.recovery == pytest.approx(float(recovery), abs=half_digit(recovery))
    angles, rest = (np.arange(4000) + 0.5) * np.pi / 4000, 1 - k0
    x, weight = 2 * np.cos(angles), 2 * np.sin(angles) ** 2 / 4000  # midpoints of the semicircle's angle

    def dimension(t: float) -> float:
        tail = float((weight * np.maximum(x - t, 0) ** 2).sum())
        return 1 - rest**2 + k0 * rest * t * t + 2 * rest**2 * tail

    naive = minimize_scalar(dimension, bounds=(0, 2), method="bounded", options={"xatol": 1e-8})
    assert sample_thresholds.recovery == pytest.approx(naive.fun, abs=1e-6)
    assert naive.x == pytest.approx(float(place), abs=half_digit(place) + 1e-6)
    assert sample_thresholds.bayes == pytest.approx(2 * k0 - k0**2)
    assert (sample_thresholds.direct, sample_thresholds.feasibility, sample_thresholds.peak_error) == (
        1.0,
        None,
        None,
    )


def test_the_error_vanishes_at_recovery() -> None:
    """Clean labels, k0 = 0.3, lt -> 0: E at .60, .66, .69 as simulated; below 1e-6 beyond .7253."""
    curve = state_evolutions([untied(0.3, alpha, 0.0, 1e-7) for alpha in (0.60, 0.66, 0.69, 0.74)])
    errors = [prediction.estimation_error.value for prediction in curve]
    assert errors[:3] == pytest.approx([0.0652, 0.0189, 0.0057], abs=6e-5)
    assert errors[3] < 1e-6
    assert thresholds(Target.product(0.3), 1.0, 0.5, "factorized", "untied").interpolation == 1.0


def test_bayes_threshold_of_shared_values() -> None:
    """`1 - p0^2 - sum p_i^2/2`: just above it the error is lost, just below it is not."""
    target = Target.discrete([0.0, 1.0, 3.0], [0.5, 0.3, 0.2])
    threshold = thresholds(target, attention="untied").bayes
    assert threshold == pytest.approx(1 - 0.25 - 0.045 - 0.02)
    below, above = (
        state_evolution(Problem(threshold + step, target=target, student="bayes", attention="untied"))
        for step in (-0.02, 0.02)
    )
    assert (below.outcome, above.outcome) == (Outcome.DONE, Outcome.RECOVERED)


def test_scaling_law_of_half_the_observations() -> None:
    """Leading order: N pairs are N/2 tied observations; full equations differ by what vanishes with d."""
    assert leading_error(1.0, [16.0], 0.5, attention="untied") == pytest.approx(
        leading_error(1.0, [8.0], 0.5)
    )
    apart = []
    for d in (100, 3000):
        shared = {"target": Target.power_law(1.0, d), "noise": 0.5, "student": "bayes"}
        tied = state_evolution(Problem(8.0 / d, **shared))
        pairs = state_evolution(Problem(16.0 / d, attention="untied", **shared))
        apart.append(pairs.estimation_error.value / tied.estimation_error.value - 1)
    assert abs(apart[1]) < 0.1 * abs(apart[0])
    assert [outlier.target for outlier in pairs.outliers] == pytest.approx(
        [outlier.target for outlier in tied.outliers]
    )
    law = scaling_law(1.0, 20, [4.0, 8.0], noise=0.5, student="bayes", attention="untied")
    assert law.leading == pytest.approx(leading_error(1.0, [2.0, 4.0], 0.5, "bayes"))


def error_message(verb: Any, **given: Any) -> str:
    with pytest.raises(BadSetting) as caught:
        [verb.precheck(case) for case in verb.cases(given)]
    return caught.value.message(as_option)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"pairs": "all"},
            "--pairs all: has no theory with --attention untied, because pairs of a token with itself",
        ),
        (
            {"output": "softmax", "tokens": 2},
            "--output softmax: has no theory with --attention untied; use linear",
        ),
        ({"output": "hardmax", "tokens": 2, "student": "bayes"}, "--output hardmax: has no theory"),
        (
            {"pairs": "causal"},
            "--tokens 1: expected at least 2 with --pairs causal, because one token has no such pair",
        ),
        ({"pairs": "distinct"}, "--tokens 1: expected at least 2 with --pairs distinct"),
    ],
)
def test_what_untied_attention_refuses(given: dict[str, Any], line: str) -> None:
    assert error_message(VERB, attention="untied", **given).startswith(line)


def test_what_tied_attention_refuses() -> None:
    assert error_message(VERB, pairs="cross") == "--pairs needs --attention untied"
    tied, untied = (
        " or ".join(name for name, sensing in SENSINGS.items() if attention in sensing.draws)
        for attention in ("tied", "untied")
    )
    assert error_message(SIMULATE, simulate=8, sensing="ginibre") == (
        f"--sensing ginibre: expected {tied} with --attention tied"
    )
    assert error_message(SIMULATE, simulate=8, sensing="goe", attention="untied") == (
        f"--sensing goe: expected {untied} with --attention untied"
    )
    with pytest.raises(InputError, match="product of two different factors is not symmetric"):
        Problem(0.2, target=Target.product(0.5))
    with pytest.raises(BadSetting, match="groups have diagonal entries"):
        Problem(0.2, attention="untied", groups=(ObservationGroup(),))
    with pytest.raises(BadSetting, match="expected all with attention tied"):
        Problem(0.2, pairs="causal")


def test_rows_say_what_was_solved() -> None:
    cases = VERB.cases({"attention": ["tied", "untied"], "alpha": 0.5, "noise": 0.5, "weight_decay": 0.2})
    rows = [
        VERB.row(case, prediction)
        for case, prediction in zip(cases, VERB.run(cases, lambda *_: None), strict=True)
    ]
    assert [(row["attention"], row["pairs"]) for row in rows] == [("tied", None), ("untied", "cross")]
    assert [row["trace"] is None for row in rows] == [False, True]
    assert rows[1]["estimation_error"] == pytest.approx(0.641861, abs=5e-7)
