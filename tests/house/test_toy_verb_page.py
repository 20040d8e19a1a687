"""A verb in one file: what a study, or its command, wrote becomes a titled page with labelled quantities."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from house.coin import VERB
from report.charts_of import data_of, study_of

import attnlaw.verbs
from attnlaw.core.errors import InputError
from attnlaw.core.progress import no_progress
from attnlaw.core.result import Result
from attnlaw.render.charts.paper import save_figure
from attnlaw.report import write_report
from attnlaw.verbs.views import figure_to_plot


@pytest.fixture(autouse=True)
def coin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attnlaw.verbs.VERBS, "coin", ("house.coin", "Toss a coin many times."))


def tossed(**given: Any) -> Result:
    cases = VERB.cases(given)
    return Result.collect(VERB, zip(cases, VERB.run(cases, no_progress), strict=True))


def page_text(page: Path) -> str:
    """The words of a page, without its style and its script."""
    source = page.read_text(encoding="utf-8")
    return re.sub(r"<(style|script)\b.*?</\1>", "", source, flags=re.DOTALL)


def assert_is_of_coins(page: Path) -> None:
    source = page_text(page)
    assert "<h1>Coins</h1>" in source
    assert "<h3>Mean p̂ against bias</h3>" in source
    assert '<th scope="row">mean p̂</th><td>share of heads</td><td>0.25 to 0.75</td>' in source
    assert ">bias p</text>" in source  # the title of an axis
    shown = dict(data_of(page)["shown"])
    assert shown["mean"] == "mean p̂"
    assert shown["heads"] == "heads"
    assert data_of(page)["errors"] == {"mean": "mean_error"}


def test_a_study_of_it_has_a_titled_page(tmp_path: Path) -> None:
    rows = tossed(bias=[0.25, 0.5, 0.75]).rows.with_columns(task=pl.Series(["t0", "t1", "t2"]))
    assert_is_of_coins(write_report([study_of(tmp_path, rows)]))


def test_its_command_writes_rows_tables_and_a_page(tmp_path: Path) -> None:
    folder = tossed(bias=[0.25, 0.5, 0.75]).save(tmp_path / "coins", figures="svg")
    assert_is_of_coins(folder / "report.html")
    assert json.loads((folder / "attnlaw.json").read_text())["verb"] == "coin"
    assert pl.read_parquet(folder / "rows.parquet").columns == list(VERB.schema)
    sides = pl.read_parquet(folder / "sides.parquet")
    assert sides["case"].to_list() == [0, 0, 1, 1, 2, 2]
    assert [path.name for path in sorted((folder / "figures").glob("*.svg"))] == ["mean.svg"]
    before = (folder / "report.html").read_bytes()
    assert write_report([folder]).read_bytes() == before  # the same page again, from what was saved


def test_one_case_is_told_by_its_quantities_and_its_table(tmp_path: Path) -> None:
    folder = tossed(bias=0.25).save(tmp_path / "coin")
    source = page_text(folder / "report.html")
    assert '<th scope="row">mean p̂</th><td>share of heads</td><td>0.25(4)</td>' in source
    assert data_of(folder / "report.html")["columns"] == {"side": ["heads", "tails"], "share": [0.25, 0.75]}
    with pytest.raises(InputError, match="there is nothing to draw"):
        figure_to_plot(tossed(bias=0.25))


def test_a_case_that_failed_is_told(tmp_path: Path) -> None:
    folder = tossed(bias=[0.25, 0.125, 0.5]).save(tmp_path / "coins")
    assert "1 of 3 tasks failed: a coin of bias 0.125 rolls away; choose another." in page_text(
        folder / "report.html"
    )


def test_a_figure_of_it_alone(tmp_path: Path) -> None:
    figure = figure_to_plot(tossed(bias=[0.25, 0.5]))
    save_figure(figure, tmp_path / "coin.svg")
    assert "mean p̂" in (tmp_path / "coin.svg").read_text()
    with pytest.raises(InputError, match=r"the file name of a figure must end in one of \.pdf, \.svg, \.png"):
        save_figure(figure, tmp_path / "coin.jpg")


def test_rows_of_a_verb_that_is_not_known_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tossed(bias=[0.25, 0.5]).save(tmp_path / "coins")
    monkeypatch.delitem(attnlaw.verbs.VERBS, "coin")
    with pytest.raises(InputError, match=r"'coin' is not a verb; .* the version of attnlaw that wrote it"):
        write_report([folder])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"bias": pl.lit("<b>")}, "bias is a column of type String"),
        ({"bias": pl.lit(-1.0)}, "bias: found "),
        ({"mean": pl.lit([1.0])}, "mean is a column of type List"),
        ({"status": pl.lit(None, pl.String)}, "found a row without status"),
    ],
)
def test_damaged_rows_are_refused_in_one_line(change: dict[str, pl.Expr], line: str, tmp_path: Path) -> None:
    folder = tossed(bias=[0.25, 0.5]).save(tmp_path / "coins")
    path = folder / "rows.parquet"
    pl.read_parquet(path).with_columns(**change).write_parquet(path)
    with pytest.raises(InputError) as raised:
        write_report([folder])
    assert line in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("text", ["torn", "[]", '{"verb": 3}', '{"verb": "../x"}', '{"verb": "constructor"}'])
def test_a_mark_that_names_no_verb_is_refused(text: str, tmp_path: Path) -> None:
    folder = tossed(bias=[0.25, 0.5]).save(tmp_path / "coins")
    (folder / "attnlaw.json").write_text(text)
    with pytest.raises(InputError):
        write_report([folder])
