"""`attnlaw margins`: the headline, the JSON contract, pairs, the files, and clear refusals."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from analysis.forward.sine_models import bert
from analysis.forward.tiny_models import save_tiny
from command.in_process import Ended, invoke, terminal

import attnlaw
from attnlaw.analysis.audit.measured_proxy import measured_proxy
from attnlaw.analysis.forward.condition import condition
from attnlaw.analysis.forward.margins import Difference, measure_margins
from attnlaw.core.estimate import Estimate
from attnlaw.verbs.margins.answer import answer
from attnlaw.verbs.views import show

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tiny-decoder"
SENTENCES = ROOT / "examples" / "sentences.txt"
RANKS = (
    "D compares models of one task, trained to a similar loss, on the same inputs. D is not an error rate."
)


def run(*arguments: object, **options: Any) -> Ended:
    return invoke("margins", *arguments, **options)


def texts(count: int) -> list[list[int]]:
    return [list(line.encode()) for line in SENTENCES.read_text().splitlines()[:count]]


def test_json_is_the_library_call() -> None:
    words = (EXAMPLE, "--file", SENTENCES, "--limit", 12, "--kappa", "--json")
    case = json.loads(run(*words).stdout)
    expected = measure_margins(str(EXAMPLE), texts(12))
    numbers = case["quantities"]
    assert numbers["mean_log"]["value"] == pytest.approx(expected.mean_log.value, rel=1e-12)
    assert numbers["median"]["low"] == pytest.approx(expected.median.low, rel=1e-12)
    assert numbers["total_kappa"] == pytest.approx(condition(str(EXAMPLE), texts(12)).total, rel=1e-12)
    assert (numbers["inputs"], numbers["ties"], numbers["extension"]) == (12, 0, True)
    assert numbers["inputs_sha256"] == expected.inputs_sha256
    assert "12 inputs are few: use 32 or more for a reliable D" in case["remark"]
    assert "D has not been validated for causal language models" in case["remark"]
    assert len(case["tables"]["margins"]) == 12
    assert case["tables"]["amplification"] is None


@pytest.mark.slow
def test_a_text_for_each_input() -> None:
    """Words of the command line, commas and all, are what the lines of a file are."""
    lines = [f"{line}, a" for line in SENTENCES.read_text().splitlines()[:12]]
    given = [word for line in lines for word in ("--text", line)]
    case = json.loads(run(EXAMPLE, *given, "--json").stdout)
    assert case["settings"]["text"] == lines
    expected = measure_margins(str(EXAMPLE), [list(line.encode()) for line in lines])
    assert case["quantities"]["inputs_sha256"] == expected.inputs_sha256


def test_two_models_in_pairs_and_files(tmp_path: Path) -> None:
    """A model beside a copy whose classifier is seven times as large: hard D is the same, input by input."""
    first, second = bert(), bert()
    second.classifier.weight.data *= 7
    second.classifier.bias.data *= 7
    for name, model in (("a", first), ("b", second)):
        model.save_pretrained(tmp_path / name)
    (tmp_path / "ids").write_text("".join(f"{1 + i % 10},{1 + i // 3 % 10},{2 + i % 7}\n" for i in range(40)))
    words = (tmp_path / "a", tmp_path / "b", "--ids", f"@{tmp_path / 'ids'}", "--kappa", "--amplification")
    shown = run(*words, "--out", tmp_path / "out", columns=120)
    lines = shown.stdout.splitlines()
    assert lines[0] == "Relative margin D    40 inputs without labels"
    assert lines[2] == "D of b, compared with a: the same within 0.1%."
    assert RANKS in " ".join(shown.stdout.split())
    rows = pl.read_parquet(tmp_path / "out" / "rows.parquet")
    assert abs(rows["log_ratio"][1]) < 1e-6
    heights = {
        name: pl.read_parquet(tmp_path / "out" / f"{name}.parquet").height
        for name in ("margins", "condition", "kappa_layers", "amplification", "directions")
    }
    # Of each model 14 maps, 2 layers beside a pooler and a classifier, 2 QK, 2 VO and 2 maps in each layer.
    assert heights == {
        "margins": 80,
        "condition": 28,
        "kappa_layers": 8,
        "amplification": 4,
        "directions": 24,
    }
    assert "effective directions: QK " in shown.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    lead = page.split('class="lead">', 1)[1].split("</p>", 1)[0]
    assert lead == f"a, b on 40 inputs without labels. {RANKS}"
    first = page.split('class="answer-line">', 1)[1].split("</p>", 1)[0]
    assert first == "D of b, compared with a: the same within 0.1%."
    titles = (
        "D of every input",
        "Where the margin depends on the weights",
        "Amplification, measured and worst case",
    )
    assert [page.count(f"<h3>{title}</h3>") for title in titles] == [1, 1, 1]
    assert page.count("<h3>Effective directions of heads: model ") == 2


def test_effective_directions_are_told_with_their_rank(tmp_path: Path) -> None:
    """The rows are those of the function; a cell says how many of how many."""
    bert().save_pretrained(tmp_path / "a")
    (tmp_path / "ids").write_text("".join(f"{1 + i % 10},{1 + i // 3 % 10},{2 + i % 7}\n" for i in range(12)))
    words = (tmp_path / "a", "--ids", f"@{tmp_path / 'ids'}", "--amplification", "--out", tmp_path / "out")
    run(*words)
    rows = pl.read_parquet(tmp_path / "out" / "directions.parquet")
    ids = [list(map(int, line.split(","))) for line in (tmp_path / "ids").read_text().split()]
    expected = measured_proxy(attnlaw.audit(tmp_path / "a", jobs=1), tmp_path / "a", ids)
    assert rows["effective_directions"].to_list() == expected["effective_directions"].to_list()
    first = rows.row(0, named=True)
    # Entries sin(a i + b j + c) make a matrix of rank 2.
    assert first["directions"] == f"{first['effective_directions']} of 2"
    assert f"effective directions {first['directions']}" in (tmp_path / "out" / "report.html").read_text()


def test_screen_page_and_repr_warn_of_causal_language_models(tmp_path: Path) -> None:
    warning = "D has not been validated for causal language models: do not use it to choose between them."
    shown = run(EXAMPLE, "--file", SENTENCES, "--limit", 12, "--out", tmp_path).stdout
    assert f"WARNING  {warning}" in " ".join(shown.split()).replace("WARNING ", "WARNING  ")
    page = (tmp_path / "report.html").read_text()
    assert page.index(warning) < page.index("What to do next") < page.index("<figure")
    loaded = attnlaw.load(tmp_path)
    assert warning in repr(loaded)
    console = terminal(80, file=io.StringIO())
    show(loaded, console)
    screens = [text.partition("\nNext ")[0].split() for text in (console.file.getvalue(), shown)]
    assert screens[0] == screens[1]


def test_one_model_has_its_number_and_the_commands_to_try() -> None:
    shown = run(EXAMPLE, "--file", SENTENCES, "--limit", 12, columns=80).stdout
    assert "compare it with the D of other models" in " ".join(shown.split())
    commands = shown[shown.index("\nNext ") :]
    assert "--kappa" in commands
    assert all(len(line) <= 80 for line in shown.removesuffix(commands).splitlines())


@pytest.mark.parametrize(
    ("log_ratio", "error", "sentence"),
    [
        (-0.03, 0.02, "3.0% smaller, 1.5 standard errors of log D: no clear difference"),
        (0.2, 0.05, "22% larger, 4.0 standard errors of log D: a clear difference"),
        (1.0, 0.1, "2.72 times as large, 10.0 standard errors of log D: a clear difference"),
        (0.1, 0.0, "11% larger on every input: a clear difference"),
        (1e-16, 1e-18, "the same within 0.1%"),
    ],
)
def test_a_difference_has_a_size_an_error_and_a_verdict(
    log_ratio: float, error: float, sentence: str
) -> None:
    assert Difference(Estimate(log_ratio, error), 32).sentence == sentence


def test_a_comparison_is_the_answer(tmp_path: Path) -> None:
    """Loaded rows of two models: the second line names both, its size and its standard errors."""
    given = "--file", SENTENCES, "--limit", 12
    run(EXAMPLE, EXAMPLE, *given, "--out", tmp_path)
    result = attnlaw.load(tmp_path)
    words = "3.0% smaller, 1.5 standard errors of log D: no clear difference"
    second = pl.col("comparison").is_not_null()
    rows = result.rows.with_columns(
        model=pl.when(second).then(pl.lit("tuned")).otherwise("model"),
        comparison=pl.when(second).then(pl.lit(words)),
        log_ratio=pl.when(second).then(-0.03),
        log_ratio_error=pl.when(second).then(0.02),
    )
    changed = replace(result, rows=rows)
    assert answer(changed).lines[0].text == f"D of tuned, compared with tiny-decoder: {words}."
    console = terminal(80, file=io.StringIO())
    show(changed, console)
    assert "-3.0% [-4.9%, -1.0%]" in console.file.getvalue()


def test_the_condition_of_the_whole_model_is_shown_with_its_inverse() -> None:
    shown = " ".join(run(EXAMPLE, "--file", SENTENCES, "--limit", 12, "--kappa", columns=80).stdout.split())
    inverse, total = re.search(r"weights by ([\d.e-]+) could .* κ = ([\d,.]+) for all maps", shown).groups()
    assert float(inverse) * float(total.replace(",", "")) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        ("", f"margins needs an input. Try: attnlaw margins {EXAMPLE} --file examples/sentences.txt", 2),
        (f"{EXAMPLE} --file a.csv", "--file a.csv: expected a name that ends in .txt or .jsonl", 2),
        ("--text abc", "inputs: found 1, expected at least 12; give more, ideally 200", 1),
        (f"--file {SENTENCES} --limit 5", "--limit 5: expected a whole number of at least 12", 2),
        (f"--file {SENTENCES} --at 4", "--at 4: expected a whole number of at least 0 and of at most 3", 2),
    ],
)
def test_bad_input_is_one_clear_line(arguments: str, message: str, status: int) -> None:
    line = run(EXAMPLE, *arguments.split(), status=status).stderr
    assert message in line
    assert line.count("\n") == 1


def test_a_model_without_a_head_or_without_a_tokenizer(tmp_path: Path) -> None:
    headless = save_tiny("bert", tmp_path / "bert")
    line = run(headless, "--file", SENTENCES, status=1).stderr
    assert "is a BertModel, but margins need BertForSequenceClassification" in line
    decoder = save_tiny("gpt2", tmp_path / "gpt2")
    line = run(decoder, "--file", SENTENCES, status=1).stderr
    assert "line 1: needs a tokenizer" in line
    assert "give token ids" in line
