"""Verdicts as JUnit XML: a suite for each model, a case for each rule and for each finding looked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from attnlaw.analysis.check.levels import OFF, is_at_least
from attnlaw.analysis.check.verdicts import FAILED, GateFinding, Verdict, Verdicts
from attnlaw.core.errors import printable


def junit(models: Sequence[Verdicts]) -> str:
    """The XML text. What counts is a failure; what does not (a lower level, known) is printed by its case."""
    root = ElementTree.Element("testsuites", name="attnlaw check")
    for model in models:
        root.append(_suite(model))
    for count in ("tests", "failures", "skipped", "errors"):
        root.set(count, str(sum(int(suite.get(count, 0)) for suite in root)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(verdicts: Verdicts) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=printable(verdicts.model))
    for rule in verdicts.rules:
        suite.append(_rule(rule, verdicts))
    for name in verdicts.rules_for_findings:
        suite.append(
            _finding(name, [finding for finding in verdicts.findings if finding.rule == name], verdicts)
        )
    suite.set("tests", str(len(suite)))
    for count, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(count, str(sum(case.find(tag) is not None for case in suite)))
    suite.set("errors", "0")
    return suite


def _rule(rule: Verdict, verdicts: Verdicts) -> ElementTree.Element:
    case = _case(rule.rule, rule.of)
    if rule.outcome == OFF:
        ElementTree.SubElement(case, "skipped", message="off")
    elif rule.outcome == FAILED:
        counts = is_at_least(rule.level, verdicts.fail_on)
        _add_message(case, counts, rule.level, str(rule), map(str, rule.failures))
    return case


def _finding(name: str, findings: Sequence[GateFinding], verdicts: Verdicts) -> ElementTree.Element:
    case = _case(name, "findings")
    counted = [finding for finding in findings if finding in verdicts.gate_failures]
    for some, counts in (
        (counted, True),
        ([finding for finding in findings if finding not in counted], False),
    ):
        if some:
            words = [f"{finding} (known)" if finding.known else str(finding) for finding in some]
            _add_message(case, counts, some[0].level, f"found {len(some)} times: {words[0]}", words)
    return case


def _case(name: str, of: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", name=printable(name), classname=f"attnlaw.{of}")


def _add_message(
    case: ElementTree.Element, counts: bool, level: str, message: str, lines: Iterable[str]
) -> None:
    text = printable(f"{level}: {message}")
    body = "\n".join(map(printable, lines))
    if counts:
        ElementTree.SubElement(case, "failure", message=text, type=level).text = body
    else:
        ElementTree.SubElement(case, "system-out").text = f"{text}\n{body}" if body else text
