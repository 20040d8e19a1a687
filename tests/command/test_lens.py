"""`attnlaw lens`: the JSON contract, the table, the files, and clear refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command.in_process import runner

from attnlaw.base.errors import InputError
from attnlaw.command import lens
from attnlaw.forward import linearise

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-decoder"
run = runner(lens.command)


def test_json_is_the_library_call():
    found = json.loads(run(EXAMPLE, "--ids", "97, 98", "--top", 3, "--json").stdout)
    assert found == linearise(str(EXAMPLE), [97, 98], top=3).describe()
    assert found["reconstruction_error"] < 1e-10
    assert set(found) >= {"model", "ids", "singular_values", "token_map", "rollout", "status"}


def test_table_and_files(tmp_path):
    result = run(EXAMPLE, "--ids", "97,98", "--out", tmp_path / "out")
    assert "reconstruction error" in result.stdout
    assert "(exact)" in result.stdout
    assert "moved by (operator)" in result.stdout
    assert json.loads((tmp_path / "out" / "lens.json").read_text())["ids"] == [97, 98]
    assert (tmp_path / "out" / "lens_map.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "lens_map.html").read_text()
    assert "attention rollout" in page
    assert f"<title>{EXAMPLE}: what moves each token</title>" in page
    assert '"actions": false' in page
    assert "<script src=" not in page
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "lens.json",
        "lens_map.png",
        "lens_map.html",
    }


def test_a_narrow_screen_goes_without_rollout(monkeypatch):
    monkeypatch.setattr("attnlaw.command.console.output._width", 60)
    shown = run(EXAMPLE, "--ids", ",".join(map(str, range(21))), "--top", 1).stdout
    assert "…" not in shown
    assert "0 (100%)" in shown
    assert "A wider screen also shows: rollout." in shown


def test_many_tokens_are_estimated_and_cut(monkeypatch):
    from attnlaw.forward import maps

    monkeypatch.setattr(maps, "PROBES", 2)
    result = run(EXAMPLE, "--ids", ",".join(map(str, range(33))), "--top", 1)
    assert "1 more tokens; --out DIR draws all of them" in result.stdout
    assert "norms estimated from 2 probes a token" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ids", "1,x"], "--ids: found '1,x', expected integers"),
        (["--ids", "1.5"], "expected integers"),
        (["--ids", ","], "no token ids were given"),
        (["--ids", "256"], "token id 256 is outside the vocabulary; choose ids from 0 to 255"),
        (["--ids", "-1"], "token id -1 is outside the vocabulary"),
        (["--ids", ",".join(["1"] * 129)], "129 token ids were given, and the model has 128 positions"),
        (["--ids", "1", "--top", "0"], "top is 0"),
        (["--ids", "1", "--top", "128"], "top is 128; expected from 1 to 127"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, message):
    result = run(EXAMPLE, *arguments, status=1)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_name_on_the_hub_is_not_opened():
    result = run("google-bert/bert-base-uncased", "--ids", "1", status=1)
    assert "give the local directory" in str(result.exception)


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "attnlaw[lens]" in str(run(EXAMPLE, "--ids", "1", status=1).exception)


def test_ids_are_needed():
    run(EXAMPLE, status=2)
