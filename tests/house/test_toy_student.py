"""A student in one file and one line of the table has its own theory, training, thresholds and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from house.copycat import COPYCAT

from attnlaw.core.errors import BadSetting, InputError, as_option
from attnlaw.theory.learn.students import STUDENTS, Student
from attnlaw.verbs.learn import SIMULATE, VERB


@pytest.fixture(autouse=True)
def _one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STUDENTS, COPYCAT.name, COPYCAT)


def rows(verb: Any, **given: Any) -> list[dict[str, Any]]:
    cases = verb.cases(given)
    return [
        verb.row(case, result)
        for case, result in zip(cases, verb.run(cases, lambda done, total: None), strict=True)
    ]


def names_of(chosen: Callable[[Student], object]) -> str:
    """Those of the table, in its order, as a message lists them."""
    return " or ".join(name for name, student in STUDENTS.items() if chosen(student))


def error_message(verb: Any, **given: Any) -> str:
    with pytest.raises(BadSetting) as caught:
        [verb.precheck(case) for case in verb.cases(given)]
    return caught.value.message(as_option)


def test_its_theory_is_its_own() -> None:
    """Q* = 1.5 at rank 1/2: E = Q*/16; its neighbours in the same call keep their numbers."""
    copycat, factorized = rows(VERB, student=["copycat", "factorized"], alpha=0.3)
    assert (copycat["estimation_error"], copycat["prediction_error"]) == (1.5 / 16, 2 * 1.5 / 16)
    assert copycat["relative_error"] == 1 / 16
    (alone,) = rows(VERB, alpha=0.3)
    assert factorized == alone
    assert list(copycat) == list(VERB.schema)


def test_what_plays_no_part_is_null_or_refused() -> None:
    copycat, direct = rows(VERB, student=["copycat", "direct"], weight_decay=0.3)
    assert (copycat["weight_decay"], direct["weight_decay"]) == (None, 0.3)
    refused = error_message(VERB, student="copycat", weight_decay=0.3)
    assert refused == f"--weight-decay needs --student {names_of(lambda student: student.penalised)}"
    assert "copycat" not in refused
    (free,) = rows(VERB, student="copycat")
    assert (free["training_loss"], free["leading_error"]) == (None, None)


def test_its_thresholds_are_its_own() -> None:
    (copycat,) = rows(VERB, student="copycat", thresholds=True, noise=0.5, tokens=2)
    assert copycat["threshold_own_recovery"] == 7.0 / 3
    assert copycat["threshold_interpolation"] == 0.125 * 0.5 / 3
    assert copycat["threshold_peak_error"] == 42.0


def test_it_is_trained_beside_its_theory() -> None:
    (row,) = rows(SIMULATE, student="copycat", simulate=8, seeds=2)
    assert (row["solver"], row["status"]) == ("copying", "done")
    # At d = 8 the target is eight quantiles, so Q* is not yet 1.5; the trace is theirs exactly.
    assert row["norm"] == pytest.approx(9 * row["estimation_error"], rel=1e-12)
    assert row["estimation_error_error"] == 0.0


def test_what_it_has_no_theory_for_is_refused_by_name() -> None:
    able = names_of(lambda student: "softmax" in student.theories)
    assert error_message(VERB, student="copycat", output="softmax", tokens=2) == (
        f"--student copycat: expected {able} with --output softmax"
    )
    with pytest.raises(
        InputError, match=r"student: found 'oracle', expected one of factorized, .*bayes, .*copycat$"
    ):
        VERB.cases({"student": "oracle"})


def test_a_student_that_is_not_trained_is_refused() -> None:
    refused = error_message(SIMULATE, student="bayes", simulate=8)
    trained = names_of(lambda student: student.trainer is not None)
    assert refused == f"--student bayes: this student is computed and cannot be trained; simulate {trained}"
    assert trained.endswith(" or copycat")
