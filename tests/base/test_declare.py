"""The declaration: one record, and what Python, options and files make of it."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from house.coin import VERB, Coin

from attnlaw.base.declare import Quantity, columns, flatten, fold
from attnlaw.base.errors import BadSetting, InputError, as_option
from attnlaw.base.estimate import Estimate, Range
from attnlaw.base.settings import Settings, declared, setting, settings, span


def told(**given: Any) -> str:
    with pytest.raises(InputError) as caught:
        VERB.cases(given)
    return str(caught.value)


def test_values_are_checked_where_the_record_is_made() -> None:
    assert told(bias=-1) == "bias: found -1, expected a number above 0 and of at most 1"
    assert told(tosses=1.5) == "tosses: found 1.5, expected a whole number of at least 1"
    assert told(tosses=True) == "tosses: found True, expected a whole number of at least 1"
    assert told(bias=math.inf).startswith("bias: found inf")
    assert told(metal="tin") == "metal: found 'tin', expected one of gold, paper"
    assert told(wear=0.75) == "wear: found 0.75, expected at most the bias, 0.5"
    assert Coin(tosses=2.0).tosses == 2  # type: ignore[arg-type]


def test_unknown_and_idle_settings_are_told() -> None:
    assert told(bais=0.1) == "bais is not a setting of coin; did you mean bias?"
    assert told(wear=0.1, metal="paper") == "wear needs metal gold"
    first, second = VERB.cases({"wear": 0.1, "metal": ["gold", "paper"]})
    assert (first.row()["wear"], second.row()["wear"]) == (0.1, None)


def test_a_mistake_is_spelled_as_its_place_does() -> None:
    mistake = BadSetting("target_rank", "cannot stand beside {target_exponent}; choose one")
    assert mistake.told(as_option) == "--target-rank cannot stand beside --target-exponent; choose one"
    assert BadSetting("alpha", "expected a number", "x").told(as_option) == "--alpha x: expected a number"
    assert (
        BadSetting("alpha", "is odd", 3).told(place="s.toml: [grid] ")
        == "s.toml: [grid] alpha: found 3, is odd"
    )
    assert str(pickle.loads(pickle.dumps(mistake))) == str(mistake)


def test_words_of_the_command_line() -> None:
    bias, tosses, metal = (declared(Coin)[name] for name in ("bias", "tosses", "metal"))
    assert bias.from_words("0.1,0.2,0.1") == [0.1, 0.2]
    assert bias.from_words("0:1:3") == [0.0, 0.5, 1.0]
    assert tosses.from_words("100") == [100]
    assert tosses.from_words("1,2") == ["1,2"]  # not many: told as no number
    assert metal.from_words("gold, paper") == ["gold", "paper"]
    assert math.isinf(bias.from_word("∞"))


@pytest.mark.parametrize("text", ["0.1:1", "a:b:c", "1:0:3", "0:1:1", "0:inf:3", "0:1:9999999"])
def test_a_bad_span_is_one_line(text: str) -> None:
    with pytest.raises(BadSetting, match="alpha: found"):
        span("alpha", text)


@pytest.mark.parametrize(("low", "high", "count"), [(0.05, 1.0, 40), (0.1, 0.4, 4), (-3.0, 7.7, 1001)])
def test_a_span_is_numpys(low: float, high: float, count: int) -> None:
    assert span("x", f"{low}:{high}:{count}") == np.linspace(low, high, count).tolist()


def test_rows_json_and_schema_have_the_same_names() -> None:
    (case,) = VERB.cases({"bias": 0.25})
    (found,) = VERB.run([case], lambda done, total: None)
    assert not isinstance(found, InputError)
    row, whole = VERB.row(case, found), VERB.json(case, found)
    assert list(row) == list(VERB.schema)
    assert json.loads(json.dumps(whole)) == whole
    assert whole["quantities"]["mean"] == {"value": 0.25, "error": pytest.approx(math.sqrt(0.1875 / 100))}
    assert whole["quantities"]["heads"] == 25
    assert (whole["status"], whole["remark"]) == ("done", None)
    assert VERB.label("bias") == "bias p"
    assert VERB.label("mean") == "mean p̂"
    assert VERB.label("share") == "share"


def test_fold_and_flatten_are_inverse() -> None:
    table = (
        Quantity("estimation_error", error=True),
        Quantity("kappa", range=True),
        Quantity("law", kind="text"),
    )
    values = {"estimation_error": Estimate(0.5, 0.1), "kappa": Range(None, 1.0, None), "law": "random"}
    row = flatten(table, values)
    assert list(row) == list(columns(table))
    assert row["estimation_error_error"] == 0.1
    folded = fold(table, row)
    assert folded["kappa"] == {"value": None, "low": 1.0, "high": None}
    again = {
        "estimation_error": Estimate(**folded["estimation_error"]),
        "kappa": Range(**folded["kappa"]),
        "law": folded["law"],
    }
    assert again == values
    assert fold(table, flatten(table, {})) == {"estimation_error": None, "kappa": None, "law": None}


def test_the_python_function() -> None:
    assert VERB(bias=0.25).heads == 25
    assert [found.heads for found in VERB(bias=[0.25, 0.75])] == [25, 75]
    with pytest.raises(InputError, match="rolls away"):
        VERB(bias=0.125)
    assert "bias" in VERB.__signature__.parameters


def test_a_failing_case_leaves_the_others_alone() -> None:
    cases = VERB.cases({"bias": [0.25, 0.125, 0.5]})
    found = list(VERB.run(cases, lambda done, total: None))
    assert [isinstance(one, InputError) for one in found] == [False, True, False]


def test_a_verb_travels_by_name() -> None:
    assert pickle.loads(pickle.dumps(VERB)) is VERB


@settings
class Several(Settings):
    ids: tuple[int, ...] = setting((1,), "Token ids.", least=0)
    only: str | tuple[str, ...] | None = setting(None, "Kinds.")
    jobs: int | None = setting(None, "Threads.", least=1, local=True)


def test_lists_unions_and_local_settings() -> None:
    assert Several(ids="1, 2,3").ids == (1, 2, 3)  # type: ignore[arg-type]
    assert Several(ids=[4]).row() == {"ids": [4], "only": None}  # type: ignore[arg-type]
    assert Several(only=["qk", "vo"]).only == ("qk", "vo")  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match=r"ids: found '1,x', expected whole numbers with commas"):
        Several(ids="1,x")  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="of at least 0"):
        Several(ids=[-1])  # type: ignore[arg-type]
    again = Several.of(Several(ids=[2], jobs=3).plain(), "several")  # type: ignore[arg-type]
    assert again == Several(ids=(2,))
