"""Findings on the first screen of a page, escaped; what is constant is told and not drawn."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from report.charts_of import named, page_html, result_of, with_tables

import attnlaw
from attnlaw.analysis.findings.detectors import DETECTORS
from attnlaw.core.result import Result
from attnlaw.report import write_report
from attnlaw.verbs import find_verb
from attnlaw.verbs.audit.page_data import constant_quantities

TINY = "examples/tiny-decoder"


@pytest.fixture(scope="module", name="audit")
def _audit(request: pytest.FixtureRequest) -> Result:
    return attnlaw.audit(request.config.rootpath / TINY, jobs=1, name="tiny")


def finding(**values: object) -> dict[str, object]:
    row = {"model": "tiny", "rule": "unbalanced", "level": "error", "layer": 2, "kind": "qk", "value": 10.0}
    return row | {"threshold": 3.0, "meaning": "a wrong scale"} | values


def with_findings(audit: Result, *rows: dict[str, object]) -> Result:
    table = pl.DataFrame([{**row, "case": 0} for row in rows], schema=audit.tables["findings"].schema)
    return with_tables(audit, findings=table)


@pytest.mark.slow
def test_the_first_screen_says_what_was_found(audit: Result) -> None:
    page = page_html(audit)
    head = page[page.index("<h1>") : page.index('id="heads"')]
    assert "40 of 40 weight matrices differ from random ones (chance alone: about 0.4)" in head
    assert f"No problems found ({len(DETECTORS)} checks)." in head
    assert head.index("No problems found") < head.index("What to do next") < head.index('id="summary"')
    assert "log10 proxy" not in head  # proxies stand below
    assert page.index('id="proxies"') > page.index('id="heads"')


def test_findings_have_their_level_place_value_and_meaning(audit: Result) -> None:
    hostile = "<script>alert(1)</script>"
    rows = [finding(), finding(rule="zero-rows", level="warning", tensor=hostile, value=4.0, threshold=0.0)]
    page = page_html(with_findings(audit, *rows))
    page = page[page.index("<main") :]
    error = page[page.index('data-status="ERROR"') : page.index('data-status="WARNING"')]
    for part in (
        "layer 2, QK",
        "factor of 10 (limit 3)",
        "A wrong scale",
        "unbalanced",
        "Fix: look for a scale",
    ):
        assert part in error
    assert hostile not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.slow
def test_a_saved_level_that_is_none_is_refused(audit: Result, tmp_path: Path) -> None:
    folder = audit.save(tmp_path / "saved")
    findings = attnlaw.load(folder).tables["findings"]
    assert findings.height == 0
    table = pl.DataFrame([finding(level="<b>", case=0)], schema=findings.schema)
    table.write_parquet(folder / "findings.parquet")
    with pytest.raises(attnlaw.InputError, match="level '<b>'"):
        write_report([folder])


@pytest.mark.slow
def test_constant_charts_are_told_and_not_drawn(audit: Result) -> None:
    sentence = "In every layer, the kinds of matrix have the same shares of the proxy: "
    page = page_html(audit)
    assert "shares" not in named(audit)
    # Every scale is alike where p = 0 wins: C(0) counts ranks.
    assert f"{sentence}QK " in page
    assert constant_quantities(audit.matrices) == ["p", "share"]
    assert "Not listed, because identical for all matrices of a kind: " in page
    layers = audit.tables["layers"]
    moved = with_tables(audit, layers=layers.with_columns(share_qk=0.3 + 0.01 * pl.col("layer")))
    assert "shares" in named(moved)
    assert sentence not in page_html(moved)
    # Of an encoder-decoder the first layers have no cross attention.
    crossed = layers.with_columns(share_cross=pl.when(pl.col("layer") > 0).then(0.25))
    assert "cross attention 25.0%" in page_html(with_tables(audit, layers=crossed))


def test_what_moves_heads_a_training_run() -> None:
    steps = [
        {"case": 0, "step": step, "model": "m", "log10_spectrum_adaptive": 4.0857}
        | {"stable_rank_qk": 12.0 - 2.25 * step, "outliers_qk": 40 + step}
        for step in range(5)
    ]
    (figure,) = named(result_of(find_verb("monitor"), [{"model": "m"}], {"steps": steps})).values()
    assert figure.caption.startswith("Largest change: median stable rank (qk), from 12 to 3.")
    assert "Not drawn, because they stay the same: proxy (log₁₀)." in figure.caption
    titles = [panel["title"] for panel in figure.draw().to_dict()["concat"]]
    assert titles == ["median stable rank", "total number of directions beyond random weights"]
