"""`attnlaw reproduce`: the table of papers, numbers of others beside rows, what it prints and writes."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command.in_process import invoke

from attnlaw.core.estimate import Estimate
from attnlaw.core.settings import setting_fields
from attnlaw.reproduce import comparison
from attnlaw.reproduce.command import _percent
from attnlaw.reproduce.comparison import DERIVED, compare, published_figures
from attnlaw.reproduce.papers import (
    ABSTRACT,
    FOLDER,
    KINDS,
    NUMBER_COLUMNS,
    PAPERS,
    UNTESTED,
    find_figures,
    published_lines,
)
from attnlaw.study import read_study
from attnlaw.study.shipped import shipped_studies
from attnlaw.verbs import STUDY_VERBS, find_verb

ROOT = Path(__file__).resolve().parents[2]
FIGURES = [figure.study for paper in PAPERS for figure in paper.figures]
COMPARED = sorted(path.stem for path in FOLDER.glob("*.csv"))


def test_every_figure_has_its_study_and_every_number_its_figure() -> None:
    assert len(FIGURES) == len(set(FIGURES))
    assert set(FIGURES) <= shipped_studies().keys()
    assert set(COMPARED) <= set(FIGURES)
    for paper in PAPERS:
        kinds = {line["kind"] for figure in paper.figures for line in published_lines(figure.study)}
        first = paper.compared.partition(":")[0]
        assert first in ("published", "reference", "nothing")
        # The line that says what is compared names the kinds of its numbers, and nothing else.
        assert {kind for kind in ("published", "reference") if kind in paper.compared} >= kinds - set(
            UNTESTED
        )
        assert (first == "nothing") <= (not kinds)
        assert bool(paper.command) == (not paper.figures)


def test_every_study_that_names_a_paper_is_in_the_table() -> None:
    for name, file in shipped_studies().items():
        head = file.read_text(encoding="utf-8").split("\nverb")[0]
        for arxiv in re.findall(r"arXiv (\d{4}\.\d{5})", head):
            assert arxiv not in [paper.arxiv for paper in PAPERS] or name in FIGURES


@pytest.mark.parametrize("name", COMPARED)
def test_every_number_belongs_to_a_task(name: str) -> None:
    study = read_study(name)
    rows = pl.DataFrame(
        [{"verb": task.verb.name, **task.case.to_row()} for task in study.tasks], infer_schema_length=None
    )
    for line in published_lines(name):
        assert line["kind"] in KINDS
        assert line["source"]
        assert not line["error"] or float(line["error"]) > 0
        settings = {key: value for key, value in line.items() if key not in NUMBER_COLUMNS and value}
        known = [set(setting_fields(verb.settings)) | {"verb"} for verb in study.verbs.values()]
        assert any(set(settings) <= names for names in known)
        if line["quantity"] in DERIVED:
            continue
        assert any(line["quantity"] in verb.schema for verb in study.verbs.values())
        estimate = comparison._our_estimate(
            rows.with_columns(pl.lit(1.0).alias(line["quantity"])), line["quantity"], settings, frozenset()
        )
        assert estimate is not None, line


@pytest.mark.slow
def test_quick_runs_are_smaller_and_keep_what_is_compared() -> None:
    for name in FIGURES:
        full, quick = read_study(name), read_study(name, quick=True)
        assert 0 < len(quick.tasks) <= len(full.tasks)
    assert len(read_study("limit-width", quick=True).tasks) == 15
    assert {task.case.draws for task in read_study("limit-width", quick=True).tasks} == {10_000}
    ranks = {round(task.case.target_rank, 9) for task in read_study("learn-phase-diagram", quick=True).tasks}
    assert {0.1, 0.5} <= ranks


def test_values_of_quick_take_the_place_of_others(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        'verb = "learn"\nlist = [{ alpha = [0.1, 0.2] }, { student = "direct" }]\n[fixed]\nnoise = 0.5\n'
        "[grid]\ntarget_rank = [0.3, 0.5]\n[quick]\nalpha = 0.7\ntarget_rank = [0.4]\ntokens = 2\nseeds = 3\n"
    )
    assert len(read_study(file).tasks) == 6
    quick = [task.case for task in read_study(file, quick=True).tasks]
    assert [(case.alpha, case.student, case.target_rank, case.tokens, case.noise) for case in quick] == [
        (0.7, "factorized", 0.4, 2, 0.5),
        (0.2, "direct", 0.4, 2, 0.5),
    ]


def published(path: str) -> Iterator[dict[str, str]]:
    with (ROOT / "tests" / "published" / path).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def test_published_numbers_are_those_of_their_files() -> None:
    """What ships are rows 16, 48, ... of the files, and the table, as tests compare them whole."""
    shipped = published_lines("learn-tokens")
    for rank in ("0.1", "0.5", "2.0"):
        rows = list(published(f"bayes-optimal-aim/SE_softmax_T=2_rho={rank}.csv"))[16::32]
        curve = [line for line in shipped if line["source"].startswith(f"SE_softmax_T=2_rho={rank}")]
        assert [(line["alpha"], line["value"]) for line in curve] == [
            (row["alpha"], row["mmse"]) for row in rows
        ]
        assert {line["target_rank"] for line in curve} == {rank}
    table = {row["name"]: row for row in published("multi-head-attention/table-d2.csv")}
    lines = [*published_lines("limit-spectrum"), *published_lines("limit-spectrum-large")]
    assert {line["name"] for line in lines} == table.keys()
    for line in lines:
        row = table[line["name"]]
        if line["quantity"] == "equivalent_w1":
            assert float(line["value"]) == pytest.approx(float(row["w1_percent"]) / 100, rel=1e-12)
            assert float(line["error"]) * 2.262 == pytest.approx(float(row["w1_half_width"]) / 100, rel=1e-3)
        else:
            assert float(line["value"]) == float(row["ks"])


def lines_of(monkeypatch: pytest.MonkeyPatch, **changes: str) -> list[dict[str, Any]]:
    line = {
        "quantity": "y",
        "value": "2.0",
        "error": "0.3",
        "kind": "published",
        "source": "a table",
    } | changes
    rows = pl.DataFrame(
        {
            "verb": ["theory", "drawn", "drawn", "drawn"],
            "width": [1.0, 2.0, 2.0, float("inf")],
            "y": [2.1, 2.0, 3.0, 4.0],
            "y_error": [1e-9, 0.3, 0.4, None],
        }
    )
    monkeypatch.setattr(comparison, "published_lines", lambda study: [line])
    return compare("p", "s", rows, ["drawn"])


def test_a_difference_is_told_in_both_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = lines_of(monkeypatch, width="2")
    assert (line["published"], line["ours"]) == (Estimate(2.0, 0.3), Estimate(2.5, 0.25))
    assert line["z"] == pytest.approx(0.5 / (0.3**2 + 0.25**2) ** 0.5)
    assert line["difference"] == pytest.approx(0.25)
    (line,) = lines_of(monkeypatch, width="2", error="")
    assert line["z"] == pytest.approx(2.0)


def test_where_nothing_is_drawn_there_is_no_z(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a solver is no scale for digits of others; a published deviation is."""
    (line,) = lines_of(monkeypatch, width="1", error="")
    assert line["z"] is None
    (line,) = lines_of(monkeypatch, width="1")
    assert line["z"] == pytest.approx(1 / 3)
    (line,) = lines_of(monkeypatch, width="1", kind="beside")
    assert line["z"] is None


def test_what_rows_do_not_have_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_of(monkeypatch, width="3") == []
    assert lines_of(monkeypatch, depth="3") == []
    (line,) = lines_of(monkeypatch, width="inf")
    assert line["ours"] == Estimate(4.0, None)


def test_the_page_of_papers_gives_whole_commands_and_counts() -> None:
    page = (ROOT / "docs" / "theory" / "papers.md").read_text(encoding="utf-8")
    commands = re.findall(r"`attnlaw reproduce (\S+)([^`]*)`", page)
    assert len(commands) >= 10
    for name, rest in commands:
        assert find_figures(f"arXiv:{name}v1") == find_figures(name)
        assert rest == " --out DIR"
    width = [line for name in FIGURES if name.startswith("limit-w") for line in published_lines(name)]
    heads, scaling = published_lines("limit-heads"), published_lines("limit-scaling")
    numbers = [(line["quantity"], line["value"], line["width"], line.get("heads")) for line in width + heads]
    new = [line for line in scaling if (line["quantity"], line["value"], line["width"], None) not in numbers]
    assert len(numbers) == len(set(numbers))
    assert f"{len(numbers) + len(new)} numbers of an independent program" in page
    beside = [line for line in published_lines("learn-tokens") if line["source"].startswith("AMP")]
    tested = [line for line in beside if line["kind"] not in UNTESTED]
    assert f"{len(tested)} points with z -2.3 to -0.7: " in page
    assert f"{len(beside) - len(tested)} more marked *other setup*" in page


def test_the_list_names_papers_and_figures() -> None:
    printed = invoke("reproduce").stdout
    assert all(paper.arxiv in printed and paper.title in printed for paper in PAPERS)
    figures = json.loads(invoke("reproduce", "list", "--json").stdout)
    assert [figure["figure"] for figure in figures if figure["figure"]] == FIGURES
    assert all(figure["compared"] for figure in figures)
    # Every paper has a line that says what is compared with what, and the screen keeps to 80 columns.
    words = " ".join(printed.split())
    assert len(re.findall("^  compared with ", printed, re.MULTILINE)) == len(PAPERS)
    assert (
        words.count("nothing: only the abstract was available, so attnlaw's authors derived the equations")
        == 9
    )
    assert max(map(len, printed.splitlines())) <= 80
    # Empty lines separate the table, its definition and the next commands.
    assert printed.partition("\n\nnumbers  how many ")[2].partition("\n\nNext ")[2]
    (tokens,) = (figure for figure in figures if figure["figure"] == "learn-tokens")
    assert (tokens["paper"], tokens["numbers"], tokens["needs"]) == ("2506.01582", 43, None)


@pytest.mark.slow
def test_the_disputed_value_of_hardmax_stands_with_a_reference(tmp_path: Path) -> None:
    """Published .617, attnlaw .360, message passing .367(6): each says whose it is."""
    ended = invoke("reproduce", "learn-hardmax", "--out", tmp_path)
    assert re.search(r"alpha 0.312222 +disputed +0.617 +0.360\d+ +-42%", ended.stdout)
    assert re.search(r"alpha 0.312222 +reference +0.367\(6\) +0.360\d+ +-1.9% +-1.1", ended.stdout)
    assert "uses a bivariate density instead of the derivative of the distribution function" in " ".join(
        ended.stdout.split()
    )
    table = pl.read_csv(tmp_path / "published.csv")
    disputed = table.filter(kind="disputed")
    assert disputed["z"].null_count() == 1
    references = table.filter(kind="reference")
    others = references.filter(references["published"] != 0.367)
    # Their four digits.
    assert (others["published"] - others["ours"]).abs().max() < 5.1e-5  # type: ignore[operator]
    assert "compared with published" in ended.stderr


def test_verbs_after_an_abstract_say_whose_equations_they_solve(tmp_path: Path) -> None:
    derived = {find_verb(name).after_abstract: name for name in STUDY_VERBS if find_verb(name).after_abstract}
    abstracts = [paper.arxiv for paper in PAPERS if paper.compared == ABSTRACT and paper.figures]
    assert set(derived) == set(abstracts)
    page = (ROOT / "docs" / "theory" / "implicit-bias.md").read_text(encoding="utf-8")
    words = (
        "Only the abstracts of the papers were available, so we derived all equations on this page ourselves."
    )
    assert words in " ".join(page.split())
    for paper, name in derived.items():
        sentence = (
            f"attnlaw's authors derived these equations: only the abstract of arXiv {paper} was available."
        )
        assert find_verb(name).provenance == sentence
        assert f"[arXiv {paper}](https://arxiv.org/abs/{paper})" in page
    find_verb("early_stopping")().save(tmp_path)
    assert "only the abstract of arXiv 2007.08322 was available" in (tmp_path / "report.html").read_text()
    assert find_verb("learn").provenance == ""


@pytest.mark.slow
def test_a_figure_is_run_drawn_and_compared(tmp_path: Path) -> None:
    ended = invoke("reproduce", "limit-arrival", "--out", tmp_path, "--figures", "svg")
    assert re.search(r"head size 64 +41.22 +41.22\d+ +[+-]0.0\d+%", ended.stdout)
    assert re.search(r"3 numbers compared: the largest difference is 0\.0\d+%\.", ended.stdout)
    assert ended.stdout.splitlines()[-1].startswith("Next   attnlaw reproduce list")
    table = pl.read_csv(tmp_path / "published.csv")
    assert table["published"].to_list() == [41.22, 7.8, 7.76]
    # Published to two decimals.
    assert (table["ours"] - table["published"]).abs().max() <= 0.005  # type: ignore[operator]
    assert table["z"].null_count() == 3
    folder = tmp_path / "limit-arrival"
    assert (folder / "report.html").exists()
    assert (folder / "figures" / "published_arrival_time.svg").read_text().startswith("<svg")
    # A second time nothing is computed anew, and JSON stands alone.
    (case,) = json.loads(invoke("reproduce", "limit-arrival", "--out", tmp_path, "--json").stdout)
    assert set(case) == {"verb", "settings", "quantities", "status", "remark", "tables", "version"}
    assert case["settings"] == {"paper": "2610.10033", "figure": "limit-arrival", "quick": False}
    assert (case["quantities"]["compared"], case["status"], case["remark"]) == (3, "done", None)
    assert case["tables"]["published"][0]["published"] == {"value": 41.22, "error": None}


def test_the_crossing_of_two_errors() -> None:
    """Errors whose ratio is 1 at 0.5587, on points 0.05 apart: a cubic errs by their fourth power."""
    beta = [0.25 + 0.05 * k for k in range(26)]
    apart = [math.exp((0.5587 - b) * (1 + b)) for b in beta]
    rows = pl.DataFrame(
        {"head_size": [64] * 26 + [128] * 26, "beta": beta * 2, "coefficient_error": apart + [1.0] * 26}
    )
    assert DERIVED["crossing_beta"](rows) == pytest.approx(0.5587, abs=0.05**4)
    assert DERIVED["crossing_beta"](rows.filter(pl.col("beta") < 0.5)) is None
    assert DERIVED["crossing_beta"](rows.filter(pl.col("head_size") == 64)) is None


def test_bad_words_and_missing_packages_end_in_one_line(tmp_path: Path) -> None:
    ended = invoke("reproduce", "2506.0158", "--out", tmp_path, status=1)
    assert ended.stderr == (
        "attnlaw: 2506.0158: there is no such paper or figure; "
        "to see all of them, type attnlaw reproduce list\n"
    )
    ended = invoke("reproduce", "2306.13239", "--out", tmp_path, status=1)
    assert ended.stderr == (
        "attnlaw: 2306.13239: attnlaw does not repeat a figure of this paper; "
        "attnlaw audit shows what the paper is about\n"
    )
    ended = invoke("reproduce", "arXiv:2506.01582", status=2)
    assert ended.stderr == "attnlaw: --out is missing; type attnlaw reproduce arXiv:2506.01582 --out DIR\n"
    ended = invoke("reproduce", "2506.00846", "limit-width", "--out", tmp_path, status=2)
    assert ended.stderr.startswith("attnlaw: limit-width is not an option. To")
    ended = invoke("reproduce", "2605.07297", "--quick", "--out", tmp_path, status=1)
    assert "pip install --no-deps rxnfp==0.1.0" in ended.stderr
    assert "bounds-miniatures: a quick run leaves this out" in ended.stderr


def test_figures_need_a_few_numbers_over_one_setting() -> None:
    line = {"quantity": "y", "kind": "published", "published": Estimate(1.0, 0.1), "ours": Estimate(1.1)}
    few = [line | {"settings": {"x": str(x)}} for x in (1, 2)]
    assert published_figures(few, str) == []
    (figure,) = published_figures([*few, line | {"settings": {"x": "3"}}], str)
    assert [layer["mark"]["type"] for layer in figure.draw().to_dict()["layer"]] == ["line", "rule", "point"]
    (figure,) = published_figures([*few, line | {"settings": {"x": "inf"}}], str)
    assert {layer["mark"]["type"] for layer in figure.draw().to_dict()["layer"]} == {"rule", "point"}
    mixed = [line | {"settings": {"x": x, "y": y}} for x, y in (("a", "1"), ("b", "1"), ("c", "2"))]
    assert published_figures(mixed, str) == []


def test_a_paper_is_all_its_figures() -> None:
    assert [figure.study for _, figure in find_figures("2610.10033")] == FIGURES[8:12]
    assert [paper.arxiv for paper, _ in find_figures("limit-relu")] == ["2506.00846"]


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        (None, ""),
        (-3.3e-16, "equal"),
        (4e-7, "<0.001%"),
        (-8.7e-5, "-0.0087%"),
        (0.42, "+42%"),
        (11.3, "+1130%"),
    ],
)
def test_a_difference_is_a_percentage_that_can_be_read(difference: float | None, text: str) -> None:
    assert _percent(difference) == text
