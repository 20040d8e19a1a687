"""Findings of real weights in a gate: damage fails it, a baseline knows it, the rest is still judged."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from analysis.check.pairs import read, write
from command.in_process import invoke

from attnlaw.analysis.check.columns import TENSORS
from attnlaw.analysis.columns import LEVELS, LOCATION
from attnlaw.analysis.columns import LEVELS as DECLARED
from attnlaw.analysis.findings.detectors import DETECTORS

TINY = Path("examples/tiny-decoder").resolve()
RULES = """version = 1
[findings]
ignore = ["untrained-layer"]
levels = {{ {levels} }}
[[rule]]
name = "rest"
of = "matrices"
column = "spectral_norm"
is = "> 0"
"""


def test_levels_are_those_of_findings():
    assert LEVELS == DECLARED


@pytest.fixture(scope="module", name="broken")
def _broken(tmp_path_factory) -> tuple[Path, str]:
    """The small decoder with one NaN, and the name of its tensor."""
    state = read(TINY)
    name = next(name for name, array in state.items() if array.ndim == 2 and ".1." in name)
    state[name] = state[name].copy()
    state[name][3, 5] = np.nan
    return write(state, TINY, tmp_path_factory.mktemp("broken") / "model"), name


def test_a_nan_is_one_line_of_audit_and_a_finding_of_check(broken, tmp_path):
    folder, name = broken
    ended = invoke("audit", folder, "--jobs", 1, status=1)
    assert ended.stderr.count("\n") == 1
    assert f"tensor {name} has 1 NaN or infinite entry;" in ended.stderr
    output = json.loads(invoke("check", folder, "--json", "--jobs", 1, status=3).stdout)
    rows = [row for row in output["tables"]["findings"] if row["rule"] == "non-finite"]
    assert [(row["tensor"], row["level"], row["known"]) for row in rows] == [(name, "error", False)]


def test_the_example_for_a_release(broken):
    passed = invoke("check", TINY, "--rules", "release", "--jobs", 1).stdout
    assert f"Gate passed: no problems found ({len(DETECTORS)} checks; warnings fail the gate)." in passed
    shown = invoke("check", broken[0], "--rules", "release", "--jobs", 1, status=3).stdout
    assert "ERROR    non-finite: " in shown


def test_what_does_not_need_the_damaged_tensor_is_still_judged(broken, tmp_path):
    folder, _ = broken
    path = tmp_path / "rules.toml"
    path.write_text(RULES.format(levels='non-finite = "warning"'))
    output = json.loads(invoke("check", folder, "--rules", path, "--json", "--jobs", 1).stdout)
    (verdict,) = output["tables"]["verdicts"]
    assert verdict["outcome"] == "passed"
    assert 0 < verdict["selected"] < 40
    invoke("check", folder, "--rules", path, "--fail-on", "warning", "--jobs", 1, status=3)


def test_thresholds_of_the_rule_file_reach_the_findings(tmp_path):
    path = tmp_path / "rules.toml"
    for threshold, status in ((1e-3, 3), (1e3, 0)):
        asked = f"[findings]\nthresholds = {{ saturated-scores = {threshold} }}\n"
        path.write_text(f"version = 1\nfail_on = 'warning'\n{asked}")
        output = json.loads(
            invoke("check", TINY, "--rules", path, "--json", "--jobs", 1, status=status).stdout
        )
        rules = {row["rule"] for row in output["tables"]["findings"]}
        assert rules == ({"saturated-scores"} if status else set())


def test_rules_about_stored_tensors(broken, tmp_path):
    folder, name = broken
    path = tmp_path / "rules.toml"
    rule = '[[rule]]\nname = "peaks"\nof = "tensors"\ncolumn = "peak"\nis = "< {0}"\nwhere.role = "map"\n'
    path.write_text("version = 1\n" + rule.format(1e6))
    output = json.loads(invoke("check", folder, "--rules", path, "--json", "--jobs", 1, status=3).stdout)
    assert output["tables"]["verdicts"][0]["failures"] == [f"{name}: no value"]
    state = read(TINY)
    largest = max(np.abs(array).max() for array in state.values() if array.ndim == 2)
    maps = {name: array for name, array in state.items() if array.ndim == 2 and ".h." in f".{name}"}
    path.write_text("version = 1\n" + rule.format(largest / 2))
    output = json.loads(invoke("check", TINY, "--rules", path, "--json", "--jobs", 1, status=3).stdout)
    (verdict,) = output["tables"]["verdicts"]
    above = sum(np.abs(array).max() >= largest / 2 for array in maps.values())
    assert verdict["selected"] - verdict["held"] == above
    assert verdict["selected"] == len(maps)


def test_the_page_names_where_a_tensor_is():
    """docs/hooks/verbs.py adds the other columns."""
    page = (Path("docs") / "commands" / "check.md").read_text(encoding="utf-8")
    assert "\n<!-- columns of stored tensors -->\n" in page
    for column in TENSORS:
        assert column not in LOCATION or f"`{column.name}`" in page


@pytest.mark.parametrize(
    ("chosen", "blind"),
    [
        (("--layers", 0), {"norm-outlier", "unbalanced", "copied-layer", "random-embedding", "gains-one"}),
        (("--only", "qk"), {"duplicate-heads", "untrained-model", "transposed", "zero-embedding-rows"}),
        (("--only", "ffn"), {"saturated-scores", "logit-overflow", "random-head"}),
    ],
)
def test_checks_that_could_not_look_are_not_claimed(chosen, blind, tmp_path):
    """A gate of a part of the model says how many checks ran. A report for CI lists only these."""
    path = tmp_path / "gate.xml"
    shown = " ".join(invoke("check", TINY, *chosen, "--junit", path, "--jobs", 1).stdout.split())
    ran = {case.get("name") for case in ElementTree.parse(path).iter("testcase")}
    assert ran
    assert not ran & blind
    assert {"non-finite", "zero-rows", "rank-deficient"} <= ran
    skipped = len(DETECTORS) - len(ran)
    words = f"({len(ran)} checks; {skipped} others need the whole model)"
    assert f"no problems found {words}." in shown
    audited = " ".join(invoke("audit", TINY, *chosen, "--jobs", 1).stdout.split())
    assert f"No problems found {words}." in audited
