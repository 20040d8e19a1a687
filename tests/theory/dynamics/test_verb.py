"""`dynamics` and `dynamics.simulate` as declared: cases, refusals, rows, tables; schedules."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from command.in_process import invoke

import attnlaw
from attnlaw.core.errors import BadSetting, InputError, as_option
from attnlaw.core.result import Result, collect_tables
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.settings import parse_log_times
from attnlaw.theory.dynamics.trajectory import trajectory
from attnlaw.theory.learn.problem import ObservationGroup, Problem
from attnlaw.theory.learn.simulate import simulate
from attnlaw.theory.learn.state_evolution import curve, state_evolution
from attnlaw.verbs.dynamics import SIMULATE, VERB


def test_rows_json_and_schema() -> None:
    (case,) = VERB.cases({"times": "0.01:0.1:2", "target_spike": 6.0, "spectrum": True})
    (result,) = VERB.run([case], lambda done, total: None)
    row, whole = VERB.row(case, result), Result.collect(VERB, [(case, result)]).summary
    assert list(row) == list(VERB.schema)
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole
    path = trajectory(case.problem, case.schedule)
    times = whole["tables"]["trajectory"]
    assert [point["time"] for point in times] == list(path.schedule.times)
    assert times[1]["norm"] == {"value": path.norm[1], "error": None}
    assert row["estimation_error"] == path.estimation_error[-1]
    assert row["samples"] is None
    tracks = whole["tables"]["tracks"]
    assert [point["location"] is not None for point in tracks] == [True] * 2
    assert tracks[-1]["location"] == pytest.approx(path.outliers(0.1)[0].location)
    spectra = collect_tables(VERB, [result])["spectra"]
    assert spectra["time"].unique().sort().to_list() == list(path.schedule.times[1:])


def test_sgd_beside_the_theory() -> None:
    given = {"times": "0.01:0.02:2", "learning_rate": 0.1, "simulate": 8, "seeds": 2, "batch": 2}
    (case,) = SIMULATE.cases(given)
    (result,) = SIMULATE.run([case], lambda done, total: None)
    row, whole = SIMULATE.row(case, result), Result.collect(SIMULATE, [(case, result)]).summary
    assert list(row) == list(SIMULATE.schema)
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole
    assert row["steps"] == round(0.02 * 64 / 0.1 / 2)
    assert collect_tables(SIMULATE, [result])["eigenvalues"].height == 2 * 2 * 8


@pytest.mark.slow
def test_what_as_many_samples_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.theory.dynamics.rows.SAMPLE_COUNTS", 2)
    (case,) = VERB.cases({"times": "0.01:0.05:2", "learning_rate": 0.05, "noise": 0.5, "statics": True})
    (result,) = VERB.run([case], lambda done, total: None)
    alpha, kept, bayes, _ = collect_tables(VERB, [result])["statics"].row(-1)
    assert alpha == pytest.approx(1.0)
    known = state_evolution(Problem(alpha=1.0, noise=0.5, student="bayes")).estimation_error.value
    assert bayes == pytest.approx(known)
    assert bayes < kept < result.path.estimation_error[-1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"times": "0.1"}, "--times"),
        ({"times": "0:1:5"}, "FROM must be above 0"),
        ({"times": "1:0.1:5"}, "FROM must be smaller than TO"),
        ({"student": "bayes"}, "--student"),
        ({"output": "hardmax"}, "--output"),
        ({"scale_key": 0.5}, "--scale-key needs --attention untied"),
        ({"statics": True}, "--learning-rate"),
        ({"statics": True, "output": "hermite2"}, "--output linear"),
        ({"output": "hermite2", "tokens": 2}, "--tokens"),
        ({"output": "hermite2", "noise": 0.5}, "--noise"),
        ({"attention": "untied", "student": "direct"}, "--student"),
        ({"attention": "untied", "target_spike": 6}, "--target-spike needs --attention tied"),
        ({"attention": "untied", "target_exponent": 1}, "--target-exponent needs --attention tied"),
        ({"attention": "untied", "target_eigenvalues": "1,2"}, "--target-eigenvalues needs --attention tied"),
    ],
)
def test_bad_settings_are_told_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        refuse(given)
    assert message in caught.value.message(as_option)


def test_samples_that_do_not_fit_into_memory_are_told_as_options() -> None:
    given = {"learning_rate": 0.1, "simulate": 4, "sensing": "tokens", "batch": 10**9}
    assert SIMULATE.precheck is not None
    with pytest.raises(BadSetting) as caught:
        [SIMULATE.precheck(case) for case in SIMULATE.cases(given)]
    assert caught.value.message(as_option).startswith(
        "--simulate 4: this needs a dense 1000000000 x 4 matrix"
    )
    assert caught.value.message(as_option).endswith("choose a smaller --simulate or --batch")


def refuse(given: dict[str, Any]) -> None:
    assert VERB.precheck is not None
    for case in VERB.cases(given):
        VERB.precheck(case)


def test_times_are_spaced_in_the_logarithm() -> None:
    times = parse_log_times("times", "0.001:1:61")
    assert (times[0], times[-1], len(times)) == (0.001, 1.0, 61)
    assert np.diff(np.log(times)) == pytest.approx(np.log(1000) / 60, rel=1e-9)
    assert Schedule(times).times == (0.0, *times)


@pytest.mark.parametrize("times", [[], [0.2, 0.1], [0.1, 0.1], [-1.0], [np.inf]])
def test_times_of_a_schedule(times: list[float]) -> None:
    with pytest.raises(InputError, match="times"):
        Schedule(times)


def test_the_schedule_of_a_run() -> None:
    """lr 0.005 on W at d = 80, batch 20: eta = lr d/B, tau = lr n/d."""
    schedule = Schedule.of_run(lr=0.005, batch=20, size=80, steps=[0, 1600], decay=0.5)
    assert (schedule.learning_rate, schedule.decay, schedule.times) == (0.02, 0.5, (0.0, 0.1))
    assert Schedule.of_run(0.005, 20, 80, 1600, decay=0.5) == schedule


def test_a_problem_without_samples_is_learned_in_time_alone() -> None:
    problem = Problem(weight_decay=0.0)
    for work in (state_evolution, lambda candidate: simulate(candidate, size=8)):
        with pytest.raises(BadSetting, match="alpha is missing"):
            work(problem)
    with pytest.raises(
        BadSetting, match=r"'hermite2'.*only knows the dynamics for this output \(trajectory\)"
    ):
        state_evolution(Problem(alpha=0.2, output="hermite2"))
    assert curve(Problem(), [0.2])[0] == state_evolution(Problem(alpha=0.2))
    with pytest.raises(InputError, match="groups"):
        trajectory(Problem(groups=(ObservationGroup(),)), Schedule([0.1]))


def test_learn_does_not_offer_polynomials() -> None:
    with pytest.raises(BadSetting, match=r"expected one of linear, (?!.*hermite).*softmax, .*hardmax"):
        attnlaw.learn(output="hermite2")


@pytest.mark.slow
def test_three_tokens_carry_the_error_of_their_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.theory.dynamics.potential.SCRAMBLES", 2)
    path = trajectory(Problem(tokens=3, output="softmax"), Schedule([0.02]))
    assert 0 < path.error["norm"][1] < 0.01
    two = trajectory(Problem(tokens=2, output="softmax"), Schedule([0.02]))
    assert path.alignment[1] > two.alignment[1]


def test_a_quantity_that_is_not_defined_has_no_error_either() -> None:
    """The trace of untied students is not defined; its error was NaN, which is not JSON."""
    words = "--attention untied --learning-rate 0.2 --times 0.01:0.1:3 --simulate 8 --seeds 2 --json"
    _, trained = json.loads(invoke("dynamics", *words.split()).stdout)
    assert all(run["trace"] is None for run in trained["tables"]["runs"])
