"""What a notebook shows of results: quantities, settings and tables, escaped; the same after loading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from report.charts_of import page_html

import attnlaw
from attnlaw.core.result import Result

TINY = Path(__file__).parents[2] / "examples" / "tiny-decoder"
RESULTS: dict[str, Callable[[], Result]] = {
    "one case": lambda: attnlaw.learn(alpha=0.1, noise=0.5),
    "several cases": lambda: attnlaw.learn(alpha=[0.1, 0.2]),
    "audit": lambda: attnlaw.audit(TINY, only="qk"),
    "diff": lambda: attnlaw.diff(TINY, TINY, only="qk", layers="0"),
    "fit": lambda: attnlaw.fit(TINY, only="qk", layers="0"),
}


def test_one_case_shows_its_settings_and_what_its_quantities_mean() -> None:
    html = attnlaw.learn(alpha=0.1, noise=0.5)._repr_html_()
    assert "<b>What attention learns</b>" in html
    assert "alpha 0.1" in html
    meaning = next(quantity.description for quantity in attnlaw.learn.verb.quantities if quantity.in_summary)
    assert meaning in html


def test_several_cases_show_what_varied() -> None:
    html = attnlaw.learn(alpha=[0.1, 0.2])._repr_html_()
    assert "<b>What attention learns</b>, 2 cases" in html
    assert html.count("<tr>") == 3
    assert "alpha α</th>" in html
    assert "noise" not in html


@pytest.mark.parametrize("kind", ["one case", "audit", "fit"])
def test_names_stay_text(kind: str) -> None:
    result, hostile = RESULTS[kind](), pl.lit("<img src=x>")
    named = {name: table for name, table in result.tables.items() if "model" in table.columns}
    tables = {name: table.with_columns(model=hostile) for name, table in named.items()}
    rows = result.rows.with_columns(status=hostile, remark=hostile)
    html = replace(result, rows=rows, tables={**result.tables, **tables})._repr_html_()
    assert "<img" not in html
    assert "&lt;img src=x&gt;" in html


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESULTS)
def test_a_loaded_result_shows_the_same(kind: str, tmp_path: Path) -> None:
    result = RESULTS[kind]().for_saving()
    loaded = attnlaw.load(result.save(tmp_path / "saved"))
    assert loaded._repr_html_() == result._repr_html_()
    assert page_html(loaded) == page_html(result) == (tmp_path / "saved" / "report.html").read_text("utf-8")
