"""The declaration: one record, and what Python, options and files make of it."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from house.coin import VERB, Coin

from attnlaw.core.errors import BadSetting, InputError, as_option
from attnlaw.core.estimate import Estimate, Range
from attnlaw.core.function import signature
from attnlaw.core.quantity import Quantity, cells_to_json, column_kinds, to_cells
from attnlaw.core.result import Result
from attnlaw.core.settings import (
    Settings,
    check_value,
    parse_range,
    setting,
    setting_fields,
    settings_dataclass,
)
from attnlaw.core.variants import Variants


def error_message(**given: Any) -> str:
    with pytest.raises(InputError) as caught:
        VERB.cases(given)
    return str(caught.value)


def test_values_are_checked_where_the_record_is_made() -> None:
    assert error_message(bias=-1) == "bias: found -1, expected a number above 0 and of at most 1"
    assert error_message(tosses=1.5) == "tosses: found 1.5, expected a whole number of at least 1"
    assert error_message(tosses=True) == "tosses: found True, expected a whole number of at least 1"
    assert error_message(bias=math.inf).startswith("bias: found inf")
    assert error_message(metal="tin") == "metal: found 'tin', expected one of gold, paper"
    assert error_message(wear=0.75) == "wear: found 0.75, expected at most the bias, 0.5"
    assert Coin(tosses=2.0).tosses == 2  # type: ignore[arg-type]


def test_unknown_and_idle_settings_are_told() -> None:
    assert error_message(bais=0.1) == "bais is not a setting of coin; did you mean bias?"
    assert error_message(wear=0.1, metal="paper") == "wear needs metal gold"
    first, second = VERB.cases({"wear": 0.1, "metal": ["gold", "paper"]})
    assert (first.to_row()["wear"], second.to_row()["wear"]) == (0.1, None)


def test_a_mistake_is_spelled_as_its_place_does() -> None:
    mistake = BadSetting("target_rank", "cannot be combined with {target_exponent}; choose one")
    assert mistake.message(as_option) == "--target-rank cannot be combined with --target-exponent; choose one"
    assert BadSetting("alpha", "expected a number", "x").message(as_option) == "--alpha x: expected a number"
    assert (
        BadSetting("alpha", "is odd", 3).message(place="s.toml: [grid] ")
        == "s.toml: [grid] alpha: found 3, is odd"
    )
    assert str(pickle.loads(pickle.dumps(mistake))) == str(mistake)


def test_words_of_the_command_line() -> None:
    bias, tosses, metal = (setting_fields(Coin)[name] for name in ("bias", "tosses", "metal"))
    assert bias.parse_words("0.1,0.2,0.1") == [0.1, 0.2]
    assert bias.parse_words("0:1:3") == [0.0, 0.5, 1.0]
    assert tosses.parse_words("100") == [100]
    assert tosses.parse_words("1,2") == ["1,2"]  # not many: told as no number
    assert metal.parse_words("gold, paper") == ["gold", "paper"]
    assert math.isinf(bias.parse_word("∞"))


@pytest.mark.parametrize("text", ["0.1:1", "a:b:c", "1:0:3", "0:1:1", "0:inf:3", "0:1:9999999"])
def test_a_bad_span_is_one_line(text: str) -> None:
    with pytest.raises(BadSetting, match="alpha: found"):
        parse_range("alpha", text)


@pytest.mark.parametrize(("low", "high", "count"), [(0.05, 1.0, 40), (0.1, 0.4, 4), (-3.0, 7.7, 1001)])
def test_a_span_is_numpys(low: float, high: float, count: int) -> None:
    assert parse_range("x", f"{low}:{high}:{count}") == np.linspace(low, high, count).tolist()


def test_rows_json_and_schema_have_the_same_names() -> None:
    (case,) = VERB.cases({"bias": 0.25})
    (result,) = VERB.run([case], lambda done, total: None)
    assert not isinstance(result, InputError)
    row, whole = VERB.row(case, result), Result.collect(VERB, [(case, result)]).summary
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
    row = to_cells(table, values)
    assert list(row) == list(column_kinds(table))
    assert row["estimation_error_error"] == 0.1
    folded = cells_to_json(table, row)
    assert folded["kappa"] == {"value": None, "low": 1.0, "high": None}
    again = {
        "estimation_error": Estimate(**folded["estimation_error"]),
        "kappa": Range(**folded["kappa"]),
        "law": folded["law"],
    }
    assert again == values
    assert cells_to_json(table, to_cells(table, {})) == {"estimation_error": None, "kappa": None, "law": None}


def test_the_python_function() -> None:
    assert VERB(bias=0.25).heads == 25
    assert [result.heads for result in VERB(bias=[0.25, 0.75])] == [25, 75]
    with pytest.raises(InputError, match="rolls away"):
        VERB(bias=0.125)
    assert "bias" in signature(VERB).parameters


def test_a_failing_case_leaves_the_others_alone() -> None:
    cases = VERB.cases({"bias": [0.25, 0.125, 0.5]})
    results = list(VERB.run(cases, lambda done, total: None))
    assert [isinstance(result, InputError) for result in results] == [False, True, False]


def test_a_verb_travels_by_name() -> None:
    assert pickle.loads(pickle.dumps(VERB)) is VERB


@settings_dataclass
class Several(Settings):
    ids: tuple[int, ...] = setting((1,), "Token ids.", minimum=0)
    only: str | tuple[str, ...] | None = setting(None, "Kinds.")
    jobs: int | None = setting(None, "Threads.", minimum=1, machine_only=True)


def test_lists_unions_and_local_settings() -> None:
    assert Several(ids="1, 2,3").ids == (1, 2, 3)  # type: ignore[arg-type]
    assert Several(ids=[4]).to_row() == {"ids": [4], "only": None}  # type: ignore[arg-type]
    assert Several(only=["qk", "vo"]).only == ("qk", "vo")  # type: ignore[arg-type]
    expected = "expected whole numbers of at least 0 separated by commas, such as 1,2,3$"
    with pytest.raises(BadSetting, match=f"ids: found '1,x', {expected}"):
        Several(ids="1,x")  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="of at least 0"):
        Several(ids=[-1])  # type: ignore[arg-type]
    assert Several(ids=[np.int64(4)], jobs=np.int64(2)).to_row()["ids"] == [4]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Finish:
    name: str
    example: str | None = None

    def at(self, parameter: str) -> Finish:
        if not parameter.isdecimal():
            raise ValueError(parameter)
        return Finish(f"{self.name.partition(':')[0]}:{parameter}")


FINISHES = Variants(Finish("plain"), Finish("worn:YEARS", "worn:3"))


@settings_dataclass
class Minted(Settings):
    finish: str = setting("plain", "How it looks.", choices=FINISHES)
    size: float = setting(
        2.0, "Width in cm.", minimum=1, maximum=9, allow_infinite=True, excluded_by=("weight", "copy")
    )
    weight: float | None = setting(None, "Or its weight.", greater_than=0)
    copy: str | None = setting(None, "Or a coin like it.", requires="year")
    year: int | None = setting(None, "Of which year.", requires="copy")


def test_a_variant_with_a_parameter() -> None:
    assert FINISHES["worn:12"].name == "worn:12"
    assert (list(FINISHES), "worn" in FINISHES, "worn:YEARS" in FINISHES) == (
        ["plain", "worn:YEARS"],
        False,
        False,
    )
    assert Minted(finish="worn:7").finish == "worn:7"
    for bad in ("worn:", "worn:x", "rusty:3", "rusty"):
        line = f"finish: found {bad!r}, expected one of plain, worn:YEARS, for example worn:3"
        with pytest.raises(BadSetting) as caught:
            Minted(finish=bad)
        assert str(caught.value) == line
        with pytest.raises(BadSetting) as caught:
            check_value("finish", bad, str, choices=FINISHES)
        assert str(caught.value) == line


def test_what_takes_the_place_of_a_setting() -> None:
    for other in ({"weight": 1.0}, {"copy": "penny", "year": 1900}):
        with pytest.raises(BadSetting, match=f"size cannot be combined with {next(iter(other))}; choose one"):
            Minted.parse({"size": 1.0} | other, "mint")
        case = Minted.parse(other, "mint")
        assert case.to_row()["size"] is None
    with pytest.raises(BadSetting, match="copy needs year"):
        Minted.parse({"copy": "penny"}, "mint")
    with pytest.raises(BadSetting, match="expected a number of at least 1 and of at most 9, or inf"):
        Minted(size=0.5)
    assert Minted(size=math.inf).size == math.inf


def test_a_value_of_a_function_is_checked_like_a_setting() -> None:
    assert check_value("draws", np.int64(3), int, minimum=1) == 3
    with pytest.raises(BadSetting, match="draws: found 0, expected a whole number of at least 1"):
        check_value("draws", 0, int, minimum=1)
