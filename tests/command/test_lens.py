"""`attnlaw lens`: the JSON contract, the table, the files, and clear refusals."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from analysis.forward.tiny_models import save_tiny
from command.in_process import Ended, invoke, terminal

import attnlaw
from attnlaw.analysis.forward.lens import linearise
from attnlaw.core.errors import InputError
from attnlaw.verbs.lens.answer import answer
from attnlaw.verbs.views import show

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
    shown = run(EXAMPLE, "--ids", "97,98", "--details", "--out", tmp_path / "out").stdout
    assert "reconstruction error" in shown
    assert "(rollout)" in shown
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
    console = terminal(40, file=io.StringIO())
    show(attnlaw.lens(str(EXAMPLE), ids=tuple(range(11)), top=1, only="operator"), console, details=True)
    shown = console.file.getvalue()
    assert "…" not in shown
    assert "0 (100%)" in shown
    assert "A wider screen also shows: rollout." in shown


@pytest.mark.slow
def test_many_tokens_are_estimated_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnlaw.analysis.forward import token_maps as maps

    monkeypatch.setattr(maps, "PROBES", 2)
    words = (EXAMPLE, "--ids", ",".join(map(str, range(33))), "--top", 1, "--only", "operator")
    shown = run(*words, "--details").stdout
    assert "The first 32 of 33 tokens; --out DIR draws all." in shown
    assert "estimated from 2 random probes for each token" in shown
    assert "The last 12 of 33 tokens; --details shows more." in run(*words).stdout


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        ("--ids 1,x", "--ids 1,x: expected whole numbers from 0 on", 2),
        ("--ids 1.5", "--ids 1.5: expected whole numbers from 0 on", 2),
        ("--ids ,", "--ids ,: expected whole numbers from 0 on", 2),
        ("--ids=-1", "--ids -1: expected", 2),
        ("--ids 1 --top 0", "--top 0: expected a whole number of at least 1", 2),
        ("--ids 256", "--ids 256: expected ids of the vocabulary, from 0 to 255", 2),
        (
            f"--ids {','.join(['1'] * 129)}",
            "--ids has 129 tokens, but the model reads at most 128; give a shorter input",
            2,
        ),
        ("--ids 1 --top 128", "of at most 127", 2),
        ("--text a --text b", "attnlaw: --text was given 2 times; lens reads one input\n", 2),
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
    line = run(EXAMPLE, status=2).stderr
    assert (
        line == f"attnlaw: lens needs an input. Try: attnlaw lens {EXAMPLE} --text 'The cat sat on the mat'\n"
    )
    with pytest.raises(InputError, match=r"^lens needs an input. Try: text='The cat sat on the mat'$"):
        attnlaw.lens(EXAMPLE)


def test_one_input_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("ab\n\ncd\n")
    line = run(EXAMPLE, "--file", tmp_path / "two.txt", status=1).stderr
    assert line == f"attnlaw: {tmp_path / 'two.txt'}: has 2 inputs; lens takes only one, so keep one line\n"
    (tmp_path / "one.jsonl").write_text('{"ids": [97, 98]}\n')
    words = (EXAMPLE, "--only", "heads", "--json")
    case = json.loads(run(*words, "--file", tmp_path / "one.jsonl").stdout)
    expected = json.loads(run(*words, "--text", "ab").stdout)
    assert case["tables"]["heads"] == expected["tables"]["heads"]
    assert case["tables"]["token_map"] is None
    (tmp_path / "ids").write_text("97,256\n")
    line = run(EXAMPLE, "--ids", f"@{tmp_path / 'ids'}", status=1).stderr
    assert f"{tmp_path / 'ids'}, line 1: found 256, expected ids of the vocabulary, from 0 to 255" in line


@pytest.mark.slow
def test_what_stands_out_comes_first_and_the_screen_fits() -> None:
    shown = run(EXAMPLE, "--text", "the cat sat on the mat", columns=80).stdout
    lines = shown.splitlines()
    # The title may need two lines, because it starts with the path of the model.
    assert "gpt2 · 22 tokens · 4 layers × 4 heads" in " ".join(lines[:2])
    answer = " ".join(lines[1:12])
    assert "The text is split into 22 tokens, which are single letters." in answer
    assert "Head 0.0 is a previous-token head: 91% of positions attend most to the token before." in answer
    assert "No head attends mainly to one fixed token or looks at only a few tokens." in answer
    assert 'The last token, "t", is shaped most by itself (21%, through the whole network).' in answer
    (note,) = (line for line in lines if line.startswith("Rows show medians"))
    assert note == note.rstrip()
    next_commands = shown[shown.index("\nNext ") :]
    assert "--details" in next_commands
    assert all(len(line) <= 80 for line in shown.removesuffix(next_commands).splitlines())


@pytest.mark.slow
def test_details_show_each_token_and_both_random_references() -> None:
    words = (EXAMPLE, "--text", "the cat")
    first, everything = run(*words).stdout, run(*words, "--details").stdout
    for number in ("reconstruction error", "singular values of T", "over random", "below β₂", "␣"):
        assert number in everything
        assert number not in first


@pytest.mark.slow
def test_a_loaded_lens_shows_the_same_screen_and_page(tmp_path: Path) -> None:
    result = attnlaw.lens(EXAMPLE, text="the cat sat", entrywise=(1, 4))
    result.save(tmp_path / "out")
    screens = []
    for each in (result, attnlaw.load(tmp_path / "out")):
        console = terminal(80, file=io.StringIO())
        show(each, console)
        screens.append(console.file.getvalue())
    assert screens[0] == screens[1]
    assert "keeps every attention weight within 0.01" in screens[0]
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index("is a previous-token head") < page.index("What to do next") < page.index("<figure")
    assert "Where the most notable heads look" in page


def test_several_models_have_lines_of_their_own() -> None:
    results = [attnlaw.lens(EXAMPLE, text=text, only="heads") for text in ("the cat sat on", "a")]
    lines = [line.text for line in answer(results[0] + results[1]).lines]
    assert lines[0].startswith("tiny-decoder: ")
    assert lines[-1] == (
        "tiny-decoder (2): The input has one token, which can only attend to itself: no head was measured."
    )


def test_numbers_that_do_not_hold_are_a_warning() -> None:
    result = attnlaw.lens(EXAMPLE, text="ab", only="heads")
    remark = (
        "do not use the map of tokens, because attnlaw's copy of the blocks does not reproduce the "
        "model's output"
    )
    lost = replace(result, rows=result.rows.with_columns(status=pl.lit("inexact"), remark=pl.lit(remark)))
    first = answer(lost).lines[0]
    assert (first.status, first.text) == ("WARNING", f"D{remark[1:]}.")
    assert repr(lost).startswith("<lens: WARNING Do not use the map of tokens")


def test_the_attention_of_heads_that_stand_out_is_a_table() -> None:
    result = attnlaw.lens(EXAMPLE, text="the cat sat on", only="heads")
    attention = result.for_plotting().head_attention
    found = set(result.head_findings.select("layer", "head").iter_rows())
    drawn = set(attention.select("layer", "head").iter_rows())
    assert drawn <= (found or drawn)
    assert 1 <= len(drawn) <= 4
    sums = attention.group_by("layer", "head", "output").agg(pl.col("weight").sum())["weight"]
    assert sums.to_list() == pytest.approx([1.0] * len(sums), abs=1e-12)
    head = result.heads.filter(layer=0, head=0).row(0, named=True)
    if (0, 0) in drawn:
        weights = attention.filter(layer=0, head=0)
        shares = weights.group_by("input").agg(pl.col("weight").mean())
        assert shares["weight"].max() == pytest.approx(head["largest_column_mean"], rel=1e-6)


@pytest.mark.slow
def test_a_page_of_a_text_holds_it_escaped_and_says_so(tmp_path: Path) -> None:
    run(EXAMPLE, "--text", "<b>&", "--only", "heads", "--out", tmp_path, "--figures", "svg")
    page = (tmp_path / "report.html").read_text()
    assert "This page contains your input" in page
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
    progress = re.compile("lens: .+ of .+")  # on a slow machine
    assert all(map(progress.fullmatch, ended.stderr.splitlines()))


def test_a_warning_of_transformers_about_the_config_is_one_line(tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "factor": 2.0, "unknown": 1}
    model = save_tiny("llama", tmp_path / "model", rope_scaling=rope | {"rope_theta": 10000.0})
    line = run(model, "--ids", "1,2", "--only", "heads").stderr
    assert line.startswith(f"attnlaw: warning: {model / 'config.json'}: transformers says: ")
    assert "'unknown'" in line
    assert line.count("\n") == 1
