"""Verdicts as JUnit XML: a suite for each model, a case for each rule and for each finding looked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from attnlaw.base.errors import printable
from attnlaw.gating.levels import OFF, reaches
from attnlaw.gating.verdicts import FAILED, Found, Verdict, Verdicts


def junit(models: Sequence[Verdicts]) -> str:
    """The XML text. What counts is a failure; what does not (a lower level, known) is printed by its case."""
    root = ElementTree.Element("testsuites", name="attnlaw check")
    for one in models:
        root.append(_suite(one))
    for count in ("tests", "failures", "skipped", "errors"):
        root.set(count, str(sum(int(suite.get(count, 0)) for suite in root)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(verdicts: Verdicts) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=printable(verdicts.model))
    for rule in verdicts.rules:
        suite.append(_rule(rule, verdicts))
    for name in verdicts.looked_for:
        suite.append(_finding(name, [one for one in verdicts.findings if one.rule == name], verdicts))
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
        counts = reaches(rule.level, verdicts.fail_on)
        _tell(case, counts, rule.level, str(rule), map(str, rule.failures))
    return case


def _finding(name: str, found: Sequence[Found], verdicts: Verdicts) -> ElementTree.Element:
    case = _case(name, "findings")
    counted = [one for one in found if one in verdicts.counted]
    for some, counts in ((counted, True), ([one for one in found if one not in counted], False)):
        if some:
            words = [f"{one} (known)" if one.known else str(one) for one in some]
            _tell(case, counts, some[0].level, f"found {len(some)} times: {words[0]}", words)
    return case


def _case(name: str, of: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", name=printable(name), classname=f"attnlaw.{of}")


def _tell(case: ElementTree.Element, counts: bool, level: str, message: str, lines: Iterable[str]) -> None:
    text = printable(f"{level}: {message}")
    body = "\n".join(map(printable, lines))
    if counts:
        ElementTree.SubElement(case, "failure", message=text, type=level).text = body
    else:
        ElementTree.SubElement(case, "system-out").text = f"{text}\n{body}" if body else text
