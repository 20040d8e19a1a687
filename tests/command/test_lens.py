"""`attnlaw lens`: the JSON contract, the table, the files, and clear refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from analysis.forward.tiny_models import save_tiny
from command.in_process import Ended, invoke

from attnlaw.analysis.forward.lens import linearise

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-decoder"


def run(*arguments: object, **options: Any) -> Ended:
    return invoke("lens", *arguments, **options)


def test_json_is_the_library_call() -> None:
    case = json.loads(run(EXAMPLE, "--ids", "97, 98", "--top", 3, "--json").stdout)
    expected = linearise(str(EXAMPLE), [97, 98], top=3)
    assert case["settings"]["ids"] == [97, 98]
    assert case["quantities"]["reconstruction_error"] == expected.reconstruction_error < 1e-10
    assert case["quantities"]["singular_values"] == list(expected.singular_values)
    assert len(case["tables"]["token_map"]) == 4
    assert case["status"] == "done"


@pytest.mark.slow
def test_table_and_files(tmp_path: Path) -> None:
    shown = run(EXAMPLE, "--ids", "97,98", "--out", tmp_path / "out").stdout
    assert "reconstruction error" in shown
    assert "moved by (operator)" in shown
    assert pl.read_parquet(tmp_path / "out" / "token_map.parquet").height == 4
    page = (tmp_path / "out" / "report.html").read_text()
    assert "rollout" in page
    assert "vega" not in page.lower()


@pytest.mark.slow
def test_several_models_on_one_page(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(EXAMPLE, other)
    run(EXAMPLE, other, "--text", "ab", "--only", "heads", "--out", tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count('<p class="tokens">') == 2
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["columns"]["model"] == ["tiny-decoder"] * 16 + ["other"] * 16
    assert data["shown"][0] == ["model", "model"]


@pytest.mark.slow
def test_a_narrow_screen_goes_without_rollout() -> None:
    shown = run(EXAMPLE, "--ids", ",".join(map(str, range(11))), "--top", 1, columns=60).stdout
    assert "…" not in shown
    assert "0 (100%)" in shown
    assert "A wider screen also shows: rollout." in shown


@pytest.mark.slow
def test_many_tokens_are_estimated_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnlaw.analysis.forward import token_maps as maps

    monkeypatch.setattr(maps, "PROBES", 2)
    shown = run(EXAMPLE, "--ids", ",".join(map(str, range(33))), "--top", 1).stdout
    assert "1 more tokens; --out DIR draws all of them" in shown
    assert "norms estimated from 2 probes a token" in shown


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        ("--ids 1,x", "--ids 1,x: expected whole numbers with commas", 2),
        ("--ids 1.5", "--ids 1.5: expected whole numbers with commas", 2),
        ("--ids ,", "--ids ,: expected whole numbers with commas", 2),
        ("--ids=-1", "--ids -1: expected", 2),
        ("--ids 1 --top 0", "--top 0: expected a whole number of at least 1", 2),
        ("--ids 256", "--ids 256: outside the vocabulary; choose from 0 to 255", 2),
        (f"--ids {','.join(['1'] * 129)}", "--ids has 129 tokens, and the model 128 positions", 2),
        ("--ids 1 --top 128", "of at most 127", 2),
        ("--text a --text b", "attnlaw: --text holds 2 inputs, and lens takes one; keep one\n", 2),
        ("--ids @nowhere", "nowhere: no such file; check the path", 1),
    ],
)
def test_bad_input_is_one_clear_line(arguments: str, message: str, status: int) -> None:
    line = run(EXAMPLE, *arguments.split(), status=status).stderr
    assert message in line
    assert line.count("\n") == 1


def test_a_name_on_the_hub_is_not_opened() -> None:
    line = run("google-bert/bert-base-uncased", "--ids", "1", status=1).stderr
    assert "give the local directory" in line


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "attnlaw[lens]" in run(EXAMPLE, "--ids", "1", status=1).stderr


def test_an_input_is_needed() -> None:
    assert run(EXAMPLE, status=2).stderr == "attnlaw: --text is missing; give it, --file or --ids\n"


def test_one_input_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("ab\n\ncd\n")
    line = run(EXAMPLE, "--file", tmp_path / "two.txt", status=1).stderr
    assert line == f"attnlaw: {tmp_path / 'two.txt'}: holds 2 inputs, and lens takes one; keep one line\n"
    (tmp_path / "one.jsonl").write_text('{"ids": [97, 98]}\n')
    words = (EXAMPLE, "--only", "heads", "--json")
    case = json.loads(run(*words, "--file", tmp_path / "one.jsonl").stdout)
    expected = json.loads(run(*words, "--text", "ab").stdout)
    assert case["tables"]["heads"] == expected["tables"]["heads"]
    assert case["tables"]["token_map"] is None
    (tmp_path / "ids").write_text("97,256\n")
    line = run(EXAMPLE, "--ids", f"@{tmp_path / 'ids'}", status=1).stderr
    assert f"{tmp_path / 'ids'}, line 1: found 256, outside the vocabulary; choose from 0 to 255" in line


@pytest.mark.slow
def test_what_heads_do_comes_first() -> None:
    shown = run(EXAMPLE, "--text", "def attention(q):", columns=100).stdout
    lines = shown.splitlines()
    assert lines[2].startswith("16 heads: ")
    assert "one-offset: 1 head" in lines
    assert "  head 0.0 looks at 1 token before in " in shown
    assert "␣" in shown


@pytest.mark.slow
def test_a_page_of_a_text_holds_it_escaped_and_says_so(tmp_path: Path) -> None:
    run(EXAMPLE, "--text", "<b>&", "--only", "heads", "--out", tmp_path, "--figures", "svg")
    page = (tmp_path / "report.html").read_text()
    assert "This page contains the input" in page
    assert "&lt;</span>" in page
    assert "<b></span>" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    betas = (tmp_path / "figures" / "head_betas.svg").read_text()
    assert "β_c" in betas
    assert "layer" in betas
    tokens = pl.read_parquet(tmp_path / "input_tokens.parquet")
    assert tokens["token"].to_list() == list("<b>&")
    assert pl.read_parquet(tmp_path / "heads.parquet").height == 16


@pytest.mark.slow
def test_importing_libraries_prints_nothing() -> None:
    words = [sys.executable, "-m", "attnlaw", "lens", EXAMPLE, "--text", "ab", "--only", "heads"]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ended.stderr == ""


def test_a_warning_of_transformers_about_the_config_is_one_line(tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "factor": 2.0, "unknown": 1}
    model = save_tiny("llama", tmp_path / "model", rope_scaling=rope | {"rope_theta": 10000.0})
    line = run(model, "--ids", "1,2", "--only", "heads").stderr
    assert line.startswith(f"attnlaw: warning: {model / 'config.json'}: transformers says: ")
    assert "'unknown'" in line
    assert line.count("\n") == 1
