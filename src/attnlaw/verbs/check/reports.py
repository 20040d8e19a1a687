"""Write verdicts as reports for other tools: SARIF 2.1.0 (OASIS), JUnit XML, Markdown and annotations on
GitHub. Each has an entry for a model that could not be read, so that no earlier report passes for the one of
this run. Names in a checkpoint are hostile input: they are code spans in Markdown, and escaped in
annotations."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from attnlaw import __version__
from attnlaw.analysis.check.locations import LOCATION, Location, row_location_text
from attnlaw.analysis.check.rules import OFF, is_at_least, value_text
from attnlaw.analysis.check.verdicts import (
    FAILED,
    NOT_CHECKED_LEAD,
    PASSED,
    FailedRow,
    GateFinding,
    Verdict,
    Verdicts,
)
from attnlaw.analysis.findings.apply import fix_text, sentences
from attnlaw.core.errors import as_input_error, printable
from attnlaw.core.files import to_json, write_all
from attnlaw.render.terminal.console import print_message

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "attnlawRuleAndPlace/v1"


@dataclass(frozen=True)
class UnreadModel:
    """A model that could not be read, with the file to show in reports and the error as one line."""

    model: str
    location: str
    message: str


UNREADABLE = "unreadable-model"  # the name under which reports list such a model


def sarif(models: Sequence[Verdicts], unread: Sequence[UnreadModel] = ()) -> str:
    """Return a SARIF document with one run, which failed if a model could not be read."""
    rules: dict[str, tuple[str, str, dict[str, str]]] = {}  # level, text and further texts by name
    for model in models:
        rules |= _rules(model)
    if unread:
        rules[UNREADABLE] = "error", "The model could not be read, so nothing was checked.", {}
    ids = rule_ids(rules)
    results = [result for model in models for result in _results(model)]
    for model_error in unread:
        results.append(_result(model_error.location, UNREADABLE, "error", model_error.message, {}))
    order = {name: number for number, name in enumerate(rules)}
    for result in results:
        name = result["ruleId"]
        result |= {"ruleId": ids[name], "ruleIndex": order[name]}
    notes = [
        {
            "level": "error",
            "message": {"text": printable(model_error.message)},
            "locations": [{"physicalLocation": _physical(model_error.location)}],
        }
        for model_error in unread
    ]
    status = 1 if unread else max((model.status for model in models), default=0)
    invocation: dict[str, Any] = {"executionSuccessful": not unread, "exitCode": status}
    if notes:
        invocation["toolExecutionNotifications"] = notes
    described = [_rule(ids[name], name, *rule) for name, rule in rules.items()]
    driver = {"name": "attnlaw", "semanticVersion": _semantic(__version__), "rules": described}
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return to_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, ascii_only=True) + "\n"


def _semantic(version: str) -> str:
    """Return a version as SemVer writes it: 0.2.0.dev0 becomes 0.2.0-dev0."""
    return ".".join(version.split(".")[:3]) + "".join(f"-{part}" for part in version.split(".")[3:])


def rule_ids(names: Iterable[str]) -> dict[str, str]:
    """Return an identifier without spaces for the name of each rule.

    A name that is already such an identifier stays the same.

    If two names would get the same identifier, the second one ends with a hash of its name.

    >>> rule_ids(["near the base", "zero-rows", "100% <b>"])
    {'near the base': 'near-the-base', 'zero-rows': 'zero-rows', '100% <b>': '100-b'}
    >>> rule_ids(["zero rows", "zero-rows"])
    {'zero rows': 'zero-rows-7cae48', 'zero-rows': 'zero-rows'}
    """
    slugs = {name: re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") for name in names}
    counts = Counter(slugs.values())
    return {
        name: slug
        if name == slug or (slug and counts[slug] == 1)
        else f"{slug}-{hashlib.sha256(name.encode()).hexdigest()[:6]}".strip("-")
        for name, slug in slugs.items()
    }


def _rules(verdicts: Verdicts) -> dict[str, tuple[str, str, dict[str, str]]]:
    rules: dict[str, tuple[str, str, dict[str, str]]] = {
        rule.rule: (rule.level, rule.asked, {}) for rule in verdicts.rules if rule.level != OFF
    }
    levels = {finding.rule: finding.level for finding in verdicts.findings}
    for name, detector in verdicts.detectors.items():
        more = {"fullDescription": f"Reported when {detector.when}.", "help": sentences(detector.remedy)}
        rules[name] = levels.get(name, detector.level), sentences(detector.meaning), more
    return rules


def _rule(identifier: str, name: str, level: str, text: str, more: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": identifier,
        "name": printable(name),
        "shortDescription": {"text": printable(text)},
        **{key: {"text": further} for key, further in more.items()},
        "defaultConfiguration": {"level": level},
    }


def _results(verdicts: Verdicts) -> Iterator[dict[str, Any]]:
    for rule in verdicts.failed_rules:
        # Without a failing row, the result is about the model as a whole.
        for failure in rule.failures or (FailedRow({}),):
            message = f"{failure}, expected {rule.asked}" if rule.failures else str(rule)
            yield _result(verdicts.location, rule.rule, rule.level, message, failure.location)
    for finding in verdicts.findings:
        known = {"baselineState": "unchanged" if finding.known else "new"}
        state = {} if verdicts.baseline is None else known
        yield _result(verdicts.location, finding.rule, finding.level, str(finding), finding.location) | state


def _physical(file: str) -> dict[str, Any]:
    return {"artifactLocation": {"uri": relative_uri(file)}, "region": {"startLine": 1}}


def _result(file: str, rule: str, level: str, text: str, location: Location) -> dict[str, Any]:
    logical = {
        "fullyQualifiedName": row_location_text(location),
        "kind": "tensor" if "tensor" in location else "module",
    }
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": printable(text)},
        "locations": [{"physicalLocation": _physical(file), "logicalLocations": [logical]}],
        "partialFingerprints": {FINGERPRINT: fingerprint(rule, location)},
    }


def fingerprint(rule: str, location: Mapping[str, Any]) -> str:
    """Return a hash of a failure's rule and location, which does not depend on its value.

    >>> fingerprint("near", {"layer": 1, "head": 0}) == fingerprint("near", {"head": 0, "layer": 1})
    True
    """
    ordered = {name: location[name] for name in LOCATION if name in location}
    text = to_json([rule, ordered], None, ascii_only=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def relative_uri(path: str) -> str:
    """Return a path as a URI relative to the working directory. If it does not exist, return it unchanged.

    >>> relative_uri("no such model/a b.safetensors")
    'no%20such%20model/a%20b.safetensors'
    """
    return quote(os.fsencode(_relative(path)), safe="/._-~@")


def _relative(path: str) -> str:
    return Path(os.path.relpath(path) if os.path.lexists(path) else path).as_posix()


def junit(models: Sequence[Verdicts], unread: Sequence[UnreadModel] = ()) -> str:
    """Return a JUnit XML document. Lower levels and known findings are text. Unread models are errors."""
    root = ElementTree.Element("testsuites", name="attnlaw check")
    for model in models:
        rules = [_junit_rule(rule, model) for rule in model.rules]
        root.append(_suite(model.model, [*rules, *(_finding(name, model) for name in model.detectors)]))
    root.extend(_suite(model.model, [_unread_case(model)]) for model in unread)
    for count in ("tests", "failures", "skipped", "errors"):
        root.set(count, str(sum(int(suite.get(count, 0)) for suite in root)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(model: str, cases: Iterable[ElementTree.Element]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=printable(model))
    suite.extend(cases)
    suite.set("tests", str(len(suite)))
    for count, tag in (("failures", "failure"), ("skipped", "skipped"), ("errors", "error")):
        suite.set(count, str(sum(case.find(tag) is not None for case in suite)))
    return suite


def _unread_case(unread: UnreadModel) -> ElementTree.Element:
    case = _case(UNREADABLE, "check")
    ElementTree.SubElement(case, "error", message=printable(unread.message), type="error")
    return case


def _junit_rule(rule: Verdict, verdicts: Verdicts) -> ElementTree.Element:
    case = _case(rule.rule, rule.of)
    if rule.outcome == OFF:
        ElementTree.SubElement(case, "skipped", message="off")
    elif rule.outcome == FAILED:
        counts = is_at_least(rule.level, verdicts.fail_on)
        _add_message(case, counts, rule.level, str(rule), map(str, rule.failures))
    return case


def _finding(name: str, verdicts: Verdicts) -> ElementTree.Element:
    case, failures = _case(name, "findings"), verdicts.gate_failures
    findings = [finding for finding in verdicts.findings if finding.rule == name]
    for counts in (True, False):
        if some := [finding for finding in findings if (finding in failures) == counts]:
            words = [f"{finding} (known)" if finding.known else str(finding) for finding in some]
            more = f" (and {len(words) - 1} more)" if len(words) > 1 else ""
            _add_message(case, counts, some[0].level, f"{words[0]}{more}", [*words, fix_text(name)])
    return case


def _case(name: str, of: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", name=printable(name), classname=f"attnlaw.{of}")


def _add_message(
    case: ElementTree.Element, counts: bool, level: str, message: str, lines: Iterable[str]
) -> None:
    text = printable(f"{level}: {message}")
    body = "\n".join(printable(line) for line in lines if line)
    if counts:
        ElementTree.SubElement(case, "failure", message=text, type=level).text = body
    else:
        ElementTree.SubElement(case, "system-out").text = f"{text}\n{body}" if body else text


MOST_LOCATIONS = 5  # listed for one rule, because a job summary may have one megabyte
LONGEST = 300  # characters of a name that are shown


def markdown(models: Sequence[Verdicts], unread: Sequence[UnreadModel] = ()) -> str:
    """Return a Markdown document with a section for each model."""
    sections = [
        f"### ❌ Could not be read\n\n{code(model.model)}\n\n{code(model.message)}\n" for model in unread
    ]
    return "\n".join([*map(_section, models), *sections])


def code(text: str) -> str:
    """Return text as a Markdown code span that is safe even inside a table.

    A backtick would end the span, and a vertical bar would end the table cell. If the text has either, its
    special characters become character references.

    >>> print(code("a.weight"), code("a|b"))
    `a.weight` <code>a&#124;b</code>
    """
    plain = printable(text)
    plain = plain if len(plain) <= LONGEST else f"{plain[:LONGEST]} ..."
    if not plain or not re.search("[`|]", plain):
        return f"`{plain}`" if plain else ""
    return f"<code>{re.sub('[^A-Za-z0-9 ,]', lambda char: f'&#{ord(char[0])};', plain)}</code>"


def _section(verdicts: Verdicts) -> str:
    mark = "✅" if verdicts.passed else "❌"
    lines = [f"### {mark} {verdicts.headline}", "", code(verdicts.model), ""]
    if verdicts.not_checked:
        lines += [f"{NOT_CHECKED_LEAD} {verdicts.not_checked}.", ""]
    if verdicts.rules:
        rows = [_rule_row(rule, verdicts) for rule in verdicts.rules]
        lines += _table(("", "rule", "expected", "rows that hold", "found", "where it fails"), rows)
    if verdicts.findings:
        lines += _table(("", "finding", "where", "what it means", "what to do"), _finding_rows(verdicts))
    elif verdicts.detectors:
        lines += [f"No problems found ({verdicts.checks}).", ""]
    return "\n".join(lines)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [titles, ["---"] * len(titles), *rows]
    return [*(f"| {' | '.join(cells)} |" for cells in lines), ""]


def _rule_row(rule: Verdict, verdicts: Verdicts) -> list[str]:
    failed = f"❌ {rule.level}" if rule in verdicts.gate_failures else rule.level
    mark = {FAILED: failed, PASSED: "✅ passed", OFF: OFF}[rule.outcome]
    where = _locations([str(failure) for failure in rule.failures]) if rule.outcome == FAILED else ""
    reason = code(rule.remark) if rule.remark else where
    rows = "" if rule.outcome == OFF or rule.remark else f"{rule.held} of {rule.selected}"
    value = "" if rule.value is None else code(value_text(rule.value))
    return [mark, code(rule.rule), code(rule.asked), rows, value, reason]


def _finding_rows(verdicts: Verdicts) -> list[list[str]]:
    def kind(finding: GateFinding) -> tuple[bool, str]:
        return finding.known, finding.rule

    groups = [list(group) for _, group in groupby(sorted(verdicts.findings, key=kind), key=kind)]
    rows = []
    for group in sorted(groups, key=lambda group: (group[0].known, [*COMMANDS].index(group[0].level))):
        first = group[0]
        counts = not first.known and first in verdicts.gate_failures
        mark = f"❌ {first.level}" if counts else f"{first.level}{', known' if first.known else ''}"
        where = _locations([finding.location_and_value for finding in group])
        fix = fix_text(first.rule).removeprefix("Fix: ")
        rows.append([mark, code(first.rule), where, code(first.meaning), fix])
    return rows


def _locations(locations: Sequence[str]) -> str:
    more = len(locations) - MOST_LOCATIONS
    shown = [code(location) for location in locations[:MOST_LOCATIONS]]
    return "<br>".join([*shown, *([f"and {more} more"] if more > 0 else [])])


COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
SUMMARY = "GITHUB_STEP_SUMMARY"


def escaped(text: str, value: bool = False) -> str:
    r"""Escape text for a GitHub workflow command.

    If `value` is true, the text is the value of a property, in which colons and commas are special.

    >>> escaped("50%\n::error::x"), escaped("a:b,c", value=True)
    ('50%25%0A::error::x', 'a%3Ab%2Cc')
    """
    marks = {"%": "%25", "\r": "%0D", "\n": "%0A"} | ({":": "%3A", ",": "%2C"} if value else {})
    return "".join(marks.get(char, char) for char in text)


def github_annotations(verdicts: Verdicts) -> list[str]:
    """Return GitHub workflow commands, most severe first, because GitHub shows only ten of each level."""
    messages = {rule.rule: (rule.level, str(rule)) for rule in verdicts.failed_rules}
    by_rule: dict[str, list[GateFinding]] = {}
    for finding in verdicts.new_findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    for name, (first, *others) in by_rule.items():
        more = f" (and {len(others)} more)" if others else ""
        messages[name] = first.level, ". ".join(filter(None, (f"{first}{more}", fix_text(name))))
    order = sorted(messages.items(), key=lambda pair: list(COMMANDS).index(pair[1][0]))
    return [
        _annotation(level, verdicts.location, name, f"{printable(verdicts.model)}: {printable(text)}")
        for name, (level, text) in order
    ]


def unread_annotation(unread: UnreadModel) -> str:
    """Return a GitHub workflow command for a model that could not be read."""
    return _annotation("error", unread.location, UNREADABLE, printable(unread.message))


def _annotation(level: str, file: str, name: str, text: str) -> str:
    properties = {"file": printable(_relative(file)), "title": f"attnlaw: {printable(name)}"}
    written = ",".join(f"{key}={escaped(value, value=True)}" for key, value in properties.items())
    return f"::{COMMANDS[level]} {written}::{escaped(text)}"


def add_to_summary(
    models: Sequence[Verdicts],
    unread: Sequence[UnreadModel] = (),
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Append a Markdown report to GitHub's job summary, if the environment names its file."""
    if path := environment.get(SUMMARY):
        with (
            as_input_error(f"{path}: cannot be written", f"check ${SUMMARY}"),
            Path(path).open("a", encoding="utf-8") as file,
        ):
            file.write(f"{markdown(models, unread)}\n")


WRITERS = {"junit": junit, "sarif": sarif, "markdown": markdown}


def write_reports(
    models: Sequence[Verdicts], paths: Mapping[str, str | None], unread: Sequence[UnreadModel] = ()
) -> None:
    """Write a report in each requested format, or none if one of them cannot be written."""
    wanted = {form: path for form, path in paths.items() if path is not None}
    write_all({Path(path): WRITERS[form](models, unread).encode() for form, path in wanted.items()})
    for path in wanted.values():
        print_message(f"wrote {path}")


class CheckVerdicts(Verdicts):
    """The verdicts of `attnlaw check` on one model, which can be written as reports."""

    def to_junit(self) -> str:
        return junit([self])

    def to_sarif(self) -> str:
        return sarif([self])

    def to_markdown(self) -> str:
        return markdown([self])
