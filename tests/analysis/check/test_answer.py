"""The answer of a gate: what a reader sees first on a screen, a page and in a notebook."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load_file, save_file

import attnlaw
from attnlaw.core.answer import AnswerStatus
from attnlaw.verbs.check.terminal import column_meanings
from attnlaw.verbs.views import answer_of, show

TINY = Path("examples/tiny-decoder")
RULES = """version = 1
[[rule]]
name = "ranks stay high"
of = "matrices"
where = { kind = "qk" }
column = "stable_rank"
is = "> 1.9"
"""


@pytest.fixture(scope="module", name="damaged")
def _damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with a tensor that is ten times too large and a head of zeros."""
    folder = tmp_path_factory.mktemp("gate") / "damaged"
    shutil.copytree(TINY, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.h.2.mlp.c_fc.weight"] *= 10
    tensors["transformer.h.1.attn.c_attn.weight"][:, 288:320] = 0
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module", name="failed")
def _failed(damaged: Path) -> attnlaw.Result:
    return attnlaw.check(str(damaged), jobs=1)


def screen(result: attnlaw.Result, details: bool = False, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(result, console, details)
    return console.file.getvalue()


def test_a_failed_gate_names_cause_place_value_limit_and_fix(failed: attnlaw.Result) -> None:
    answer = answer_of(failed)
    headline, unbalanced = answer.lines[:2]
    assert (answer.status, headline.status, unbalanced.status) == (AnswerStatus.ERROR,) * 3
    assert headline.text.startswith("Gate failed: 1 error, 4 warnings (")
    assert (
        unbalanced.text
        == "unbalanced: layer 2, FFN in: differs from the median layer by a factor of 9.39 (limit 3)"
    )
    reason, fix = unbalanced.details
    assert "The entries of FFN in are 9.48 times as large as those of FFN out" in reason
    assert "One of the two tensors has a wrong scale" in reason
    assert fix.startswith("Fix: look for a scale that was applied twice")


def test_a_passed_gate_says_so_and_suggests_stricter_rules() -> None:
    answer = answer_of(attnlaw.check(str(TINY), jobs=1))
    assert answer.status is AnswerStatus.OK
    assert answer.lines[0].text.startswith("Gate passed: no problems found")
    assert answer.lines[1].text.startswith("You gave no rules.")
    assert f"attnlaw check {TINY} --rules release" in answer.next_commands


def test_the_first_screen_fits_80_columns_and_details_have_every_remedy(failed: attnlaw.Result) -> None:
    first, full = screen(failed), screen(failed, details=True)
    prose = [line for line in first.splitlines() if "attnlaw " not in line and "/" not in line]
    assert max(map(len, prose)) <= 80
    assert (first.count("Fix:"), full.count("Fix:")) == (1, 5)
    assert "Every place of" not in first
    assert "Every place of zero-rows:" in full


def test_a_failed_rule_says_what_was_expected_and_where_it_fails(damaged: Path, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    result = attnlaw.check(str(damaged), rules=str(path), jobs=1)
    line = answer_of(result).lines[1]
    assert line.status is AnswerStatus.ERROR
    assert line.text.startswith("ranks stay high: ")
    assert "of 16 rows hold, expected stable_rank > 1.9" in line.text
    assert line.details[0].startswith("Worst: layer 0, QK, head ")
    shown = screen(result)
    assert shown.count("Fix:") == 1
    assert "stable_rank  " in shown  # the column is defined
    assert "You gave no rules" not in shown


def test_several_models_have_a_line_each(damaged: Path) -> None:
    result = attnlaw.check([str(TINY), str(damaged)], jobs=1)
    good, bad = answer_of(result).lines[:2]
    assert (good.status, bad.status) == (AnswerStatus.OK, AnswerStatus.ERROR)
    assert bad.text.startswith(f"{damaged}: Gate failed")
    assert bad.details[0].startswith("unbalanced: layer 2, FFN in")
    assert "tiny-decoder  passed" in screen(result)


def test_a_saved_gate_gives_the_same_screen_and_a_page_with_findings(
    failed: attnlaw.Result, tmp_path: Path
) -> None:
    folder = failed.save(tmp_path / "out")
    for details in (False, True):
        assert screen(attnlaw.load(folder), details) == screen(failed, details)
    page = (folder / "report.html").read_text()
    for text in (
        "differs from the median layer by a factor of 9.39 (limit 3)",
        "applied twice",
        "Gate failed",
        "zero-rows",
    ):
        assert text in page


def test_a_notebook_and_repr_start_with_the_answer(failed: attnlaw.Result) -> None:
    assert repr(failed).startswith("<check: ERROR Gate failed: 1 error, 4 warnings")
    html = failed._repr_html_()
    assert html.index("Gate failed") < html.index("unbalanced") < html.index("<table")


def test_a_nan_is_explained_and_no_audit_is_suggested(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "nan")
    tensors = load_file(tmp_path / "nan" / "model.safetensors")
    tensors["transformer.h.1.attn.c_attn.weight"][3, 5] = np.nan
    save_file(tensors, tmp_path / "nan" / "model.safetensors")
    answer = answer_of(attnlaw.check(str(tmp_path / "nan"), jobs=1))
    assert "1 of 49,152 entries is NaN or infinite." in answer.lines[1].details[0]
    assert [command for command in answer.next_commands if "audit" in command] == []


def test_the_share_of_rows_is_not_taken_for_the_column_rows() -> None:
    rule = {"of": "matrices", "asked": "stable_rank > 1.9 in at least 95% of rows"}
    assert list(column_meanings([rule])) == ["stable_rank"]
