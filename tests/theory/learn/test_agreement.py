"""Extrapolation against an independent fit and its own coverage; z-scores and spectra against known laws."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_1samp

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.semicircle import Semicircle
from attnlaw.theory.learn.agreement import agreement, extrapolate, spectrum_distance
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.simulate import QUANTITIES, simulate
from attnlaw.theory.learn.state_evolution import state_evolution

PROBLEM = Problem(alpha=0.3, noise=0.5, weight_decay=0.6)


def test_extrapolation_against_polyfit() -> None:
    sizes = np.array([40.0, 60.0, 80.0, 120.0])
    means = np.array([1.31, 1.20, 1.17, 1.10])
    errors = np.array([0.01, 0.02, 0.01, 0.03])
    fit = extrapolate(sizes, means, errors)
    (slope, value), covariance = np.polyfit(1 / sizes, means, 1, w=1 / errors, cov="unscaled")
    assert (fit.value, fit.slope) == pytest.approx((value, slope), rel=1e-10)
    assert fit.standard_error == pytest.approx(np.sqrt(covariance[1, 1]), rel=1e-10)
    left = np.sum(((means - value - slope / sizes) / errors) ** 2)
    assert fit.misfit == pytest.approx(left / 2, rel=1e-8)


def test_extrapolation_covers_the_truth() -> None:
    """z of 4000 synthetic extrapolations has mean 0 and variance 1 within 4 standard errors."""
    rng = np.random.default_rng(0)
    sizes, errors = np.array([30.0, 50.0, 90.0]), np.array([0.02, 0.01, 0.015])
    z = []
    for _ in range(4000):
        fit = extrapolate(sizes, 2.0 + 5.0 / sizes + errors * rng.standard_normal(3), errors)
        z.append((fit.value - 2.0) / fit.standard_error)
    assert abs(np.mean(z)) < 4 / np.sqrt(4000)
    assert abs(np.var(z) - 1) < 4 * np.sqrt(2 / 4000)


def test_two_sizes_leave_no_misfit() -> None:
    fit = extrapolate([50, 100], [1.2, 1.1], [0.1, 0.1])
    assert (fit.value, fit.misfit) == (pytest.approx(1.0), None)


@pytest.mark.parametrize(
    ("sizes", "errors", "message"),
    [
        ([50, 50], [0.1, 0.1], "found 1 different sizes"),
        ([50, 100], [0.1, 0.0], "one standard error is zero; simulate more seeds"),
    ],
)
def test_extrapolation_refuses(sizes: list[int], errors: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        extrapolate(sizes, [1.0, 1.0], errors)


def test_spectrum_distance_against_scipy() -> None:
    draws = np.random.default_rng(1).normal(0.2, 0.8, 300)
    law = Semicircle(1.0)
    assert spectrum_distance(draws, law) == pytest.approx(ks_1samp(draws, law.cdf).statistic, abs=1e-12)


def test_spectrum_distance_sees_atoms() -> None:
    """Half the law sits at zero: its own quantiles are close, a spectrum without zeros is off by one half."""
    law = MarchenkoPastur(0.5)
    levels = (np.arange(400) + 0.5) / 400
    assert spectrum_distance(law.quantile(levels), law) < 1.5 / 400
    bulk = law.quantile(0.5 + 0.5 * levels)
    assert spectrum_distance(bulk, law) == pytest.approx(0.5, abs=1 / 400)
    assert spectrum_distance(np.zeros(10), law) == pytest.approx(0.5, abs=1e-9)


def test_agreement_reports_every_quantity() -> None:
    measured = [simulate(PROBLEM, size, seeds=6, seed=3, sensing="goe") for size in (16, 24)]
    prediction = state_evolution(PROBLEM)
    result = agreement(prediction, measured)
    # Tied heads have a trace in place of a nuclear norm, and a squared loss asks for no key.
    known = [name for name in QUANTITIES if name not in ("nuclear_norm", "angle", "wrong_keys")]
    assert [row.quantity for row in result.comparisons] == known
    assert (result.sizes, result.sensing) == ((16, 24), "goe")
    row = result["norm"]
    fit = extrapolate([16, 24], [m.norm.value for m in measured], [m.norm.error for m in measured])
    assert (row.value, row.standard_error) == (fit.value, fit.standard_error)
    assert row.z == pytest.approx((fit.value - prediction.norm.value) / fit.standard_error)
    assert result.worst == max(abs(each.z) for each in result.comparisons if each.z is not None)
    assert len(result.rows()) == len(known)
    single = agreement(prediction, measured[:1])["norm"]
    assert single.value == measured[0].norm.value
    assert single.slope is None


def test_the_error_of_the_theory_counts() -> None:
    """A theory whose error is that of the measurement lies nearer by the root of two."""
    measured = [simulate(PROBLEM, 16, seeds=6, seed=3, sensing="goe")]
    exact = state_evolution(PROBLEM)
    averaged = replace(exact, norm=Estimate(exact.norm.value, measured[0].norm.error))
    plain, shared = (agreement(prediction, measured)["norm"] for prediction in (exact, averaged))
    assert (plain.theory_error, shared.theory_error) == (0.0, measured[0].norm.error)
    assert plain.z == pytest.approx(shared.z * np.sqrt(2.0), rel=1e-12)
    assert agreement(averaged, measured)["trace"].theory_error == 0.0


def test_agreement_without_spread_has_no_score() -> None:
    problem = Problem(alpha=0.3, noise=0.5, weight_decay=0.1, student="direct")
    result = agreement(state_evolution(problem), [simulate(problem, 12, seeds=3, seed=0)])
    assert (result["rank_fraction"].value, result["rank_fraction"].z) == (1.0, None)


def test_agreement_refuses_what_does_not_belong_together() -> None:
    prediction = state_evolution(PROBLEM)
    measured = simulate(PROBLEM, 10, seeds=2, seed=0)
    other = simulate(Problem(alpha=0.4, noise=0.5, weight_decay=0.6), 12, seeds=2, seed=0)
    for measurements, message in (
        ([measured, other], "different problems"),
        ([measured, measured], "the same size"),
        ([simulate(PROBLEM, 10, seeds=1, seed=0)], "single seed"),
    ):
        with pytest.raises(InputError, match=message):
            agreement(prediction, measurements)


def test_a_rounded_sample_count_is_not_compared() -> None:
    """1.44 samples are 1, of alpha 1/144: the theory there lies far from that of the alpha asked."""
    problem = Problem(alpha=0.01, noise=0.5, weight_decay=0.1)
    measured = simulate(problem, size=12, seeds=2)
    assert measured.rounding == "at d = 12, n = 1 gives alpha 0.00694 instead of 0.01"
    with pytest.raises(InputError, match=r"n = 1 gives alpha 0\.00694"):
        agreement(state_evolution(problem), [measured])
    exact = replace(problem, alpha=1 / 144)
    assert simulate(exact, size=12, seeds=2).rounding is None
    # The bound is 1%: 100.28 samples miss by 0.28%, 25.35 by 1.4%.
    roundings = [
        simulate(replace(problem, alpha=n / 400), size=20, seeds=1).rounding for n in (100.28, 25.35)
    ]
    assert [text is None for text in roundings] == [True, False]
