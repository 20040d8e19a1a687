"""`learn` and `learn.simulate` as declared: cases, refusals, rows, and what stands beside them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import pytest

import attnlaw
from attnlaw.core.errors import BadSetting, InputError, as_option
from attnlaw.core.estimate import Outcome
from attnlaw.core.result import Result, collect_tables
from attnlaw.theory.learn.data import SENSINGS
from attnlaw.theory.learn.outputs import STATIC_OUTPUTS
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.simulate import simulate
from attnlaw.theory.learn.state_evolution import curve
from attnlaw.theory.learn.students import STUDENTS
from attnlaw.theory.learn.thresholds import thresholds
from attnlaw.verbs import find_verb
from attnlaw.verbs.learn import SIMULATE, VERB

SOFTMAX = {"output": "softmax", "tokens": 2}
HARDMAX = {"output": "hardmax", "tokens": 2, "student": "bayes"}
WITH_HARDMAX = " or ".join(name for name, student in STUDENTS.items() if "hardmax" in student.theories)
PENALISED = " or ".join(name for name, student in STUDENTS.items() if student.penalised)
IDENTIFYING = " or ".join(name for name, output in STATIC_OUTPUTS.items() if output.identifies_target)


def run(of: Any, **given: Any) -> list[Any]:
    return list(of.run(of.cases(given), lambda done, total: None))


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("learn", {"alpha": 0.3, "output": "hardmax", "tokens": 2, "student": "bayes"}),
        ("dynamics", {"times": "0.1:1:3", "output": "hermite2"}),
    ],
)
def test_the_declaration_leaves_out_what_takes_long_to_import(verb: str, given: dict[str, Any]) -> None:
    code = (
        f"import sys, attnlaw.verbs.{verb} as declared\n"
        f"declared.VERB.cases({given})\n"
        "slow = ('scipy.special', 'scipy.linalg', 'scipy.stats', 'polars', 'altair', 'torch')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"


@pytest.mark.slow
def test_only_a_softmax_that_is_drawn_imports_the_statistics_of_scipy() -> None:
    code = (
        "import sys, attnlaw\nattnlaw.learn(alpha=0.3, thresholds=True); print('scipy.stats' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "False\n"


def test_several_values_are_one_curve() -> None:
    alphas = [0.1, 0.2, 0.4]
    predictions = run(VERB, alpha=alphas, noise=0.5)
    known = curve(Problem(0.1, noise=0.5), alphas)
    assert [prediction.estimation_error for prediction in predictions] == [
        prediction.estimation_error for prediction in known
    ]
    assert attnlaw.learn(alpha=0.2, noise=0.5).norm == attnlaw.learn(alpha=[0.2], noise=0.5)[0].norm
    assert find_verb("learn") is VERB
    assert find_verb("learn.simulate") is SIMULATE
    assert pickle.loads(pickle.dumps(SIMULATE)) is SIMULATE


def test_rows_json_and_schema() -> None:
    (case,) = VERB.cases({"alpha": 0.3, "noise": 0.5, "weight_decay": 0.6, "target_spike": 8.0})
    (prediction,) = VERB.run([case], lambda done, total: None)
    row, whole = VERB.row(case, prediction), Result.collect(VERB, [(case, prediction)]).summary
    assert list(row) == list(VERB.schema)
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole
    assert whole["quantities"]["estimation_error"] == {
        "value": prediction.estimation_error.value,
        "error": None,
    }
    assert row["edges"] == [0.0, pytest.approx(3.498, abs=5e-4)]
    assert row["top_edge"] == row["edges"][1]
    assert [row["outlier"]] == row["outlier_locations"]
    assert row["outlier_targets"] == [8.0]
    unused = [name for name in ("beta", "target_exponent", "target_dimension") if row[name] is not None]
    assert unused == []
    assert collect_tables(VERB, [prediction]) == {}


def test_a_softmax_carries_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.theory.learn.softmax.default_draws", lambda problem: 7)
    (case,) = VERB.cases({**SOFTMAX, "weight_decay": 0.02})
    (prediction,) = VERB.run([case], lambda done, total: None)
    row = VERB.row(case, prediction)
    assert 0 < row["estimation_error_error"] < row["estimation_error"]
    assert row["relative_error_error"] == row["estimation_error_error"] / 1.5
    assert row["beta"] == 1.0


def test_thresholds_and_densities_where_they_are_asked_for() -> None:
    plain, asked = run(VERB, noise=0.5)[0], run(VERB, noise=0.5, thresholds=True, spectrum=True)[0]
    known = thresholds(Target.marchenko_pastur(0.5), noise=0.5)
    assert (plain.threshold_recovery, plain.density) == (None, None)
    asked_thresholds = {name: getattr(asked, f"threshold_{name}") for name in vars(known)}
    assert asked_thresholds == vars(known)
    table = collect_tables(VERB, [asked])["predicted_spectra"]
    assert table.columns == ["x", "density", "interval", "case"]
    assert table.height == 300
    hardmax, linear = run(VERB, output=["hardmax", "linear"], tokens=2, student="bayes", thresholds=True)
    assert (hardmax.threshold_recovery, linear.threshold_recovery) == (None, known.recovery / 3)


def test_the_scaling_law_of_a_power_law_target() -> None:
    given = {"target_exponent": 1.0, "target_dimension": 1000, "alpha": 0.02, "noise": 0.5}
    (factorized, direct, bayes) = run(VERB, student=["factorized", "direct", "bayes"], **given)
    assert factorized.predicted_exponent == bayes.predicted_exponent == -0.5
    assert factorized.leading_error != bayes.leading_error
    assert (direct.leading_error, direct.predicted_exponent) == (None, None)


def test_trained_students_are_those_of_simulate() -> None:
    given = {"alpha": 0.3, "noise": 0.5, "simulate": 12, "seeds": 3, "seed": 5, "sensing": "goe"}
    (case,) = SIMULATE.cases(given)
    seen: list[tuple[int, int]] = []
    (measurement,) = SIMULATE.run([case], lambda *state: seen.append(state))
    known = simulate(Problem(0.3, noise=0.5), size=12, seeds=3, seed=5, sensing="goe")
    assert measurement == known
    assert seen[-1] == (3, 3)
    row = SIMULATE.row(case, measurement)
    assert list(row) == list(SIMULATE.schema)
    assert (row["norm"], row["norm_error"]) == (known.norm.value, known.norm.error)
    table = collect_tables(SIMULATE, [measurement])["eigenvalues"]
    assert table["eigenvalue"].to_list() == known.eigenvalues.ravel().tolist()
    (alone,) = run(SIMULATE, **(given | {"seeds": 1}))
    assert alone.norm.error is None


def test_a_rounded_sample_count_is_remarked() -> None:
    (few, enough) = run(SIMULATE, alpha=[0.01, 0.25], simulate=12, seeds=1)
    assert few.outcome is Outcome.DONE
    assert few.remark.startswith("at d = 12, n = 1 gives alpha 0.00694 instead of 0.01; choose")
    assert enough.remark is None


def test_a_case_that_cannot_work_leaves_the_others_alone() -> None:
    refused, solved = run(VERB, alpha=[0.1, 0.6], weight_decay=0.0)
    assert isinstance(refused, InputError)
    assert solved.outcome is Outcome.RECOVERED
    odd, even = run(SIMULATE, simulate=[7, 8], seeds=1)
    assert isinstance(odd, InputError)
    assert even.size == 8


@pytest.mark.parametrize(
    ("of", "given", "words"),
    [
        (VERB, {"alpha": -1}, "--alpha -1: expected a number above 0"),
        (
            VERB,
            {"alpha": 1e-16},
            "--alpha 1e-16: expected 0 or a number in the range of double precision, from",
        ),
        (VERB, {"tokens": 1.5}, "--tokens 1.5: expected a whole number of at least 1"),
        (VERB, {"beta": 2}, "--beta needs --output softmax"),
        (VERB, {**HARDMAX, "beta": 2}, "--beta needs --output softmax"),
        (VERB, {"output": "softmax"}, "--tokens 1: expected at least 2 with --output softmax"),
        (
            VERB,
            {"output": "hardmax", "tokens": 2},
            f"--student factorized: expected {WITH_HARDMAX} with --output hardmax",
        ),
        (VERB, {**HARDMAX, "tokens": 3}, "--tokens 3: expected 2 with --output hardmax"),
        (VERB, {**HARDMAX, "thresholds": True}, f"--thresholds needs --output {IDENTIFYING}"),
        (
            VERB,
            {"student": "bayes", "weight_decay": 0.1},
            f"--weight-decay needs --student {PENALISED}",
        ),
        (
            VERB,
            {"target_rank": 0.3, "target_exponent": 1},
            "--target-rank cannot be combined with --targ",
        ),
        (VERB, {"target_dimension": 10}, "--target-dimension needs --target-exponent"),
        (VERB, {"target_exponent": 1, "target_dimension": 10**12}, "of at least 1 and of at most 10000000"),
        (
            VERB,
            {"weight_decay": 0},
            "--weight-decay 0: but below interpolation (--alpha 0.4375) many students",
        ),
        (
            VERB,
            {**SOFTMAX, "beta": 1e5},
            "--beta 100000: this makes the standard deviation of the logits 1.22e+05",
        ),
        (SIMULATE, {"simulate": 1}, "--simulate 1: expected a whole number of at least 2"),
        (SIMULATE, {"alpha": 0.3}, "--simulate is missing"),
        (
            SIMULATE,
            {"simulate": 8, "sensing": "gue"},
            f"--sensing gue: expected one of {', '.join(SENSINGS)}",
        ),
        (
            SIMULATE,
            {"simulate": 8, "student": "bayes"},
            "--student bayes: this student is computed and cannot be trained",
        ),
        (SIMULATE, {"simulate": 3000}, "more than 2 GiB; choose a smaller --simulate or --alpha"),
        (
            SIMULATE,
            {"simulate": 400, "sensing": "goe"},
            "more than 2 GiB; choose a smaller --simulate, or --sensing tokens",
        ),
    ],
)
def test_a_bad_setting_is_spelled_as_an_option(of: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSetting) as caught:
        [of.precheck(case) for case in of.cases(given)]
    assert words in caught.value.message(as_option)


@pytest.mark.parametrize(
    ("of", "given", "words"),
    [
        (VERB, {"output": "softmax", "tokens": 40}, "choose at most 14 tokens, or use the linear output"),
        (SIMULATE, {"simulate": 25}, "dimension 25 times target rank 0.5 is 12.5"),
        (SIMULATE, {"simulate": 8, "alpha": 1e-3}, "alpha 0.001 gives no sample; choose a larger dimension"),
    ],
)
def test_what_cannot_work_is_refused_before_it_runs(of: Any, given: dict[str, Any], words: str) -> None:
    (case,) = of.cases(given)
    with pytest.raises(InputError, match=words):
        of.precheck(case)
