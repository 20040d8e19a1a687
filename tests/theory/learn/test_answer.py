"""The answer of `learn` in words: each sentence is compared with numbers computed in another way."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy
from rich.console import Console

import attnlaw
from attnlaw.core.answer import AnswerStatus
from attnlaw.core.command_line import command
from attnlaw.core.result import Result
from attnlaw.theory.learn.agreement import largest_chance_difference
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.simulate import simulate
from attnlaw.theory.learn.state_evolution import state_evolution
from attnlaw.verbs.learn import SIMULATE
from attnlaw.verbs.learn.answer import answer
from attnlaw.verbs.learn.comparison import trained_students
from attnlaw.verbs.learn.terminal import show_summary


def lines(result: Result) -> list[str]:
    return [line.text for line in answer(result).lines]


def with_students(result: Result, size: Any = 20, **more: Any) -> Result:
    """Return the result with trained students of the settings that vary in it."""
    given = {"alpha": result.rows["alpha"].unique(maintain_order=True).to_list(), "noise": 0.5}
    return replace(result, simulation=SIMULATE(simulate=size, **given, **more))


def screen(result: Result, width: int = 80, encoding: str = "utf-8", details: bool = False) -> str:
    """Return the screen of a result, as a terminal of this width shows it."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    console = Console(file=stream, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    show_summary(result, console, details)
    stream.seek(0)
    return stream.read()


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5])
def test_the_first_sentence_is_the_error_over_that_of_learning_nothing(alpha: float) -> None:
    """Tr S*^2/d of a Marchenko-Pastur target of rank k is 1 + k: learning nothing costs 1.5."""
    result = attnlaw.learn(alpha=alpha, noise=0.3)
    problem = Problem(alpha=alpha, noise=0.3, target=Target.marchenko_pastur(0.5))
    error = state_evolution(problem).estimation_error.value
    assert lines(result)[0] == (
        f"With {alpha:g} d² samples (α = {alpha:g}) the error is {100 * error / 1.5:.3g}% of "
        f"learning nothing: E is {error:.3g} instead of 1.5."
    )


def test_directions_are_those_of_the_learned_spectrum_and_of_the_target() -> None:
    result = attnlaw.learn(alpha=0.2, target_rank=0.4)
    share = 100 * (1 - sum(weight for place, weight in result.record.spectrum.atoms if place == 0))
    assert lines(result)[1] == f"The learned matrix uses {share:.3g}% of all directions; the target has 40%."
    assert (
        "uses all directions; the target has 40%"
        in lines(attnlaw.learn(student="direct", target_rank=0.4))[1]
    )
    power = attnlaw.learn(target_exponent=1.2, target_dimension=5000, alpha=0.01)
    found = round(5000 * power.record.rank_fraction.value)
    assert lines(power)[1] == f"The learned matrix uses {found:,} of 5,000 directions."


def test_the_causes_of_the_error_are_named_in_their_order() -> None:
    for settings, main in (({"weight_decay": 3.0}, "not learned yet"), ({"weight_decay": 0.01}, "learned")):
        result = attnlaw.learn(alpha=0.3, noise=0.5, **settings)
        q, m, Q = result.norm.value, result.overlap.value, 1.5
        missing = (Q - m) ** 2 / Q / (q - 2 * m + Q)
        largest = max(missing, 1 - missing)
        assert lines(result)[2].startswith(f"{100 * largest:.0f}% of this error")
        assert main in lines(result)[2].partition(",")[0]


@pytest.mark.parametrize(
    ("settings", "words", "status"),
    [
        ({"weight_decay": 10.0, "noise": 0.5}, "practically nothing is learned", AnswerStatus.UNUSUAL),
        ({"weight_decay": 0.001, "noise": 2.0, "alpha": 0.3}, "training does harm", AnswerStatus.UNUSUAL),
        ({"weight_decay": 0.0, "alpha": 0.6}, "the student recovers the target", AnswerStatus.OK),
        ({"student": "bayes", "alpha": 0.6}, "the student recovers the target", AnswerStatus.OK),
        ({}, "the error is", None),
    ],
)
def test_the_first_line_has_a_status_if_the_error_is_special(
    settings: dict[str, Any], words: str, status: AnswerStatus | None
) -> None:
    first = answer(attnlaw.learn(**settings)).lines[0]
    assert words in first.text
    assert first.status == status


def test_an_unstable_theory_is_a_warning() -> None:
    result = attnlaw.learn(width=0.2)
    assert result.stability > 1
    assert answer(result).status is AnswerStatus.WARNING
    assert f"(stability {result.stability:.3g} is above 1)" in lines(result)[-1]


def test_cross_entropy_counts_wrong_keys() -> None:
    result = attnlaw.learn(loss="cross-entropy", output="softmax", attention="untied", tokens=2, alpha=1)
    cosine = result.overlap.value / math.sqrt(result.norm.value)  # Q* is 1 for untied attention
    percent = 100 * math.acos(cosine) / math.pi
    assert lines(result)[0].startswith(
        f"With 1 d² samples (α = 1), {percent:.3g}% of new queries attend most to"
    )
    assert not any("of learning nothing" in text for text in lines(result))


def test_a_curve_says_both_ends_and_a_peak_is_unusual() -> None:
    falls = attnlaw.learn(alpha="0.1:0.5:5")
    first, last = (100 * falls.rows["estimation_error"][i] / 1.5 for i in (0, -1))
    assert lines(falls) == [
        f"The error falls from {first:.3g}% of learning nothing at 0.1 d² samples to {last:.3g}% at 0.5 d² "
        "samples."
    ]
    peak = attnlaw.learn(alpha="0.1:0.9:9", noise=2, weight_decay=0.001)
    place = peak.rows["alpha"][int(np.argmax(peak.rows["estimation_error"]))]
    (line,) = answer(peak).lines
    assert f"largest at {place:g} d² samples" in line.text
    assert line.status is AnswerStatus.UNUSUAL
    decays = attnlaw.learn(weight_decay=[0.01, 0.1, 1.0], noise=0.5)
    best = decays.rows["weight_decay"][int(np.argmin(decays.rows["estimation_error"]))]
    assert f"smallest at weight decay {best:g}:" in lines(decays)[0]
    assert answer(decays).lines[0].status is None


def test_students_have_a_curve_each_without_the_decay_that_follows_from_them() -> None:
    result = attnlaw.learn(student=["bayes", "direct"], alpha=[0.1, 0.3])
    assert [text.partition(":")[0] for text in lines(result)] == [
        "Student Bayes-optimal",
        "Student direct (ridge)",
    ]


def test_thresholds_say_how_many_samples_are_missing() -> None:
    result = attnlaw.learn(alpha=0.2, student="direct", thresholds=True)
    assert any("needs 0.5 d² samples: 2.5 times as many." in text for text in lines(result))
    enough = answer(attnlaw.learn(alpha=0.7, student="direct", thresholds=True)).lines[-1]
    assert (enough.text.endswith("It has enough."), enough.status) == (True, AnswerStatus.OK)


def test_agreement_is_measured_in_standard_errors() -> None:
    result = with_students(attnlaw.learn(alpha=0.3, noise=0.5), seeds=6)
    problem = Problem(alpha=0.3, noise=0.5, target=Target.marchenko_pastur(0.5))
    measured = simulate(problem, size=20, seeds=6).estimation_error
    apart = abs(measured.value - result.estimation_error.value) / measured.error
    (line,) = [line for line in answer(result).lines if "6 students trained at d = 20" in line.text]
    assert f"{apart:.2g} standard errors" in line.text
    assert (line.status is AnswerStatus.OK) == (apart <= 3)


@pytest.mark.parametrize(
    ("shift", "status"),
    [(0.0, AnswerStatus.OK), (4.0, None), (60.0, AnswerStatus.UNUSUAL), (-60.0, AnswerStatus.UNUSUAL)],
)
def test_students_far_from_theory_disagree(shift: float, status: AnswerStatus | None) -> None:
    """With 6 students, 3 standard errors are not yet beyond chance (Student's t), 60 are."""
    result = attnlaw.learn(alpha=0.3, noise=0.5)
    moved = with_students(result, seeds=6)
    rows = moved.simulation.rows.with_columns(
        estimation_error=pl.lit(result.estimation_error.value + shift * 0.01),
        estimation_error_error=pl.lit(0.01),
    )
    changed = replace(moved, simulation=replace(moved.simulation, rows=rows))
    (line,) = [line for line in answer(changed).lines if "trained at d = 20" in line.text]
    assert line.status is status
    assert f"{abs(shift):.2g} standard errors" in line.text


def test_the_limit_of_chance_grows_for_few_students() -> None:
    tail = scipy.stats.norm.sf(3)
    for seeds, count in ((2, 1), (8, 5)):
        expected = scipy.stats.t.isf(tail / count, seeds - 1)
        assert largest_chance_difference(seeds, count) == pytest.approx(expected, rel=1e-6)


def test_repetitions_of_a_study_are_pooled() -> None:
    """Each repetition of a study trains one student: two repetitions have a standard error."""
    theory = attnlaw.learn(alpha=0.3, noise=0.5)
    parts = [SIMULATE(simulate=20, seeds=1, seed=seed, alpha=0.3, noise=0.5) for seed in (0, 1)]
    (students,) = trained_students(replace(theory, simulation=Result.concat(parts)))
    values = [part.estimation_error.value for part in parts]
    assert students.students == 2
    assert students.values["estimation_error"].value == pytest.approx(np.mean(values))
    assert students.values["estimation_error"].error == pytest.approx(np.std(values, ddof=1) / math.sqrt(2))


def test_one_student_and_failed_cases_are_said() -> None:
    alone = with_students(attnlaw.learn(alpha=0.3, noise=0.5), seeds=1)
    assert answer(alone).status is AnswerStatus.WARNING
    assert any("Use --seeds 2 or more." in text for text in lines(alone))
    curve = attnlaw.learn(alpha=[0.1, 0.2, 0.3])
    lost = pl.when(pl.col("alpha") == 0.2)
    rows = curve.rows.with_columns(
        status=lost.then(pl.lit("failed")).otherwise("status"),
        remark=lost.then(pl.lit("no memory")).otherwise("remark"),
        estimation_error=lost.then(None).otherwise("estimation_error"),
        relative_error=lost.then(None).otherwise("relative_error"),
    )
    failed = answer(replace(curve, rows=rows, records=()))
    assert failed.status is AnswerStatus.ERROR
    assert failed.lines[-1].text == "1 of 3 cases failed and are left out."
    assert "falls from" in failed.lines[0].text
    assert "no memory" not in screen(replace(curve, rows=rows, records=()))


CASES: list[dict[str, Any]] = [
    {},
    {"alpha": "0.1:0.5:5"},
    {"student": ["bayes", "direct", "factorized"], "thresholds": True},
    {"student": "bayes", "output": "hardmax", "tokens": 2},
    {"loss": "cross-entropy", "output": "softmax", "attention": "untied", "tokens": 2},
    {"target_exponent": 1.2, "target_dimension": 1000},
    {"target_eigenvalues": "0,1,2", "width": 0.3},
    {"attention": "untied", "tokens": 2, "student": "direct", "flow_time": 2.0},
]


@pytest.mark.parametrize("settings", CASES)
@pytest.mark.parametrize("details", [False, True])
def test_a_screen_fits_into_80_columns_and_loses_nothing_in_ascii(
    settings: dict[str, Any], details: bool
) -> None:
    result = attnlaw.learn(**settings)
    shown, plain = screen(result, details=details), screen(result, encoding="ascii", details=details)
    commands = [line for line in shown.splitlines() if "attnlaw learn" in line]
    assert max(len(line) for line in shown.splitlines() if line not in commands) <= 80
    assert "…" not in shown
    assert plain.isascii()
    assert "?" not in plain.replace("dimension?", "")
    assert re.findall(r"\d+\.\d+", plain) == re.findall(r"\d+\.\d+", shown)


@pytest.mark.parametrize("settings", CASES)
def test_next_commands_are_commands_that_give_the_same_problem(settings: dict[str, Any]) -> None:
    result = attnlaw.learn(**settings)
    commands = answer(result).next_commands
    assert f"{command(result)} --out results" in commands
    for text in commands:
        words = [word.removeprefix("--").replace("-", "_") for word in text.split() if word.startswith("--")]
        assert {name for name in settings if settings[name] is not True} <= {*words, "alpha"}


def test_commands_have_ranges_and_simulations() -> None:
    result = with_students(attnlaw.learn(alpha="0.1:0.4:4", noise=0.5), size=[20, 30], seeds=2)
    assert command(result) == "attnlaw learn --alpha 0.1:0.4:4 --noise 0.5 --simulate 20,30 --seeds 2"
    assert command(result, simulate=None) == "attnlaw learn --alpha 0.1:0.4:4 --noise 0.5"
    assert command(attnlaw.learn(alpha=[0.1, 0.2, 0.3, 0.5])) == "attnlaw learn --alpha 0.1,0.2,0.3,0.5"
