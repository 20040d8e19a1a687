"""`init` as a verb: its words, its refusals, its table, JSON, page and Python function."""

from __future__ import annotations

import json
import logging
import math
import re
import shlex
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command.in_process import invoke
from theory.init.shapes import SMALL

import attnlaw
from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.law import initial_law
from attnlaw.theory.init.tokens import Tokens
from attnlaw.verbs.init import MEASURED, VERB
from attnlaw.verbs.init.answer import answer

EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny-decoder"


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
    assert repr(law).startswith("<init: OK Signals stay in range: ")
    assert repr(law.record).startswith("<InitialLaw model_width 24, draws 20, ")
    assert "standard deviation of logits" in law._repr_html_()
    assert law.plot().to_dict()


def test_the_screen_begins_with_the_answer(config: str) -> None:
    run = invoke("init", config, "--tokens", "4", "--draws", "60")
    lines = run.stdout.splitlines()
    assert lines[0] == config
    assert lines[1] == "gpt2 · width 24 · 2 layers · 4 random tokens · 60 initialisations"
    assert lines[2].strip().startswith("These are random initial weights")
    assert lines[4].startswith("OK       Signals stay in range: ")
    assert "UNUSUAL  The loss starts at " in run.stdout
    header = next(line for line in lines if line.startswith("layer"))
    assert header.split() == ["layer", "size", "cosine", "rank", "entropy"]
    assert "Weights are drawn as transformers 5.22.2 draws them." in run.stdout
    limit = invoke("init", config, "--tokens", "4", "--draws", "20", "--width", "inf", "--scaling", "1/d")
    assert "gpt2 · infinite width · 2 layers · 4 random tokens · not random" in limit.stdout
    assert (
        "In the limit of infinite width, the logits of a tied head are not defined, so there is no loss."
        in " ".join(limit.stdout.split())
    )


def test_a_good_start_is_ok_and_a_bad_one_says_what_is_unusual() -> None:
    good = answer(attnlaw.init(EXAMPLE, tokens=8, draws=40))
    assert [line.status for line in good.lines] == [None, *["OK"] * 4]
    collapsed = answer(attnlaw.init("bert", std=0.0361, tokens=4, draws=10))
    tokens = next(line for line in collapsed.lines if "rank collapse" in line.text)
    assert tokens.status == "UNUSUAL"
    assert "their mean cosine is above 0.99 from layer " in tokens.text
    assert "--depth 1,2,4,8" in " ".join(collapsed.next_commands)
    (_, lost, _, sharp, _) = answer(attnlaw.init("llama-7b", tokens=3, draws=4, depth=2)).lines
    assert lost.status == "UNUSUAL"
    assert lost.text.startswith("The embedding is only 0.8% of the residual stream after layer 1")
    assert sharp.text.startswith("Attention does not start uniform: scores have a standard deviation of 1.")


def test_the_remark_of_a_row_is_what_the_answer_calls_unusual(config: str) -> None:
    result = attnlaw.init(config, tokens=4, draws=60, std=0.5)
    unusual = [line.text for line in answer(result).lines if line.status == "UNUSUAL"]
    assert unusual
    assert [f"{text}." for text in result.remark.split("; ")] == unusual


def test_several_models_are_counted_and_those_that_are_unusual_are_named(config: str) -> None:
    result = attnlaw.init(config, tokens=4, draws=20, std=[0.05, 0.5])
    subject, count, *unusual = answer(result).lines
    assert subject.text.endswith("not the weights of a checkpoint.")
    assert count.text == "1 of 2 cases start without anything unusual."
    assert all(line.text.startswith("std 0.5: ") for line in unusual)
    screen = invoke("init", config, "--tokens", "4", "--draws", "20", "--std", "0.05,0.5", columns=80).stdout
    header = next(line for line in screen.splitlines() if line.startswith(" std"))
    assert header.split() == ["std", "size", "cosine", "entropy", "loss", "ln", "V"]


def test_commands_of_the_screen_run_and_no_line_is_too_long(config: str) -> None:
    lines = invoke("init", config, "--tokens", "4", "--draws", "20", columns=80).stdout.splitlines()
    assert "other values: see --std." in lines  # the rest of a note that needs two lines
    (note,) = (line for line in lines if line.startswith("Weights are drawn"))
    assert note == note.rstrip()
    start = next(i for i, line in enumerate(lines) if line.startswith("Next"))
    assert all(len(line) <= 80 or config in line for line in lines[:start])
    whole = re.sub(r" \\\n\s+", " ", "\n".join(lines[start:]))  # a long command has several lines
    width = next(line for line in whole.splitlines() if "own,inf" in line)
    invoke(*shlex.split(width.partition("attnlaw ")[2].partition("   ")[0]), "--json")


def test_details_shows_what_the_first_screen_leaves_out(config: str) -> None:
    words = ("init", config, "--tokens", "4", "--draws", "20", "--std", "0.05")
    short, long = invoke(*words).stdout, invoke(*words, "--details").stdout
    for title in ("scores", "standard deviation of logits", "probability of the token itself"):
        assert title in long
        assert title not in short


def test_a_loaded_result_gives_the_same_answer(config: str, tmp_path: Path) -> None:
    result = attnlaw.init(config, tokens=4, draws=20, width=["own", "inf"])
    assert answer(attnlaw.load(result.save(tmp_path / "out"))) == answer(result)


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
    assert page.index(remarks[0]) < page.index('id="part-1"')  # the answer comes before figures
    rows = pl.read_parquet(out / "layers.parquet")
    assert rows.height == 6
    assert VERB.tables[0].columns[0].name in rows.columns


@pytest.mark.slow
def test_the_page_of_many_laws_counts_those_that_are_unusual(config: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    depths = "1,2,3,4,5,6,7"
    invoke("init", config, "--tokens", "3", "--draws", "40", "--depth", depths, "--out", str(out))
    assert "All 7 cases start in an unusual way." in (out / "report.html").read_text()


def test_a_warning_of_transformers_reaches_the_screen_once(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from attnlaw.theory.init import lazy_model

    build = lazy_model.lazy_model

    def warn_and_build(*given: Any, **more: Any) -> Any:
        logging.getLogger("transformers.models").warning("this key\n is not used")
        return build(*given, **more)

    monkeypatch.setattr(lazy_model, "lazy_model", warn_and_build)
    words = ("--tokens", "4", "--draws", "4", "--gradients", "3")
    lines = invoke("init", config, *words).stderr.splitlines()
    assert lines.count("attnlaw: warning: gpt2: transformers says: this key is not used") == 1


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
        ("--tokens 17", "--tokens 17: expected at most 16, the number of positions of gpt2"),
        ("--ids 41", "--ids 41: expected ids below the size of the vocabulary, 40"),
        ("--padding 4 --tokens 4", "--padding 4: expected fewer than the 4 --tokens"),
        ("--ids 1,2 --tokens 4", "--tokens cannot be combined with --ids; choose one"),
        (
            "--width 26",
            "--width 26: expected a multiple of 4, so that every head has a whole number of entries",
        ),
        (
            "--width own,26",
            "--width 26: expected a multiple of 4, so that every head has a whole number of entries",
        ),
        ("--tokens 4,17", "--tokens 17: expected at most 16, the number of positions of gpt2"),
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
    assert "init does not support weights that layers share yet" in run.stderr


@pytest.mark.parametrize("vocabulary", [256, 50257])
def test_huge_weights_have_a_loss_or_the_true_reason_for_none(vocabulary: int, tmp_path: Path) -> None:
    """exp(logit) exceeds float64. A drawn vocabulary has a loss anyway: about its largest logit."""
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": vocabulary}
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = attnlaw.init(str(tmp_path / "config.json"), std=1000.0, tokens=4, draws=20)
    row, text = result.row(), " ".join(line.text for line in answer(result).lines)
    assert "infinite width" not in text
    if vocabulary == 256:
        assert row["logit_sd"] > 1000
        # The largest of 256 normal logits is about 2.8 deviations above a typical one.
        assert 1.5 * row["logit_sd"] < row["loss"] < 4 * row["logit_sd"]
    else:
        assert row["loss"] is None
        assert "The loss is too large to be computed" in text
    json.dumps(row["loss"], allow_nan=False)
