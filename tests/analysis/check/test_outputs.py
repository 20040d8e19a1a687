"""Verdicts in every form, read back by whoever reads them: parsers, a schema, and a runner's own rules."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from analysis.check.frames import FINDINGS, TABLES, findings, heads, table, written
from markdown_it import MarkdownIt
from rich.console import Console

from attnlaw.analysis.check.evaluate import judge
from attnlaw.analysis.check.verdicts import Verdicts
from attnlaw.analysis.findings.apply import fix_text
from attnlaw.core.errors import printable
from attnlaw.core.result import Result
from attnlaw.verbs.check import VERB, CheckSettings
from attnlaw.verbs.check.reports import (
    UnreadModel,
    add_to_summary,
    code,
    github_annotations,
    junit,
    markdown,
    rule_ids,
    sarif,
    unread_annotation,
)
from attnlaw.verbs.views import show

SARIF_SCHEMA = Path(__file__).resolve().parents[2] / "published" / "sarif" / "sarif-schema-2.1.0.json"
HOSTILE = (
    "w\n::error title=owned::\r\x1b[31m%0A::warning::x",
    "::stop-commands::now",
    "\\|<img src=x>*a*",
    "<script>alert(1)</script>|`` ``` `x` [a](http://evil) ![b](http://evil/b.png)",
    "| --- | --- |\n# heading\n</td></tr></table>",
    "a\"b'c]]>&amp;<!--",
    "\x00\x01\ufffe\u202e",
    "x" * 100_000,
)
RULES = """
[[rule]]
name = "near"
of = "diff"
column = "size"
is = "< 0.25"
[[rule]]
name = "largest"
of = "diff"
column = "size"
is = "< 0.75"
over = "max"
[[rule]]
name = "rounding"
of = "diff_tensors"
column = "verdict"
is = ["rounded"]
level = "warning"
[[rule]]
name = "nobody"
of = "diff"
where = { layer = 7 }
column = "size"
is = "< 1"
[[rule]]
name = "fine"
of = "diff"
column = "size"
is = "< 2"
[[rule]]
name = "sleeping"
of = "diff"
column = "size"
is = "< 0"
level = "off"
"""


def verdicts(folder: Path, names: tuple[str, ...] = ("encoder.weight",), rules: str = RULES) -> Verdicts:
    """A gate with rules that fail in every way, and findings with these names of tensors."""
    rows = {
        "diff": heads({(0, "qk", 0): 0.1, (0, "qk", 1): 0.5, (1, "vo", 0): 1.0}),
        "diff_tensors": table("diff_tensors", [{"tensor": name, "verdict": "dense"} for name in names]),
    }
    frame = findings(
        *({"rule": "non-finite", "tensor": name, "value": 3.0} for name in names),
        {
            "rule": "random-head",
            "level": "note",
            "layer": 0,
            "kind": "qk",
            "head": 1,
            "value": 0.5,
            "threshold": 0.01,
        },
    )
    asked = written(folder, rules)
    return judge(asked, names[0], "models/a b#c?.safetensors", TABLES, rows.__getitem__, frame, FINDINGS)


# JUnit


def test_junit_is_read_back_by_a_parser(tmp_path):
    suites = ElementTree.fromstring(junit([verdicts(tmp_path)]))
    (suite,) = suites
    cases = {case.get("name"): case for case in suite}
    assert list(cases) == ["near", "largest", "rounding", "nobody", "fine", "sleeping", *FINDINGS]
    failed = [name for name, case in cases.items() if case.find("failure") is not None]
    assert failed == ["near", "largest", "nobody", "non-finite"]
    assert [name for name, case in cases.items() if case.find("skipped") is not None] == ["sleeping"]
    counts = {"tests": "9", "failures": "4", "skipped": "1", "errors": "0"}
    assert suite.attrib == {"name": "encoder.weight", **counts}
    assert suites.attrib == {"name": "attnlaw check", **counts}
    assert cases["near"].find("failure").text.splitlines() == [
        "layer 1, VO, head 0: 1",
        "layer 0, QK, head 1: 0.5",
    ]
    assert (
        cases["rounding"]
        .find("system-out")
        .text.startswith("warning: encoder.weight: dense, expected verdict is rounded")
    )
    assert (
        cases["random-head"]
        .find("system-out")
        .text.startswith("note: layer 0, QK, head 1: p-value at least 0.5 (limit 0.01)")
    )


def test_junit_holds_hostile_names_as_text(tmp_path):
    (suite,) = ElementTree.fromstring(junit([verdicts(tmp_path, HOSTILE, RULES.replace("near", "n\\u0001"))]))
    assert suite[0].get("name") == r"n\x01"
    body = next(case for case in suite if case.get("name") == "non-finite").find("failure").text
    *places, fix = body.splitlines()
    assert (len(places), fix) == (len(HOSTILE), fix_text("non-finite"))
    assert "<script>alert(1)</script>" in body


# SARIF


def test_sarif_follows_its_schema(tmp_path):
    schema = json.loads(SARIF_SCHEMA.read_bytes())
    jsonschema.Draft7Validator.check_schema(schema)
    for names in (("encoder.weight",), HOSTILE):
        log = json.loads(sarif([verdicts(tmp_path, names), verdicts(tmp_path, names)]))
        checked = jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())
        assert list(checked.iter_errors(log)) == []
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert len(list(checked.iter_errors(log))) == 1


def test_sarif_tells_rules_and_places(tmp_path):
    (run,) = json.loads(sarif([verdicts(tmp_path)]))["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["near", "largest", "rounding", "nobody", "fine", *FINDINGS]
    results = [
        (
            result["ruleId"],
            result["level"],
            result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"],
        )
        for result in run["results"]
    ]
    assert results == [
        ("near", "error", "layer 1, VO, head 0"),
        ("near", "error", "layer 0, QK, head 1"),
        ("largest", "error", "the model"),
        ("nobody", "error", "the model"),
        ("rounding", "warning", "encoder.weight"),
        ("non-finite", "error", "encoder.weight"),
        ("random-head", "note", "layer 0, QK, head 1"),
    ]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    assert run["results"][2]["message"]["text"] == "found 1, expected max of size < 0.75"


def test_identifiers_of_rules_have_no_spaces_and_names_are_kept(tmp_path):
    rules = RULES.replace('"near"', '"Near the base: 100%"').replace('"largest"', '"random head"')
    (run,) = json.loads(sarif([verdicts(tmp_path, rules=rules)]))["runs"]
    described = {rule["id"]: rule["name"] for rule in run["tool"]["driver"]["rules"]}
    first, second = list(described)[:2]
    assert (first, described[first]) == ("near-the-base-100", "Near the base: 100%")
    # A finding has this identifier already.
    assert re.fullmatch("random-head-[0-9a-f]{6}", second)
    assert described["random-head"] == "random-head"
    assert len(described) == 5 + len(FINDINGS)
    assert {result["ruleId"] for result in run["results"]} <= set(described)
    assert rule_ids(["a b", "a-b", "a_b", "???"])["a-b"] == "a-b"
    assert len(set(rule_ids(["a b", "a-b", "a_b", "???", "!"]).values())) == 5


def test_sarif_says_whether_the_run_could_do_its_work(tmp_path):
    failed = verdicts(tmp_path)
    passed = replace(failed, rules=(), findings=())
    schema = jsonschema.Draft7Validator(json.loads(SARIF_SCHEMA.read_bytes()))
    for models, status in (([passed], 0), ([passed, failed], 3)):
        (run,) = json.loads(sarif(models))["runs"]
        assert run["invocations"] == [{"executionSuccessful": True, "exitCode": status}]
    text = sarif([failed], [UnreadModel("b", "b c.bin", "b c.bin: not a pickle")])
    assert list(schema.iter_errors(json.loads(text))) == []
    (run,) = json.loads(text)["runs"]
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 1)
    (note,) = invocation["toolExecutionNotifications"]
    assert (note["level"], note["message"]["text"]) == ("error", "b c.bin: not a pickle")
    # Code hosts show results alone, and close the alerts of a run without them.
    (result,) = [result for result in run["results"] if result["ruleId"] == "unreadable-model"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "b%20c.bin"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "unreadable-model"


def test_a_model_that_could_not_be_read_is_an_error_in_every_form(tmp_path):
    unread = [UnreadModel(name, name, f"{name}: cannot be read") for name in HOSTILE]
    suites = ElementTree.fromstring(junit([verdicts(tmp_path)], unread))
    assert (suites.get("errors"), suites.get("tests")) == (str(len(HOSTILE)), str(9 + len(HOSTILE)))
    assert suites[1].find("testcase/error").get("message") == printable(f"{HOSTILE[0]}: cannot be read")
    page = rendered(markdown([], unread))
    assert set(page.tags) <= {"h3", "p", "code"}
    for model in unread:
        line = unread_annotation(model)
        assert "\n" not in line
        command, values, message = runner(line)
        assert (command, values["title"]) == ("error", "attnlaw: unreadable-model")
        assert message == printable(model.message)


def test_the_headline_counts_what_was_found(tmp_path):
    gate = verdicts(tmp_path)
    assert gate.headline == "Gate failed: 4 errors, 1 warning, 1 note (3 checks; 4 of 5 rules failed)"
    warned = replace(gate.findings[0], level="warning")
    several = replace(gate, rules=(), findings=(warned,) * 5)
    assert several.headline == "Gate passed with 5 warnings (3 checks)"
    assert (
        replace(several, fail_on="warning").headline
        == "Gate failed: 5 warnings (3 checks; warnings fail the gate)"
    )
    assert replace(several, detectors={}, findings=()).headline == "Gate passed: nothing was checked"


def test_a_result_is_known_by_its_rule_and_place_and_never_by_a_value(tmp_path):
    def identities(gate: Verdicts) -> list[str]:
        results = json.loads(sarif([gate]))["runs"][0]["results"]
        return [result["partialFingerprints"]["attnlawRuleAndPlace/v1"] for result in results]

    first = verdicts(tmp_path)
    other = [replace(finding, value=9.5, meaning="said otherwise") for finding in first.findings]
    rules = [
        replace(rule, asked="more", failures=tuple(replace(failure, value=7.0) for failure in rule.failures))
        for rule in first.rules
    ]
    again = replace(first, rules=tuple(rules), findings=tuple(other), model="elsewhere", location="x.bin")
    assert identities(first) == identities(again)
    assert len(set(identities(first))) == len(identities(first))


def test_uris_are_relative_to_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    file = tmp_path / "models" / "a b#c?.safetensors"
    file.touch()
    monkeypatch.chdir(tmp_path)
    for location in (str(file), "models/a b#c?.safetensors", "./models/../models/a b#c?.safetensors"):
        log = json.loads(sarif([replace(verdicts(tmp_path), location=location)]))
        uris = {
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            for result in log["runs"][0]["results"]
        }
        assert uris == {"models/a%20b%23c%3F.safetensors"}
    monkeypatch.chdir(tmp_path / "models")
    assert '"../rules.toml"' in sarif([replace(verdicts(tmp_path), location=str(tmp_path / "rules.toml"))])


# GitHub


def runner(line: str) -> tuple[str, dict[str, str], str] | None:
    """A line as GitHub's runner reads it: `::NAME KEY=VALUE,...::MESSAGE`, or None for a plain line."""
    if not line.lstrip().startswith("::"):
        return None
    inside, _, message = line.lstrip()[2:].partition("::")
    name, _, written = inside.partition(" ")
    values = dict(pair.split("=", 1) for pair in written.split(",") if "=" in pair)
    marks = [("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")]

    def plain(text: str, some: list[tuple[str, str]]) -> str:
        for mark, char in some:
            text = text.replace(mark, char)
        return text

    return name, {key: plain(value, marks) for key, value in values.items()}, plain(message, marks[2:])


def test_annotations_are_one_for_each_rule_the_gravest_first(tmp_path):
    lines = [runner(line) for line in github_annotations(verdicts(tmp_path))]
    assert [(name, values["title"]) for name, values, _ in lines] == [
        ("error", "attnlaw: near"),
        ("error", "attnlaw: largest"),
        ("error", "attnlaw: nobody"),
        ("error", "attnlaw: non-finite"),
        ("warning", "attnlaw: rounding"),
        ("notice", "attnlaw: random-head"),
    ]
    assert lines[0][2].startswith("encoder.weight: 1 of 3 rows hold")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_cannot_begin_a_command(tmp_path, name):
    rule = "a,b::c 50%0A%3A"
    printed = "\n".join(github_annotations(verdicts(tmp_path, (name,), RULES.replace("near", rule))))
    assert len(printed.splitlines()) == 6
    read = [runner(line) for line in printed.splitlines()]
    assert [command[0] for command in read] == ["error"] * 4 + ["warning", "notice"]
    assert read[0][1] == {"file": "models/a b#c?.safetensors", "title": f"attnlaw: {rule}"}
    assert read[3][2] == f"{printable(name)}: {printable(name)}; it means this. {fix_text('non-finite')}"


def test_the_table_holds_no_command_of_a_runner(tmp_path):
    names = ("##[stop-commands]x", "a ##[add-mask]b", *HOSTILE)
    screen = Console(file=io.StringIO(), width=60, highlight=False)
    judged = replace(verdicts(tmp_path, names), model="model")
    show(Result.collect(VERB, [(CheckSettings(model="model"), judged)]), screen)
    lines = screen.file.getvalue().splitlines()
    assert any("## [stop-commands]" in line for line in lines)
    for line in lines:
        assert runner(line) is None
        assert "##[" not in line


def test_the_summary_of_a_job_is_added_to(tmp_path):
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    gate = verdicts(tmp_path)
    add_to_summary([gate], environment={"GITHUB_STEP_SUMMARY": str(path)})
    assert path.read_text() == f"before\n{markdown([gate])}\n"
    add_to_summary([gate], environment={})


# Markdown


class Tags(HTMLParser):
    """The tags, links and texts of rendered Markdown."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not attrs or tag in ("td", "th"), (tag, attrs)


def rendered(text: str) -> Tags:
    """GitHub's Markdown: CommonMark with tables, links that are not marked, and HTML as it stands."""
    parser = Tags()
    parser.feed(MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text))
    return parser


def test_markdown_is_a_headline_and_two_tables(tmp_path):
    page = rendered(markdown([verdicts(tmp_path)]))
    assert page.tags.count("h3") == 1
    assert page.tags.count("table") == 2
    assert page.tags.count("tr") == 2 + 6 + 2
    assert set(page.tags) <= {
        "h3",
        "p",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "br",
    }


def test_hostile_names_are_neither_markup_nor_links(tmp_path):
    plain, hostile = (
        rendered(markdown([verdicts(tmp_path, names)])).tags for names in (("a",) * len(HOSTILE), HOSTILE)
    )
    assert plain == hostile
    assert len(markdown([verdicts(tmp_path, HOSTILE)])) < 10_000


def test_a_code_span_gives_back_its_text():
    for text in ("a|b", "`", "``x`", "a`", "<b>", "[x](y)", "\\|*x*", "|www.x.org", "| <b> &amp;", "a  b"):
        row = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(
            f"| a |\n| --- |\n| {code(text)} |\n"
        )
        (cell,) = re.findall("<td><code>(.*)</code></td>", row)
        unescaped = (
            cell.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
        )
        assert unescaped == text.replace("\\|", "\\|")
