"""Print the verdicts on a model in the terminal: the answer, a table of the rules, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from attnlaw.analysis.check.rule_file import nearest
from attnlaw.analysis.check.rules import is_at_least, value_text
from attnlaw.analysis.check.verdicts import FAILED
from attnlaw.analysis.findings.apply import sentences
from attnlaw.analysis.findings.detectors import DETECTORS
from attnlaw.core.errors import BadSetting, printable
from attnlaw.core.tables import short_names
from attnlaw.render.model_names import model_names
from attnlaw.render.terminal.console import Column, output, print_json, print_table
from attnlaw.render.terminal.screen import (
    print_definitions,
    print_hanging,
    print_lines,
    print_next,
    print_title,
)
from attnlaw.verbs.check import TABLES
from attnlaw.verbs.check.answer import answer, case_lines, failed_rules, finding_groups, general_lines

if TYPE_CHECKING:
    from attnlaw import CheckResult

EXPLAINED = ("name", "level", "threshold", "when", "meaning", "remedy")
GATE = {"gate": "all checks and rules together; the exit status is 3 if one fails"}
FOUND = {"found": "value of the worst row, or the one number of all rows"}
COUNTS = {"errors": "errors", "warnings": "warnings", "notes": "notes", "failed_rules": "failed rules"}
COUNT_MEANINGS = {
    "errors": "number of findings with the level error; the columns of warnings and notes count likewise",
    "failed rules": "number of rules in the rule file that do not hold",
}


def show_case(result: CheckResult, console: Console, details: bool = False) -> None:
    """Print the answer for one model and its rules. Text from its files cannot command a CI runner."""
    console.print()
    print_title(console, _harmless(result.row()["model"]))
    lines = [
        replace(line, text=_harmless(line.text), details=tuple(map(_harmless, line.details)))
        for line in case_lines(result, details)
    ]
    print_lines(console, tuple(lines))
    if result.verdicts.height:
        console.print()
        _show_rules(result, console, details)
    if details:
        _show_places(result, console)


def show_summary(result: CheckResult, console: Console, details: bool = False) -> None:
    """Print a line for each of several models, what its columns mean, and the next commands."""
    console.print()
    if result.verdicts.height:
        print_definitions(console, FOUND | column_meanings(result.verdicts.rows(named=True)))
        console.print()
    if len(result) > 1:
        rows = list(result.rows.iter_rows(named=True))
        names = short_names(model_names(result)).values()
        print_table(
            console,
            [
                Column("model", [_harmless(name) for name in names], is_text=True, wraps=True),
                Column("gate", ["passed" if row["passed"] else "failed" for row in rows], is_text=True),
                *(Column(title, [str(row[name]) for row in rows]) for name, title in COUNTS.items()),
            ],
        )
        console.print()
        print_definitions(console, COUNT_MEANINGS)
        console.print()
    print_definitions(console, GATE)
    print_lines(console, tuple(general_lines(list(result))))
    console.print()
    print_next(console, answer(result).next_commands)


def print_explanation(name: str, as_json: bool) -> None:
    """Print when a detector reports a finding, what the finding means, and what to do."""
    if name not in DETECTORS:
        raise BadSetting("explain", f"no such rule; {nearest(name, DETECTORS)}", name)
    detector = DETECTORS[name]
    if as_json:
        print_json({field: getattr(detector, field) for field in EXPLAINED})
        return
    threshold = "" if detector.threshold is None else f", threshold {value_text(detector.threshold)}"
    print_title(output, f"{detector.name}: {detector.level}{threshold}")
    texts = {"Reported when": detector.when, "Meaning": detector.meaning, "What to do": detector.remedy}
    print_definitions(output, {title: sentences(text) for title, text in texts.items()})


def _show_rules(result: CheckResult, console: Console, details: bool) -> None:
    rules, fail_on = result.verdicts.rows(named=True), result.row()["fail_on"]
    held = [f"{rule['held']} of {rule['selected']}" if rule["selected"] else "" for rule in rules]
    columns = [
        Column("", [_format_outcome(rule, fail_on) for rule in rules], is_text=True),
        Column("rule", [_harmless(rule["rule"]) for rule in rules], is_text=True),
        Column(
            "expected", [_harmless(rule["asked"]) for rule in rules], is_text=True, wraps=console.is_terminal
        ),
        Column("rows that hold", held),
        Column("found", [_harmless(value or "") for value in result.verdict_values["found"]]),
    ]
    print_table(console, columns, ("rows that hold", "expected"))


def column_meanings(rules: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the meanings of the columns to which rules refer, by name."""
    meanings = {}
    for rule in rules:
        # The condition ends before the share of rows, which is no column.
        words = str(rule["asked"]).partition(" in at least ")[0].split()
        for column in TABLES.get(rule["of"], ()):
            if column.name in words and column.description:
                meanings[column.name] = column.description
    return meanings


def _show_places(result: CheckResult, console: Console) -> None:
    for rule in failed_rules(result):
        _print_places(console, rule["rule"], rule["failures"])
    for known in (False, True):
        for group in finding_groups(result, known):
            pairs = zip(group.places, group.details, strict=True)
            lines = ["; ".join(filter(None, pair)) for pair in pairs]
            _print_places(console, group.rule, lines)


def _print_places(console: Console, name: str, places: Sequence[str]) -> None:
    if not places:
        return
    console.print()
    console.print(Text(_harmless(f"Every place of {name}:"), style="bold"), soft_wrap=True)
    for place in places:
        print_hanging(console, Text("  "), _harmless(place))


def _format_outcome(rule: Mapping[str, Any], fail_on: str) -> str:
    if rule["outcome"] != FAILED or is_at_least(rule["level"], fail_on):
        return str(rule["outcome"])
    return f"{FAILED} ({rule['level']})"


def _harmless(text: str) -> str:
    """Return text in which the marks that CI runners take for commands (`##[` and `::`) are broken up."""
    return printable(text).replace("##[", "## [").replace("::", ": :")
