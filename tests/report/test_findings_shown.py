"""Findings on the first screen of a page, escaped; what is constant is told and not drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from report.charts_of import as_rows

import attnlaw
from attnlaw.analysis.findings.rules import RULES
from attnlaw.report.read_audit import read_audit
from attnlaw.report.write import write_report
from attnlaw.training.charts import step_figures
from attnlaw.verbs.audit.constants import constant_quantities, constant_sentences
from attnlaw.verbs.audit.frames import AuditRows, audit_figures
from attnlaw.verbs.audit.page import audit_page

TINY = "examples/tiny-decoder"


@pytest.fixture(scope="module", name="audit")
def _audit(request: pytest.FixtureRequest) -> attnlaw.Audit:
    return attnlaw.audit(request.config.rootpath / TINY, jobs=1, name="tiny")


def finding(**values: object) -> dict[str, object]:
    row = {"model": "tiny", "rule": "unbalanced", "level": "error", "layer": 2, "kind": "qk", "value": 10.0}
    return row | {"threshold": 3.0, "meaning": "a wrong scale"} | values


def with_findings(audit: attnlaw.Audit, *rows: dict[str, object]) -> AuditRows:
    plain = as_rows(audit)
    table = pl.DataFrame(list(rows), schema=plain.tables["findings"].schema)
    return AuditRows(plain.summaries, plain.tables | {"findings": table})


@pytest.mark.slow
def test_the_first_screen_says_what_was_found(audit: attnlaw.Audit) -> None:
    page = audit_page(as_rows(audit))
    head = page[page.index('id="summary"') : page.index('id="heads"')]
    assert "40 of 40 matrices differ from noise; 0.4 expected of a fresh model" in head
    assert f"nothing found by {len(RULES)} rules" in head
    assert "log10 proxy" not in head  # proxies stand below
    assert page.index('id="proxies"') > page.index('id="heads"')


def test_findings_have_their_level_place_value_and_meaning(audit: attnlaw.Audit) -> None:
    hostile = "<script>alert(1)</script>"
    rows = [finding(), finding(rule="zero-rows", level="warning", tensor=hostile, value=4.0, threshold=0.0)]
    page = audit_page(with_findings(audit, *rows))
    assert (
        'data-level="error"><b>error</b> unbalanced: layer 2, qk<span>10 (threshold 3): a wrong scale' in page
    )
    assert hostile not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.slow
def test_a_saved_level_that_is_none_is_refused(audit: attnlaw.Audit, tmp_path: Path) -> None:
    folder = audit.save(tmp_path / "saved")
    assert read_audit(folder).tables["findings"].height == 0
    table = pl.DataFrame([finding(level="<b>")], schema=read_audit(folder).tables["findings"].schema)
    table.write_parquet(folder / "findings.parquet")
    with pytest.raises(attnlaw.InputError, match="level '<b>'"):
        write_report([folder])


def test_constant_charts_are_told_and_not_drawn(audit: attnlaw.Audit) -> None:
    rows = as_rows(audit)
    assert "shares" not in {figure.name for figure in audit_figures(rows)}
    # Every scale is alike where p = 0 wins: C(0) counts ranks.
    assert "not drawn: QK " in constant_sentences(rows).layers
    assert constant_quantities(rows.matrices) == ["p", "share"]
    uneven = rows.tables["layers"].with_columns(share_qk=0.3 + 0.01 * pl.col("layer"))
    moved = AuditRows(rows.summaries, rows.tables | {"layers": uneven})
    assert "shares" in {figure.name for figure in audit_figures(moved)}
    assert constant_sentences(moved).layers == ""
    # Of an encoder-decoder the first layers have no cross attention.
    crossed = rows.tables["layers"].with_columns(share_cross=pl.when(pl.col("layer") > 0).then(0.25))
    assert (
        "cross attention 25.0%"
        in constant_sentences(AuditRows(rows.summaries, rows.tables | {"layers": crossed})).layers
    )


def test_what_moves_heads_a_training_run() -> None:
    steps = np.arange(5)
    rows = pl.DataFrame(
        {
            "step": steps,
            "model": ["m"] * 5,
            "log10_spectrum_adaptive": [4.0857] * 5,
            "stable_rank_qk": np.linspace(12.0, 3.0, 5),
            "outliers_qk": np.linspace(40.0, 44.0, 5),
        }
    )
    (figure,) = step_figures(rows)
    assert figure.caption.startswith("What moved most: stable rank, median, qk, from 12 to 3.")
    assert "Constant, so not drawn: log10 proxy." in figure.caption
    titles = [panel["title"] for panel in figure.draw().to_dict()["concat"]]
    assert titles == ["stable rank, median", "outliers, total"]
