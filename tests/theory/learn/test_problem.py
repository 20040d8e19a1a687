"""Problems and targets: what is accepted, what is refused and with which words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import zeta

from attnlaw.core.errors import InputError
from attnlaw.theory.learn.problem import Channel, ObservationGroup, Problem, Target
from attnlaw.theory.learn.students import STUDENTS

MP = Target.marchenko_pastur(0.5)
WITH_HARDMAX = " or ".join(name for name, student in STUDENTS.items() if "hardmax" in student.theories)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Problem(alpha=0.0), "alpha: found 0, expected a number above 0"),
        (lambda: Problem(alpha=-1.0), "alpha: found -1"),
        (lambda: Problem(alpha=float("nan")), "alpha: found nan"),
        (lambda: Problem(alpha="x"), "alpha: found 'x', expected a number"),
        (lambda: Problem(alpha=0.1, weight_decay=None), "weight_decay expected a number of at least 0"),
        (lambda: Problem(alpha=0.1, tokens=[2]), "tokens: found [2], expected a whole number"),
        (lambda: Problem(alpha=0.1, tokens=float("nan")), "tokens: found nan, expected a whole number"),
        (lambda: Problem(alpha=0.1, target=0.5), "target: found 0.5, expected a Target"),
        (lambda: ObservationGroup(noise="1"), "noise: found '1', expected a number"),
        (lambda: Target.marchenko_pastur(0.0), "target_rank: found 0, expected a number of at least 1e-09"),
        (lambda: Target.marchenko_pastur(-0.5), "target_rank: found -0.5"),
        (lambda: Problem(alpha=0.1, noise=-0.1), "noise: found -0.1, expected a number of at least 0"),
        (lambda: Problem(alpha=0.1, tokens=0), "tokens: found 0, expected a whole number of at least 1"),
        (lambda: Problem(alpha=0.1, tokens=1.5), "tokens: found 1.5"),  # type: ignore[arg-type]
        (lambda: Problem(alpha=0.1, weight_decay=-1.0), "weight_decay: found -1"),
        (
            lambda: Problem(alpha=0.1, weight_decay=0.0),
            "many students fit the data equally well; set a small value",
        ),
        (lambda: Problem(alpha=0.49, weight_decay=0.0, student="direct"), "below interpolation (alpha 0.5)"),
        (lambda: Problem(alpha=0.1, output="tanh"), "output: found 'tanh', expected one of linear"),
        (lambda: Problem(alpha=0.1, student="oracle"), "student: found 'oracle'"),
        (
            lambda: Problem(alpha=0.1, output="softmax"),
            "tokens: found 1, expected at least 2 with output softmax: with a single token, attention",
        ),
        (lambda: Problem(alpha=0.1, output="softmax", tokens=2, beta=0.0), "beta: found 0"),
        (
            lambda: Problem(alpha=0.1, output="hardmax", tokens=2),
            f"student: found 'factorized', expected {WITH_HARDMAX} with output hardmax",
        ),
        (
            lambda: Problem(alpha=0.1, output="hardmax", tokens=3, student="bayes"),
            "tokens: found 3, expected 2 with output hardmax",
        ),
        (lambda: Problem(alpha=1e-16), "expected 0 or a number in"),
        (lambda: MP.quantiles(5), "dimension 5 times target rank 0.5 is 2.5"),
        (lambda: Target.marchenko_pastur(1.5).quantiles(5), "expected a whole number"),
        (lambda: Target.power_law(0.5, 100), "target_exponent: found 0.5, expected a number above 0.5"),
        (
            lambda: Target.power_law(1.0, 100).quantiles(50),
            "cannot learn a power-law target of the different dimension",
        ),
        (lambda: Target.discrete([-1.0, 2.0]), "not negative"),
        (lambda: Target.discrete([1.0], [1.0, 2.0]), "one positive weight for each"),
        (lambda: MP.with_spikes(-3.0), "target_spike: found -3, expected a number above 0"),
        (
            lambda: ObservationGroup(entries="row"),
            "entries: found 'row', expected one of all, diagonal, off-diagonal",
        ),
        (lambda: ObservationGroup(weight=0.0), "weight: found 0, expected a number above 0"),
        (
            lambda: Problem(0.1, groups=(ObservationGroup(share=0.5),)),
            "shares of diagonal entries sum to 0.5",
        ),
        (
            lambda: Problem(0.1, noise=0.5, groups=(ObservationGroup(),)),
            "leave the noise of the problem at 0",
        ),
        (
            lambda: Problem(0.1, tokens=2, output="softmax", groups=(ObservationGroup(),)),
            "groups need output linear",
        ),
    ],
)
def test_bad_input_gets_one_clear_line(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_a_softmax_may_be_steep_but_not_without_end(noise: float) -> None:
    """The logits beta h spread over beta sqrt(Q* + noise), 1e4 at most; Q* = 1 + kappa."""
    steepest = 1e4 / np.sqrt(1.5 + noise)
    options = {"tokens": 2, "output": "softmax", "noise": noise}
    assert Problem(alpha=0.1, beta=0.99 * steepest, **options).beta < steepest
    with pytest.raises(InputError, match=r"logits 1.01e\+04, expected at most 10000; lower this value or"):
        Problem(alpha=0.1, beta=1.01 * steepest, **options)


def test_numbers_of_numpy_are_numbers() -> None:
    problem = Problem(alpha=np.float32(0.5), tokens=np.int64(2), beta=1)
    assert (type(problem.alpha), type(problem.tokens), type(problem.beta)) == (float, int, float)


def test_bayes_accepts_weight_decay_zero() -> None:
    assert Problem(alpha=0.1, weight_decay=0.0, student="bayes").weight_decay == 0.0


def test_weight_decay_zero_is_fine_beyond_interpolation() -> None:
    # kappa0 = Delta = 0.5: interpolation at 0.30696; clean labels: feasibility at 0.4375.
    Problem(alpha=0.308, noise=0.5, weight_decay=0.0)
    with pytest.raises(InputError):
        Problem(alpha=0.306, noise=0.5, weight_decay=0.0)
    Problem(alpha=0.44, weight_decay=0.0)
    with pytest.raises(InputError):
        Problem(alpha=0.43, weight_decay=0.0)
    Problem(alpha=0.44 / 3, tokens=2, weight_decay=0.0)


@pytest.mark.parametrize("target", [MP, Target.marchenko_pastur(0.1), Target.marchenko_pastur(3.0)])
def test_quantiles_have_the_moments_of_the_law(target: Target) -> None:
    d = 2000
    values = target.quantiles(d)
    assert values.size == d
    assert np.all(np.diff(values) >= 0)
    assert np.count_nonzero(values) == min(round(d * target.rank_ratio), d)
    # Mid-level quantiles: the rule's error is of order 1/d at the worst (a hard edge).
    assert values.mean() == pytest.approx(target.mean, rel=1 / d)
    assert (values**2).mean() == pytest.approx(target.second_moment, rel=1 / d)


def test_more_spikes_than_places_are_refused() -> None:
    spiked = Target.marchenko_pastur(2.0).with_spikes(8.0, 9.0)
    assert spiked.quantiles(3).size == 3
    with pytest.raises(InputError, match="size: found 2, expected a whole number of at least 3"):
        spiked.quantiles(2)


def test_spikes_take_places_in_the_quantiles_and_none_in_the_limit() -> None:
    spiked = MP.with_spikes(9.0, 7.0)
    values = spiked.quantiles(100)
    assert values.size == 100
    assert values[-2:].tolist() == [7.0, 9.0]
    assert np.count_nonzero(values) == 50
    assert spiked.second_moment == MP.second_moment


def test_power_law_and_its_bins() -> None:
    target = Target.power_law(1.0, 5000)
    values = target.quantiles(5000)
    assert values[-1] == pytest.approx(np.sqrt(5000 / zeta(2.0)))
    assert target.second_moment == pytest.approx((values**2).mean(), rel=1e-12)
    assert target.second_moment == pytest.approx(1.0, abs=1 / 5000)
    assert target.mean == pytest.approx(values.mean(), rel=1e-3)
    assert target.rank_fraction == 1.0


def test_any_list_of_eigenvalues() -> None:
    target = Target.discrete([0.0, 1.0, 3.0], [2.0, 1.0, 1.0])
    assert target.second_moment == pytest.approx(2.5)
    assert target.rank_fraction == pytest.approx(0.5)
    assert target.quantiles(4).tolist() == [0.0, 0.0, 1.0, 3.0]


def test_channels_of_groups() -> None:
    groups = (
        ObservationGroup("diagonal", weight=0.5, noise=0.2),
        ObservationGroup("off-diagonal", noise=0.4, share=0.25),
        ObservationGroup("off-diagonal", weight=3.0, share=0.75),
    )
    problem = Problem(alpha=0.1, tokens=3, groups=groups)
    expected = [(0.3, 1.0, 0.1), (0.075, 2.0, 0.2), (0.225, 6.0, 0.0)]
    assert len(problem.channels) == 3
    for channel, (alpha, weight, noise) in zip(problem.channels, expected, strict=True):
        assert channel == Channel(pytest.approx(alpha), weight, noise)
    assert sum(channel.alpha for channel in problem.channels) == pytest.approx(problem.observations)
