"""`init` as a verb: its words, its refusals, its table, JSON, page and Python function."""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl
import pytest
from command.in_process import invoke
from theory.init.shapes import SMALL

import attnlaw
from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.law import initial_law
from attnlaw.theory.init.tokens import Tokens
from attnlaw.verbs.init import MEASURED, VERB


@pytest.fixture(name="config")
def _config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL["gpt2"]))
    return str(path)


def test_the_function_is_the_law(config: str) -> None:
    law = attnlaw.init(config, ids=(5, 9, 5), draws=20, seed=3)
    model = Architecture.from_config(SMALL["gpt2"])
    same = initial_law(model, Tokens((5, 9, 5)), 20, 3)
    assert law.record.layers == same.layers
    assert (law.loss, law.logit_sd) == (same.loss, same.logit_sd)
    limit = attnlaw.init(config, ids=(5, 9, 5), draws=20, seed=3, width="inf", keep="head-width")
    same = initial_law(model, Tokens((5, 9, 5)), 20, 3, width=math.inf, keep="head-width")
    assert limit.record.layers == same.layers
    changed = attnlaw.init(config, ids=(5, 9, 5), draws=20, seed=3, std=0.1, depth=4, padding=1)
    other = Architecture.from_config(SMALL["gpt2"], std=0.1, depth=4)
    assert changed.record.layers == initial_law(other, Tokens((5, 9, 5), 1), 20, 3).layers


def test_a_law_shows_itself(config: str) -> None:
    law = attnlaw.init(config, tokens=4, draws=20)
    assert repr(law).startswith("<init: rms ")
    assert repr(law.record).startswith("<InitialLaw model_width 24, draws 20, ")
    assert "logit deviation" in law._repr_html_()
    assert law.plot().to_dict()


def test_the_table_begins_with_remarks(config: str) -> None:
    run = invoke("init", config, "--tokens", "4", "--draws", "60")
    lines = run.stdout.splitlines()
    assert lines[0] == "gpt2, width 24, 2 layers, 4 tokens: 60 initialisations"
    assert lines[1].startswith("- the loss starts ")
    header = next(line for line in lines if line.startswith("layer"))
    assert header.split() == ["layer", "rms", "cosine", "eff.", "rank", "entropy", "score", "sd"]
    assert "initialisers as read from transformers 5.22.2" in lines[-1]
    limit = invoke("init", config, "--tokens", "4", "--draws", "20", "--width", "inf", "--scaling", "1/d")
    assert limit.stdout.startswith("gpt2, the limit of infinite width, 2 layers, 4 tokens: not random")


def test_json_has_the_layers_as_a_table(config: str) -> None:
    case = json.loads(invoke("init", config, "--tokens", "4", "--draws", "20", "--json").stdout)
    assert case["settings"]["width"] == "own"
    assert case["quantities"]["model_width"] == 24
    rows = case["tables"]["layers"]
    assert [row["layer"] for row in rows] == [0, 1, 2]
    assert rows[0]["entropy"] is None
    assert case["tables"]["gradients"] is None
    for name in MEASURED.keys() - {"gradient"}:
        assert rows[2][name].keys() == {"value", "error"}
        assert rows[2][f"{name}_low"] <= rows[2][name]["value"] <= rows[2][f"{name}_high"]
        assert rows[2][f"{name}_spread"] == pytest.approx(rows[2][name]["error"] * math.sqrt(20))


@pytest.mark.slow
def test_rows_and_a_page_are_written(config: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    invoke("init", config, "--tokens", "4", "--draws", "20", "--width", "own,inf", "--out", str(out))
    page = (out / "report.html").read_text()
    assert "mean cosine between tokens" in page
    assert "infinite width" in page
    remarks = pl.read_parquet(out / "rows.parquet")["remark"][0].split("; ")
    assert [page.index(remark) for remark in remarks] == sorted(page.index(remark) for remark in remarks)
    assert page.index(remarks[0]) < page.index('id="part-1"')  # remarks come before figures
    rows = pl.read_parquet(out / "layers.parquet")
    assert rows.height == 6
    assert VERB.tables[0].columns[0].name in rows.columns


@pytest.mark.slow
def test_many_laws_have_a_page_without_cards(config: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    depths = "1,2,3,4,5,6,7"
    invoke("init", config, "--tokens", "3", "--draws", "4", "--depth", depths, "--out", str(out))
    assert 'id="laws"' not in (out / "report.html").read_text()


def test_a_folder_without_a_config_does_not_hide_a_config_that_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `attnlaw init gpt2 --out gpt2`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert Architecture.from_config("gpt2").width == 768
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(SMALL["gpt2"]))
    assert Architecture.from_config("gpt2").width == 24


def test_gradients_stand_beside_layers_and_by_matrix(config: str) -> None:
    pytest.importorskip("transformers")
    words = ("--tokens", "4", "--draws", "4", "--gradients", "3", "--width", "own,inf", "--json")
    case, limit = json.loads(invoke("init", config, *words).stdout)
    rows = case["tables"]["layers"]
    assert rows[0]["gradient"] is None
    matrices = case["tables"]["gradients"]
    assert {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"} == {
        row["matrix"] for row in matrices if row["layer"] == 1
    }
    # One matrix alone is smaller than its layer, and that than all layers.
    largest = max(row["gradient"]["value"] for row in matrices if row["layer"] == 1)
    whole = case["quantities"]["gradient_norm"]["value"]
    assert largest < rows[1]["gradient"]["value"] < whole
    assert limit["quantities"]["gradient_norm"] is None


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--width much", "--width much: expected own, inf or a whole number"),
        ("--width 0", "--width 0: expected own, inf or a whole number"),
        ("--tokens 17", "--tokens 17: expected at most 16: gpt2 has so many positions"),
        ("--ids 41", "--ids 41: expected ids below the vocabulary, 40"),
        ("--padding 4 --tokens 4", "--padding 4: expected fewer than the 4 --tokens"),
        ("--ids 1,2 --tokens 4", "--tokens cannot be combined with --ids; choose one"),
        ("--width 26", "--width 26: expected a multiple of 4, at which heads come out whole"),
        ("--width own,26", "--width 26: expected a multiple of 4, at which heads come out whole"),
        ("--tokens 4,17", "--tokens 17: expected at most 16: gpt2 has so many positions"),
        ("--std 0", "--std 0: expected a number above 0"),
        ("--keep both", "--keep both: expected one of heads, head-width"),
    ],
)
def test_mistakes_are_one_line(config: str, words: str, line: str) -> None:
    run = invoke("init", config, *words.split(), status=2)
    assert line in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert run.stdout == ""


def test_a_model_that_is_not_covered_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "albert"}))
    run = invoke("init", str(path), status=1)
    assert "weights that layers share is not in the law of `init` yet" in run.stderr
