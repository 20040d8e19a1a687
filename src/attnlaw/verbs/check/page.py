"""The page of a gate: the answer, every problem with its place and a remedy, and every rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from attnlaw.analysis.check.rules import is_at_least
from attnlaw.analysis.check.verdicts import FAILED
from attnlaw.core.result import Result
from attnlaw.core.tables import short_names
from attnlaw.render.charts.figure import Figure
from attnlaw.render.describe_rows import capital, failure_sentence
from attnlaw.render.model_names import model_names
from attnlaw.render.pages.html import macros
from attnlaw.render.pages.notebook import frame_html
from attnlaw.render.pages.page import Part, Section, results_page, rows_page
from attnlaw.verbs.check.answer import answer, finding_groups, first_few

MOST_LINES, MOST_LOCATIONS = 50, 8  # lines of a table, and places of a rule, that the page lists
MODEL_HEAD = ("model", "Model that was checked")
PROBLEM_HEADS = (
    ("", "Level: an error fails the gate, a warning if the rule file says so, a note never"),
    ("finding", "Name of the check that found the problem. Use it with --explain and in a rule file"),
    (
        "where, and how much",
        "Place in the model or tensor of the file, with the measured value and its limit",
    ),
    ("what it means", "What was found, and its likely cause"),
    ("what to do", "Remedy"),
)
RULE_HEADS = (
    ("", "Result of the rule"),
    ("rule", "Name in the rule file"),
    ("table", "Table whose rows the rule judges"),
    ("expected", "Condition that the rule sets"),
    ("rows that hold", "Judged rows that meet the condition"),
    ("found", "Value of the worst row, or the one number of all rows"),
    ("where it fails", "Places that do not meet the condition, the worst first"),
)
# Columns of findings and of rules that a notebook shows.
LOCATION = ("layer", "stack", "kind", "head", "expert", "tensor")
FINDING_COLUMNS = ("model", "level", "rule", *LOCATION, "value", "threshold", "meaning", "known")
RULE_COLUMNS = ("model", "outcome", "rule", "asked", "selected", "held", "value")


def page(result: Result, figures: Sequence[Figure]) -> str:
    """Return the HTML page about one or several checked models."""
    if not {"verdicts", "findings"} <= result.tables.keys():  # a study without its tables
        return results_page([Part([result], figures)], answer=answer(result))
    rows = result.finished_rows
    findings, verdicts = result.finished_table("findings"), result.finished_table("verdicts")
    names = dict(enumerate(short_names(model_names(result)).values())) if len(result) > 1 else {}
    failed = int((~rows["passed"]).sum())
    title = f"Gate: {failed} of {rows.height} models failed"
    if rows.height == 1:
        title = "Gate failed" if failed else "Gate passed"
    lead = [", ".join(rows["model"]), failure_sentence(result.rows)]
    sections = [_problems(result, names), _rules(result, verdicts, names)]
    listed = findings if findings.height else verdicts if verdicts.height else rows
    return rows_page(title, lead, sections, listed.drop("case"), [result.verb], answer(result))


def _problems(result: Result, names: dict[int, str]) -> Section | None:
    lines = []
    for number, case in enumerate(result):
        for known in (False, True):
            for group in finding_groups(case, known):
                places = first_few(group.places, MOST_LOCATIONS)
                remedy = group.fix.removeprefix("Fix: ")
                cells = [group.rule, places, group.reason, capital(remedy)]
                model = [names[number]] if names else []
                lines.append((f"{group.level.upper()}{', known' if known else ''}", [*model, *cells]))
    if not lines:
        return None
    lead = "Problems that attnlaw found in the weights."
    if any(mark.endswith("known") for mark, _ in lines):
        lead += " Known ones are also in the baseline and do not count."
    return _listing("problems", "Problems", lead, _heads(PROBLEM_HEADS, names), lines, "findings.parquet")


def _rules(result: Result, verdicts: pl.DataFrame, names: dict[int, str]) -> Section | None:
    if not verdicts.height:
        return None
    fail_on = dict(enumerate(result.rows["fail_on"]))
    values = result.finished_table("verdict_values")["found"]
    lines = []
    for row, value in zip(verdicts.iter_rows(named=True), values, strict=True):
        failed = row["outcome"] == FAILED
        counts = failed and is_at_least(row["level"], fail_on[row["case"]])
        mark = row["outcome"].upper() if counts or not failed else f"{FAILED.upper()} ({row['level']})"
        places = first_few(row["failures"], MOST_LOCATIONS)
        cells: list[Any] = [
            *([names[row["case"]]] if names else []),
            row["rule"],
            row["of"],
            row["asked"],
            f"{row['held']} of {row['selected']}" if row["selected"] else "",
            value or "",
            places or ([row["remark"]] if failed else ""),
        ]
        lines.append((mark, cells))
    lead = (
        "Results of the rule file. The gate fails if a rule of the chosen level, or of a higher one, fails."
    )
    return _listing("rules", "Rules", lead, _heads(RULE_HEADS, names), lines, "verdicts.parquet")


def _listing(
    anchor: str, title: str, lead: str, heads: list[tuple[str, str]], lines: list[Any], file: str
) -> Section:
    rest = len(lines) - MOST_LINES
    body = macros("verbs/check/page.html").listing(lead, heads, lines[:MOST_LINES], rest, file)
    return Section(anchor, title, body)


def _heads(heads: Sequence[tuple[str, str]], names: dict[int, str]) -> list[tuple[str, str]]:
    return [heads[0], *([MODEL_HEAD] if names else []), *heads[1:]]


def notebook_html(result: Result) -> Markup:
    """Return the HTML that a notebook shows: the answer, then the findings and the rules as tables."""
    html: Markup = macros("notebook.html").answer(answer(result).lines)
    for name, columns in (("findings", FINDING_COLUMNS), ("verdicts", RULE_COLUMNS)):
        table = result.finished_table(name)
        html += frame_html(table, columns) if table.height else Markup()
    return html
