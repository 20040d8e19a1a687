"""A baseline: rows found again by their place, findings known by rule and place, other shapes refused."""

from __future__ import annotations

import json

import polars as pl
import pytest
from analysis.check.frames import FINDINGS, TABLES, findings, heads, written

from attnlaw.analysis.check.baseline import Baseline
from attnlaw.analysis.check.judge import judge
from attnlaw.core.errors import InputError

RULES = """
[[rule]]
name = "grown"
of = "diff"
column = "size"
is = "< 0.5"
against = "baseline"
"""
SIZES = {(0, "qk", 0): 1.0, (0, "qk", 1): 2.0, (0, "ffn_in", None): 4.0}


def gate(folder, now, *rows, rules=RULES, old=None):
    folder.mkdir(exist_ok=True)
    if not (folder / "findings.parquet").exists():
        findings().write_parquet(folder / "findings.parquet")  # as an audit that found nothing does
    if old is not None:
        old.write_parquet(folder / "diff.parquet")
    asked = written(folder, rules)
    return judge(asked, "m", "m.bin", TABLES, {"diff": now}.__getitem__, findings(*rows), FINDINGS, folder)


def test_a_column_becomes_its_relative_change(tmp_path):
    now = heads({(0, "ffn_in", None): 5.0, (0, "qk", 1): 2.0, (0, "qk", 0): 1.6})
    (verdict,) = gate(tmp_path, now, old=heads(SIZES)).rules
    assert (verdict.outcome, verdict.held, verdict.selected) == ("failed", 2, 3)
    assert [
        (failure.place["kind"], failure.place["head"], failure.value) for failure in verdict.failures
    ] == [("qk", 0, pytest.approx(0.6))]


def test_what_is_new_or_was_zero_is_missing_and_what_is_gone_fails(tmp_path):
    now = heads({**SIZES, (1, "qk", 0): 1.0})
    (verdict,) = gate(tmp_path, now, old=heads({**SIZES, (0, "qk", 1): 0.0})).rules
    assert sorted(map(str, verdict.failures)) == [
        "layer 0, qk, head 1: missing",
        "layer 1, qk, head 0: missing",
    ]
    skipping = RULES + 'missing = "skip"\n'
    assert gate(tmp_path, now, old=heads(SIZES), rules=skipping).passed
    (verdict,) = gate(tmp_path, heads({(0, "qk", 0): 1.0}), old=heads(SIZES), rules=skipping).rules
    assert sorted(map(str, verdict.failures)) == ["layer 0, ffn_in: is gone", "layer 0, qk, head 1: is gone"]


def test_other_shapes_are_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"layer 0, qk, head 0 is 8 x 8 there and 8 x 16 here; give a baseline"
    ):
        gate(tmp_path, heads(SIZES, cols=16), old=heads(SIZES))


def test_a_directory_that_cannot_serve(tmp_path):
    with pytest.raises(InputError, match="no such directory; give one that attnlaw audit --out wrote"):
        Baseline(tmp_path / "none")
    with pytest.raises(InputError) as caught:
        Baseline(tmp_path).known_identities()
    message = "found no findings.parquet; give a directory that attnlaw audit --out wrote"
    assert str(caught.value) == f"{tmp_path}: {message}"
    with pytest.raises(InputError, match=r"found no diff\.parquet"):
        gate(tmp_path, heads(SIZES))
    both = pl.concat([heads(SIZES), heads(SIZES, model="other")])
    with pytest.raises(InputError, match="holds several models; give a baseline of one"):
        gate(tmp_path, heads(SIZES), old=both)
    with pytest.raises(InputError, match="found no column size"):
        gate(tmp_path, heads(SIZES), old=heads(SIZES).drop("size"))
    (tmp_path / "diff.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="cannot be read"):
        gate(tmp_path, heads(SIZES))


def test_the_summary_of_an_audit(tmp_path):
    rules = RULES.replace('"diff"', '"summary"').replace('"size"', '"log10_proxy"')
    findings().write_parquet(tmp_path / "findings.parquet")
    asked = written(tmp_path, rules)
    now = pl.DataFrame({"depth": [4], "log10_proxy": [3.0], "log10_proxy_error": [None]})

    def verdict():
        tables = {"summary": now}.__getitem__
        return judge(asked, "m", "m.bin", TABLES, tables, baseline=tmp_path).rules[0]

    for proxy in ({"value": 2.0, "error": 0.1}, 2.0):
        (tmp_path / "summary.json").write_text(json.dumps({"quantities": {"log10_proxy": proxy}}))
        assert (verdict().outcome, verdict().value) == ("failed", 0.5)
    (tmp_path / "summary.json").write_text(json.dumps({"quantities": {"log10_proxy": 2.5}}))
    assert verdict().outcome == "passed"
    for text in ("[]", "{}", "[" * 100_000, '{"quantities": [1]}', "nonsense"):
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(InputError, match=r"summary\.json: no summary of one model"):
            verdict()


def test_a_diff_and_an_audit_that_found_nothing_know_no_findings(tmp_path):
    for name, rows in (("diff", heads(SIZES)), ("findings", findings())):
        (tmp_path / name).mkdir()
        rows.write_parquet(tmp_path / name / f"{name}.parquet")
        assert Baseline(tmp_path / name).known_identities() == set()


def test_findings_of_the_baseline_are_known_whatever_their_value(tmp_path):
    there = {"rule": "unbalanced", "layer": 0, "kind": "qk", "value": 4.0, "threshold": 3.0}
    findings(there).write_parquet(tmp_path / "findings.parquet")
    known = gate(tmp_path, heads(SIZES), {**there, "value": 9.0}, rules="")
    assert (known.status, [finding.known for finding in known.findings]) == (0, [True])
    assert known.headline == "gate passed: no new finding of level error by 3 rules"
    for change in ({"layer": 1}, {"kind": "vo"}, {"head": 0}, {"rule": "non-finite"}):
        new = gate(tmp_path, heads(SIZES), there, {**there, **change}, rules="")
        assert (new.status, [finding.known for finding in new.findings]) == (3, [True, False])
        assert new.headline == "gate failed: 1 new finding of level error"


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
