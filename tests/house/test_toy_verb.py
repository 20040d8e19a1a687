"""A verb in one file and a line of the table: its command, help, refusals, JSON, rows and Python function."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from command.in_process import invoke

import attnlaw.verbs
from attnlaw.verbs import STUDY_VERBS, VERBS


@pytest.fixture(autouse=True)
def coin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attnlaw.verbs.VERBS, "coin", ("house.coin", "Toss a coin many times."))


def test_it_has_a_command_with_help() -> None:
    assert "Toss a coin many times." in invoke("--help").stdout
    shown = invoke("coin", "--help").stdout
    assert "--bias NUMBER,..." in shown
    assert "Probability of heads." in shown
    assert "--metal gold|paper" in shown
    assert "(default: 0.5)" in shown


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--bias -1", "--bias -1: expected a number above 0 and of at most 1"),
        ("--bias much", "--bias much: expected a number above 0 and of at most 1"),
        ("--bias 0.1:1", "--bias 0.1:1: expected FROM:TO:COUNT such as 0.05:1:40"),
        ("--tosses 1.5", "--tosses 1.5: expected a whole number of at least 1"),
        ("--metal tin", "--metal tin: expected one of gold, paper"),
        ("--wear 0.2 --metal paper", "--wear needs --metal gold"),
        ("--wear 0.75", "--wear 0.75: expected at most the --bias, 0.5"),
        ("--figures pdf", "--figures needs --out"),
        ("--bais 1", "--bais is not an option. Did you mean --bias? See: attnlaw coin --help"),
    ],
)
def test_a_bad_value_is_one_line(words: str, line: str) -> None:
    assert invoke("coin", *words.split(), status=2).stderr == f"attnlaw: {line}\n"


def test_one_case_is_a_list_of_quantities_and_several_are_rows() -> None:
    output = invoke("coin").stdout
    assert "0.50(5)" in output
    assert "share of heads" in output
    rows = invoke("coin", "--bias", "0.25,0.75").stdout.splitlines()
    assert [line.split() for line in rows[-3:-1]] == [["0.25", "0.25(4)"], ["0.75", "0.75(4)"]]
    assert rows[-1].endswith("share of heads")


def test_json_alone_is_on_standard_output() -> None:
    coin_case = json.loads(invoke("coin", "--json").stdout)
    assert set(coin_case) == {"verb", "settings", "quantities", "status", "remark", "tables", "version"}
    assert coin_case["quantities"]["mean"] == {"value": 0.5, "error": 0.05}
    several = json.loads(invoke("coin", "--bias", "0.1:0.9:3", "--json").stdout)
    assert [case["settings"]["bias"] for case in several] == [0.1, 0.5, 0.9]


def test_a_case_that_fails_is_told_and_the_others_go_on() -> None:
    ended = invoke("coin", "--bias", "0.25,0.125,0.5", "--json", status=1)
    assert ended.stderr == "attnlaw: a coin of bias 0.125 rolls away; choose another\n"
    assert len(json.loads(ended.stdout)) == 2


def test_verbs_are_declared_without_what_takes_long_to_import() -> None:
    """`--help` and a bad value answer at once. SciPy loads its parts at their first use."""
    modules = ", ".join(module for name, (module, _) in (VERBS | STUDY_VERBS).items() if name != "coin")
    heavy = "{'scipy.special', 'scipy.linalg', 'polars', 'altair', 'torch', 'rich', 'cyclopts'}"
    program = f"import sys, attnlaw, {modules}; print(sorted({heavy} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
