"""The answer of `attnlaw check`: whether the model passed, what is wrong with it, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnlaw.analysis.check.rules import is_at_least
from attnlaw.analysis.check.verdicts import FAILED, NOT_CHECKED_LEAD
from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.apply import (
    STATUS_OF_LEVEL,
    FindingGroup,
    group_findings,
    shorten,
)
from attnlaw.analysis.findings.detectors import DETECTORS
from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.estimate import Outcome
from attnlaw.core.result import Result
from attnlaw.verbs.typed import typed_command

MOST_LOCATIONS = 3  # places of a failed rule that the answer names
MOST_PROBLEMS = 3  # problems of a model that the answer names if there are several models
MOST_EXPLAINED = 3  # with more findings, only those that fail the gate have a remedy on the first screen
NO_RULES = "You gave no rules. attnlaw comes with three rule files: --rules release, export or fine-tune."
DIFF_TABLES = ("diff", "diff_tensors")


def answer(result: Result) -> Answer:
    """Return whether the models passed. If there is one model, each problem has a line with its cause and a
    remedy.
    """
    cases = [case for case in result if case.row()["status"] != Outcome.FAILED]
    if len(cases) == 1:
        return Answer((*case_lines(cases[0]), *general_lines(cases)), next_commands(result, cases))
    return Answer((*map(_short_line, cases), *general_lines(cases)), next_commands(result, cases))


def finding_groups(case: Result, known: bool = False) -> list[FindingGroup]:
    """Return the findings of one model, keyed by rule: new ones, or those that the baseline also has."""
    rows = case.tables["findings"].iter_rows(named=True) if "findings" in case.tables else ()
    return group_findings(row for row in rows if row["known"] == known)


def failed_rules(case: Result) -> list[dict[str, Any]]:
    """Return the rows of the failed rules, with the most serious level first."""
    rows = case.tables["verdicts"].iter_rows(named=True) if "verdicts" in case.tables else ()
    failed = [row for row in rows if row["outcome"] == FAILED]
    return sorted(failed, key=lambda row: -LEVELS.index(row["level"]))


def rule_text(rule: Mapping[str, Any]) -> str:
    if rule["failures"] and rule["selected"] > 1:
        return f"{rule['held']} of {rule['selected']} rows hold, expected {rule['asked']}"
    return str(rule["remark"])


def case_lines(case: Result, details: bool = False) -> Iterator[Line]:
    """Yield the headline, the failed rules and the findings of a model. `details` adds every remedy."""
    row, groups = case.row(), finding_groups(case)
    yield _headline(case)
    for rule in failed_rules(case):
        status = STATUS_OF_LEVEL[rule["level"]]
        level = "" if status else f"{rule['level'].capitalize()}: "
        places = rule["failures"] if rule["selected"] > 1 or not rule["selected"] else []
        worst = "; ".join(first_few([*map(shorten, places)], MOST_LOCATIONS))
        shown = (f"Worst: {worst}.",) if places else ()
        yield Line(f"{level}{rule['rule']}: {rule_text(rule)}", status, shown)
    for group in groups:
        brief = len(groups) > MOST_EXPLAINED and not is_at_least(group.level, row["fail_on"])
        yield replace(group.line, details=(group.reason,)) if brief and not details else group.line
    for group in finding_groups(case, known=True):
        yield Line(f"Known from the baseline and not counted: {group.title}")


def first_few(texts: Sequence[str], most: int) -> list[str]:
    """Return the first few texts, and how many more there are."""
    more = len(texts) - most
    return [*texts[:most], *([f"and {more} more"] if more > 0 else [])]


def general_lines(cases: Sequence[Result]) -> Iterator[Line]:
    """Yield lines that hold for every model: available rules, and what was not checked."""
    rows = [case.row() for case in cases]
    if all(row["rules"] is None for row in rows):
        yield Line(NO_RULES)
    for not_checked in dict.fromkeys(row["not_checked"] for row in rows if row["not_checked"]):
        yield Line(f"{NOT_CHECKED_LEAD} {not_checked}.")


def _headline(case: Result) -> Line:
    row = case.row()
    return Line(f"{row['headline']}.", AnswerStatus.OK if row["passed"] else AnswerStatus.ERROR)


def _short_line(case: Result) -> Line:
    headline = _headline(case)
    problems = [f"{rule['rule']}: {rule_text(rule)}" for rule in failed_rules(case)]
    problems += [group.title for group in finding_groups(case)]
    details = tuple(first_few(problems, MOST_PROBLEMS))
    return Line(f"{case.row()['model']}: {headline.text}", headline.status, details)


def next_commands(result: Result, cases: Sequence[Result]) -> dict[str, str]:
    """Return commands that explain a failure, or commands to try after success."""
    # The first model that failed has the most to look at.
    case = next((case for case in cases if not case.row()["passed"]), cases[0])
    row, rules, groups = case.row(), failed_rules(case), finding_groups(case)
    named = [group.rule for group in groups if group.rule in DETECTORS]
    command, audit = typed_command(result), typed_command(result, "audit")
    found_rules = {group.rule for each in cases for group in finding_groups(each)}
    commands: dict[str, str] = {}
    if named:
        commands[f"attnlaw check --explain {named[0]}"] = f"when attnlaw reports {named[0]}, and what to do"
    if row["base"] is not None and any(rule["of"] in DIFF_TABLES for rule in rules):
        base = shlex.quote(row["base"])
        diff = (typed_command(result, "diff") or "").replace(f" --base {base}", "")
        if diff:
            commands[diff.replace("diff", f"diff {base}", 1)] = "what changed, tensor by tensor"
    elif (rules or named) and audit and "non-finite" not in found_rules:  # an audit does not accept NaN
        commands[f"{audit} --out results"] = "interactive report of all matrices"
    hidden = len(groups) > MOST_EXPLAINED or any(group.count > 1 for group in groups)
    hidden = hidden or any(len(rule["failures"]) > MOST_LOCATIONS for rule in rules)
    if (hidden or len(cases) > 1) and command:
        commands[f"{command} --details"] = "every place, and what to do about it"
    if row["passed"] and command:
        if row["rules"] is None:
            commands[f"{command} --rules release"] = "let warnings fail the gate as well"
        commands[f"{command} --junit gate.xml"] = "a report that CI systems show"
    return commands
