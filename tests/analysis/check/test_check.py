"""`attnlaw check`: exit statuses, JSON alone on standard output, files that never change the status."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from analysis.check.frames import findings
from command.in_process import invoke

import attnlaw
from attnlaw.analysis.audit.audit import audit
from attnlaw.analysis.check import tables as measured
from attnlaw.analysis.findings.apply import sentences
from attnlaw.analysis.findings.detectors import DETECTORS

MODEL = Path("examples/tiny-decoder").resolve()
RULE = """
[[rule]]
name = "ranks"
of = "matrices"
where = { kind = "qk" }
column = "stable_rank"
is = "> 1"
"""


@pytest.fixture(scope="module", name="audited")
def _audited():
    return attnlaw.audit(MODEL, jobs=1)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch, audited):
    """One audit for all tests; findings as a test sets them."""
    monkeypatch.setattr(measured, "audit", lambda *_, **__: audited.record)


def rules(folder: Path, text: str = RULE, head: str = "version = 1\n") -> Path:
    path = folder / "rules.toml"
    path.write_text(head + text)
    return path


def test_a_gate_that_passes(tmp_path):
    ended = invoke("check", MODEL, "--rules", rules(tmp_path))
    shown = " ".join(ended.stdout.split())
    assert f"OK Gate passed: no problems found ({len(DETECTORS)} checks; the rule holds)." in shown
    assert "Not checked, because weights alone cannot show it: the number of heads" in shown
    assert "16 of 16" in ended.stdout


def test_a_gate_that_fails_has_status_3(tmp_path):
    path = rules(tmp_path, RULE.replace("> 1", "> 3"))
    shown = invoke("check", MODEL, "--rules", path, status=3).stdout
    assert f"Gate failed: 1 error ({len(DETECTORS)} checks; 1 of 1 rule failed)." in shown
    assert "Worst: layer 0, QK, head " in " ".join(shown.split())
    assert "and 5 more." in shown


@pytest.mark.parametrize("level", ["note", "warning"])
def test_a_lower_level_does_not_fail_the_gate(tmp_path, level):
    path = rules(tmp_path, RULE.replace("> 1", "> 3") + f'level = "{level}"')
    shown = invoke("check", MODEL, "--rules", path).stdout
    assert f"Gate passed with 1 {level} ({len(DETECTORS)} checks; 1 of 1 rule failed)." in shown
    status = 3 if level == "warning" else 0
    invoke("check", MODEL, "--rules", path, "--fail-on", "warning", status=status)


def test_json_alone_is_on_standard_output(tmp_path):
    path = rules(tmp_path, RULE.replace("> 1", "> 3"))
    forms = [f"--{form}={tmp_path / form}" for form in ("junit", "sarif", "markdown")]
    ended = invoke("check", MODEL, "--rules", path, "--json", "--github", *forms, status=3)
    output = json.loads(ended.stdout)
    assert output["quantities"]["passed"] is False
    assert output["quantities"]["exit_status"] == 3
    (verdict,) = output["tables"]["verdicts"]
    assert (verdict["rule"], verdict["outcome"]) == ("ranks", "failed")
    assert len(verdict["failures"]) == verdict["selected"] - verdict["held"] > 0
    assert "::error file=examples/tiny-decoder/model.safetensors,title=attnlaw%3A ranks::" in ended.stderr
    assert output == attnlaw.check(str(MODEL), rules=path).summary


def test_forms_never_change_the_status(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    for bound, status in (("> 1", 0), ("> 3", 3)):
        path = rules(tmp_path, RULE.replace("> 1", bound))
        forms = [f"--{form}={tmp_path / form}" for form in ("junit", "sarif", "markdown")]
        for some in ([], forms[:1], forms[1:2], forms[2:], [*forms, "--github"], ["--json"]):
            invoke("check", MODEL, "--rules", path, *some, status=status)
        failures = ElementTree.parse(tmp_path / "junit").getroot().get("failures")
        assert failures == str(int(status == 3))
        assert len(json.loads((tmp_path / "sarif").read_text())["runs"][0]["results"]) == (
            0 if status == 0 else 8
        )
    assert (tmp_path / "summary.md").read_text().count("###") == 2


def test_the_record_has_the_texts_of_the_reports():
    gate = attnlaw.check(str(MODEL)).record
    assert json.loads(gate.to_sarif())["version"] == "2.1.0"
    assert ElementTree.fromstring(gate.to_junit()).tag == "testsuites"
    assert gate.to_markdown().startswith(f"### ✅ Gate passed: no problems found ({len(DETECTORS)} checks)\n")


def test_several_models_and_one_that_is_not_there(tmp_path):
    path = rules(tmp_path)
    ended = invoke(
        "check", MODEL, tmp_path / "none.safetensors", "--rules", path, "--junit", tmp_path / "j", status=1
    )
    assert "none.safetensors: no such file or directory" in ended.stderr
    sound, unread = ElementTree.parse(tmp_path / "j").getroot()
    assert (sound.get("errors"), unread.get("errors")) == ("0", "1")
    failing = rules(tmp_path, RULE.replace("> 1", "> 3"))
    invoke("check", MODEL, MODEL, "--rules", failing, "--junit", tmp_path / "j", status=3)
    assert len(ElementTree.parse(tmp_path / "j").getroot()) == 2


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("", ["--rules", "missing.toml"], "missing.toml: no such file; give a rule file"),
        (
            RULE.replace("ranks", "x").replace("stable_rank", "stable"),
            [],
            "rule 'x': unknown column stable in table matrices; did you mean stable_rank?",
        ),
        (RULE + 'against = "baseline"', [], "rule 'ranks' compares with a baseline; add --baseline DIR"),
        (
            RULE.replace("matrices", "steps"),
            [],
            "rule 'ranks': it reads the table steps, which only a training",
        ),
        (
            "[findings]\nignore = ['dead']",
            [],
            "unknown finding dead; did you mean dead-map?",
        ),
        (RULE, ["--fail-on", "note"], "--fail-on note: expected one of warning, error"),
        (
            RULE,
            ["--junit", "x", "--sarif", "x"],
            "--junit x: is also the file of another report; give each report its own file",
        ),
        (RULE, ["--junit", ""], "--junit expected the name of a file"),
        (
            RULE,
            ["--figure", "x.pdf"],
            "--figure x.pdf: check draws no figures; use attnlaw audit or attnlaw diff",
        ),
        (RULE, ["--sarif-location", "x"], "--sarif-location needs --sarif or --github"),
        (
            RULE,
            ["--github", "--sarif-location", "x"],
            "--sarif-location x: no such file; give a file of the repository",
        ),
    ],
)
def test_bad_usage_has_status_2(tmp_path, monkeypatch, text, words, line):
    path = rules(tmp_path, text)
    given = words if "--rules" in words else ["--rules", path, *words]
    ended = invoke("check", MODEL, *given, status=2)
    assert line in ended.stderr
    assert (ended.stderr.count("\n"), ended.stdout) == (1, "")


def test_a_model_or_a_base_that_is_not_there_has_status_1(tmp_path):
    assert "nowhere: no such file" in invoke("check", "nowhere", status=1).stderr
    assert "nowhere: no such file" in invoke("check", MODEL, "--base", "nowhere", status=1).stderr
    ended = invoke("check", MODEL, "--rules", rules(tmp_path), "--baseline", tmp_path / "none", status=1)
    assert "none: no such directory; expected a directory that" in ended.stderr
    attnlaw.learn(alpha=1.0).save(tmp_path / "learned")
    ended = invoke("check", MODEL, "--baseline", tmp_path / "learned", status=1)
    assert "found no findings.parquet; give a directory that attnlaw audit --out or" in ended.stderr


@pytest.mark.parametrize("broken", ["missing", "cut"])
def test_reports_are_written_even_if_the_model_cannot_be_read(tmp_path, monkeypatch, broken):
    """Those of an earlier run must not pass for those of this one.

    A missing file is refused before the run, and one that was cut in it.
    """
    monkeypatch.setattr(measured, "audit", audit)
    model = tmp_path / "m.safetensors"
    if broken == "cut":
        model.write_bytes((MODEL / "model.safetensors").read_bytes()[:1000])
    files = {form: tmp_path / form for form in ("junit", "sarif", "markdown")}
    for file in files.values():
        file.write_text("of an earlier run")
    forms = [f"--{form}={file}" for form, file in files.items()]
    ended = invoke("check", model, *forms, "--github", status=1)
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("attnlaw: ")]
    message = line.removeprefix("attnlaw: ")
    error = ElementTree.parse(files["junit"]).getroot().find("testsuite/testcase/error")
    assert error.get("message") == message
    (run,) = json.loads(files["sarif"].read_text())["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert [result["message"]["text"] for result in run["results"]] == [message]
    assert "Could not be read" in files["markdown"].read_text()
    assert ended.stdout.startswith("::error file=")


def test_a_file_of_the_repository_stands_for_the_model(tmp_path):
    """A checkpoint is not in the repository, so a code host would show nothing."""
    path = rules(tmp_path, RULE.replace("> 1", "> 3"))
    words = ("--rules", path, "--sarif", tmp_path / "s", "--sarif-location", "pyproject.toml", "--github")
    ended = invoke("check", MODEL, "nowhere", *words, status=1)
    results = json.loads((tmp_path / "s").read_text())["runs"][0]["results"]
    locations = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results]
    assert locations == ["pyproject.toml"] * 9
    lines = [line for line in ended.stdout.splitlines() if line.startswith("::")]
    assert [line.partition(",")[0] for line in lines] == ["::error file=pyproject.toml"] * 2


def test_a_log_shows_the_limit_next_to_the_value(tmp_path):
    """Of 80 columns, a name of 60 leaves no room for it on a screen."""
    path = rules(tmp_path, RULE.replace("ranks", "r" * 60).replace("> 1", "> 3"))
    words = ("check", MODEL, "--rules", path)
    assert "A wider screen also shows" in invoke(*words, status=3, columns=80).stdout
    (line,) = [line for line in invoke(*words, status=3).stdout.splitlines() if line.startswith("failed")]
    assert re.fullmatch("failed +r{60} +stable_rank > 3 +8 of 16 +[0-9.]+", line)


def test_no_model_is_bad_usage():
    assert (
        invoke("check", status=2).stderr
        == "attnlaw: MODEL is missing; try: attnlaw check examples/tiny-decoder\n"
    )
    with pytest.raises(attnlaw.InputError, match=r"^model is missing$"):
        attnlaw.check()


def test_a_rule_is_explained_without_a_model():
    for name, rule in DETECTORS.items():
        shown = " ".join(invoke("check", "--explain", name).stdout.split())
        assert shown.startswith(f"{name}: {rule.level}")
        texts = [sentences(text) for text in (rule.when, rule.meaning, rule.remedy)]
        assert shown.endswith("Reported when {} Meaning {} What to do {}".format(*texts))
    explanation = json.loads(invoke("check", "--explain", "non-finite", "--json").stdout)
    assert (explanation["level"], explanation["threshold"]) == ("error", None)
    unknown = invoke("check", "--explain", "unbalancd", status=2)
    assert unknown.stderr == "attnlaw: --explain unbalancd: no such rule; did you mean unbalanced?\n"


def test_findings_alone_decide_without_rules(monkeypatch):
    rows = findings(
        {
            "rule": "unbalanced",
            "layer": 2,
            "value": 9.5,
            "threshold": 3.0,
            "meaning": "one factor is far larger",
        },
        {"rule": "random-head", "level": "note", "layer": 0, "kind": "qk", "head": 1, "value": 0.5},
    )
    monkeypatch.setattr(measured.RuleTables, "findings", rows)
    shown = invoke("check", MODEL, status=3).stdout
    assert f"Gate failed: 1 error, 1 note ({len(DETECTORS)} checks)." in shown
    assert (
        "ERROR unbalanced: layer 2: differs from the median layer by a factor of 9.5 (limit 3)"
        in " ".join(shown.split())
    )
    assert "         One factor is far larger.\n" in shown
    assert "Fix: look for a scale that was applied twice" in shown
    assert "Note: random-head: layer 0, QK, head 1" in shown
    monkeypatch.setattr(measured.RuleTables, "findings", rows.tail(1))
    passed = invoke("check", MODEL).stdout
    assert f"Gate passed with 1 note ({len(DETECTORS)} checks)." in passed


def test_an_audit_of_its_own_is_a_baseline(tmp_path, audited):
    halved = audited.tables["matrices"].with_columns(pl.col("stable_rank") * 0.5)
    (tmp_path / "old").mkdir()  # what `--out` writes, without the page
    for name, data in replace(audited, tables={**audited.tables, "matrices": halved}).files().items():
        (tmp_path / "old" / name).write_bytes(data)
    text = RULE + 'against = "baseline"\n'
    path = rules(tmp_path, text.replace("> 1", ">= 1"))
    assert "16 of 16" in invoke("check", MODEL, "--rules", path, "--baseline", tmp_path / "old").stdout
    path = rules(tmp_path, text.replace("> 1", "< 1"))
    invoke("check", MODEL, "--rules", path, "--baseline", tmp_path / "old", status=3)


def test_every_table_of_a_checkpoint(tmp_path, monkeypatch):
    audit = attnlaw.audit(MODEL, layers="1", jobs=1).record
    monkeypatch.setattr(measured, "audit", lambda *_, **__: audit)
    text = """
    [[rule]]
    name = "depth"
    of = "summary"
    column = "depth"
    is = "== 4"
    [[rule]]
    name = "family"
    of = "summary"
    column = "family"
    is = ["gpt2", "llama", "gpt_neox"]
    level = "note"
    [[rule]]
    name = "layers"
    of = "layers"
    column = "applications"
    is = "== 1"
    [[rule]]
    name = "not random"
    of = "fits"
    column = "law"
    is = "!= random"
    mostly = 0.5
    """
    result = attnlaw.check(MODEL, rules=rules(tmp_path, text))
    assert result.exit_status == 0
    assert result.verdicts.select("rule", "selected").rows() == [
        ("depth", 1),
        ("family", 1),
        ("layers", 1),
        ("not random", 10),
    ]


def test_rows_and_a_page_are_written(tmp_path):
    invoke("check", MODEL, "--rules", rules(tmp_path), "--out", tmp_path / "out")
    assert pl.read_parquet(tmp_path / "out" / "verdicts.parquet")["outcome"].to_list() == ["passed"]
    assert (tmp_path / "out" / "report.html").exists()
