"""Verdicts as Markdown, for a job's summary or a comment: the answer, then the rules, then the findings.

Whatever was not written by attnlaw stands in code spans: neither markup nor HTML nor links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from attnlaw.analysis.check.condition import value_text
from attnlaw.analysis.check.levels import OFF
from attnlaw.analysis.check.verdicts import FAILED, PASSED, GateFinding, Verdict, Verdicts
from attnlaw.core.errors import printable

MOST_PLACES = 5  # of one rule; a job's summary holds a megabyte
LONGEST = 300  # characters of a name


def markdown(models: Sequence[Verdicts]) -> str:
    """The Markdown text: a section for each model."""
    return "\n".join(_section(model) for model in models)


def code(text: str) -> str:
    r"""A code span that the text cannot leave, also inside a table.

    Backticks would end a span, and a bar ends a cell even there: with one of them all marks are references.

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
    answer = verdicts.headline[0].upper() + verdicts.headline[1:]
    lines = [f"### {mark} {answer}", "", code(verdicts.model), ""]
    if verdicts.rules:
        rows = [_rule_row(rule, verdicts) for rule in verdicts.rules]
        lines += _table(("", "rule", "asked for", "rows that hold", "found", "where it fails"), rows)
    if verdicts.findings:
        lines += _table(("", "finding", "where", "what it means"), _finding_rows(verdicts))
    elif verdicts.rules_for_findings:
        lines += [f"Nothing was found by the {len(verdicts.rules_for_findings)} rules for findings.", ""]
    return "\n".join(lines)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [titles, ["---"] * len(titles), *rows]
    return [*(f"| {' | '.join(cells)} |" for cells in lines), ""]


def _rule_row(rule: Verdict, verdicts: Verdicts) -> list[str]:
    failed = f"❌ {rule.level}" if rule in verdicts.gate_failures else rule.level
    mark = {FAILED: failed, PASSED: "✅ passed", OFF: OFF}[rule.outcome]
    where = _places([str(failure) for failure in rule.failures]) if rule.outcome == FAILED else ""
    reason = code(rule.remark) if rule.remark else where
    rows = "" if rule.outcome == OFF or rule.remark else f"{rule.held} of {rule.selected}"
    value = "" if rule.value is None else code(value_text(rule.value))
    return [mark, code(rule.rule), code(rule.asked), rows, value, reason]


def _finding_rows(verdicts: Verdicts) -> list[list[str]]:
    """A row for each rule that found something, known findings apart."""
    order = sorted(verdicts.findings, key=lambda finding: (finding.known, finding.rule))
    groups = {
        key: list(group) for key, group in groupby(order, key=lambda finding: (finding.known, finding.rule))
    }
    rows = []
    for (known, name), findings in sorted(groups.items(), key=lambda pair: _severity_rank(pair[1])):
        counts = not known and findings[0] in verdicts.gate_failures
        mark = f"❌ {findings[0].level}" if counts else f"{findings[0].level}{', known' if known else ''}"
        rows.append(
            [
                mark,
                code(name),
                _places([finding.place_and_value for finding in findings]),
                code(findings[0].meaning),
            ]
        )
    return rows


def _severity_rank(findings: Sequence[GateFinding]) -> tuple[bool, int]:
    return findings[0].known, ("error", "warning", "note").index(findings[0].level)


def _places(places: Sequence[str]) -> str:
    more = len(places) - MOST_PLACES
    shown = [code(place) for place in places[:MOST_PLACES]]
    return "<br>".join([*shown, *([f"and {more} more"] if more > 0 else [])])
