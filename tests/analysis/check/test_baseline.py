"""A baseline: rows found again by their place, findings known by rule and place, other shapes refused."""

from __future__ import annotations

import polars as pl
import pytest
from analysis.check.frames import FINDINGS, TABLES, findings, heads, written

from attnlaw.analysis.check.evaluate import judge
from attnlaw.analysis.check.tables import Baseline
from attnlaw.core.errors import InputError
from attnlaw.core.result import Result
from attnlaw.verbs.audit import VERB as AUDIT
from attnlaw.verbs.diff import VERB as DIFF

RULES = """
[[rule]]
name = "grown"
of = "diff"
column = "size"
is = "< 0.5"
against = "baseline"
"""
SIZES = {(0, "qk", 0): 1.0, (0, "qk", 1): 2.0, (0, "ffn_in", None): 4.0}


def baseline(rows=None, verb=AUDIT, **tables):
    """A result of one model with these tables."""
    rows = pl.DataFrame({"model": ["m"]}) if rows is None else rows
    return Baseline("old", Result(verb, rows, {name: t.with_columns(case=0) for name, t in tables.items()}))


def gate(folder, now, *rows, rules=RULES, known=None, **tables):
    old = baseline(findings=findings() if known is None else findings(known), **tables)
    asked = written(folder, rules)
    return judge(asked, "m", "m.bin", TABLES, {"diff": now}.__getitem__, findings(*rows), FINDINGS, old)


def test_a_column_becomes_its_relative_change(tmp_path):
    now = heads({(0, "ffn_in", None): 5.0, (0, "qk", 1): 2.0, (0, "qk", 0): 1.6})
    (verdict,) = gate(tmp_path, now, diff=heads(SIZES)).rules
    assert (verdict.outcome, verdict.held, verdict.selected) == ("failed", 2, 3)
    assert [
        (failure.location["kind"], failure.location["head"], failure.value) for failure in verdict.failures
    ] == [("qk", 0, pytest.approx(0.6))]


def test_what_is_new_or_was_zero_is_missing_and_what_is_gone_fails(tmp_path):
    now = heads({**SIZES, (1, "qk", 0): 1.0})
    (verdict,) = gate(tmp_path, now, diff=heads({**SIZES, (0, "qk", 1): 0.0})).rules
    assert sorted(map(str, verdict.failures)) == [
        "layer 0, QK, head 1: no value",
        "layer 1, QK, head 0: no value",
    ]
    skipping = RULES + 'missing = "skip"\n'
    assert gate(tmp_path, now, diff=heads(SIZES), rules=skipping).passed
    (verdict,) = gate(tmp_path, heads({(0, "qk", 0): 1.0}), diff=heads(SIZES), rules=skipping).rules
    assert sorted(map(str, verdict.failures)) == [
        "layer 0, FFN in: this model does not have it",
        "layer 0, QK, head 1: this model does not have it",
    ]


def test_other_shapes_are_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"layer 0, QK, head 0 has the shape 8 x 8 there and 8 x 16 here; give a baseline"
    ):
        gate(tmp_path, heads(SIZES, cols=16), diff=heads(SIZES))


def test_a_result_that_cannot_serve(tmp_path):
    with pytest.raises(InputError) as caught:
        baseline().known_identities()
    remedy = "give a directory that attnlaw audit --out or attnlaw diff --out wrote"
    assert str(caught.value) == f"old: found no findings.parquet; {remedy}"
    with pytest.raises(InputError, match=r"found no diff\.parquet"):
        gate(tmp_path, heads(SIZES))
    with pytest.raises(
        InputError, match="this baseline holds several models; give one that holds a single model"
    ):
        baseline(pl.DataFrame({"model": ["m", "other"]}))


def test_the_summary_of_an_audit(tmp_path):
    asked = written(tmp_path, RULES.replace('"diff"', '"summary"').replace('"size"', '"log10_proxy"'))
    now = {"summary": pl.DataFrame({"depth": [4], "log10_proxy": [3.0], "log10_proxy_error": [None]})}
    for value, outcome, change in ((2.0, "failed", 0.5), (2.5, "passed", 0.2)):
        old = baseline(pl.DataFrame({"model": ["m"], "log10_proxy": [value]}), findings=findings())
        (verdict,) = judge(asked, "m", "m.bin", TABLES, now.__getitem__, baseline=old).rules
        assert (verdict.outcome, verdict.value) == (outcome, pytest.approx(change))


def test_a_diff_and_an_audit_that_found_nothing_know_no_findings():
    assert baseline(diff=heads(SIZES), verb=DIFF).known_identities() == set()
    assert baseline(findings=findings()).known_identities() == set()


def test_findings_of_the_baseline_are_known_whatever_their_value(tmp_path):
    there = {"rule": "unbalanced", "layer": 0, "kind": "qk", "value": 4.0, "threshold": 3.0}
    known = gate(tmp_path, heads(SIZES), {**there, "value": 9.0}, rules="", known=there)
    assert (known.status, [finding.known for finding in known.findings]) == (0, [True])
    assert known.headline == "Gate passed: no problems found (3 checks; 1 known finding not counted)"
    for change in ({"layer": 1}, {"kind": "vo"}, {"head": 0}, {"rule": "non-finite"}):
        new = gate(tmp_path, heads(SIZES), there, {**there, **change}, rules="", known=there)
        assert (new.status, [finding.known for finding in new.findings]) == (3, [True, False])
        assert new.headline == "Gate failed: 1 error (3 checks; 1 known finding not counted)"


def test_levels_and_ignored_findings(tmp_path):
    rows = [{"rule": "unbalanced", "layer": 0}, {"rule": "random-head", "level": "note", "layer": 0}]
    for rules, status, levels in (
        ("", 3, ["error", "note"]),
        ('[findings]\nignore = ["unbalanced"]', 0, ["note"]),
        ('[findings]\nlevels = { unbalanced = "warning" }', 0, ["warning", "note"]),
        ('fail_on = "warning"\n[findings]\nlevels = { unbalanced = "warning" }', 3, ["warning", "note"]),
        ('[findings]\nlevels = { unbalanced = "off", random-head = "error" }', 3, ["error"]),
    ):
        judged = gate(tmp_path, heads(SIZES), *rows, rules=rules)
        assert (judged.status, [finding.level for finding in judged.findings]) == (status, levels), rules
