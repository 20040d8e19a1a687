"""The page of random attention: what the screen says about each layer, then figures, quantities and rows."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from attnlaw.core.result import Result
from attnlaw.render.charts.figure import Figure
from attnlaw.render.describe_rows import shared_settings
from attnlaw.render.pages.html import macros
from attnlaw.render.pages.page import Part, Section, result_columns, verb_page
from attnlaw.verbs.attention.verdict import head_line, verdict_lines


def page(result: Result, figures: Sequence[Figure]) -> str:
    """Return the HTML page of one or several layers."""
    part = Part([result], figures)
    rows = part.listed_rows
    sentences = [
        f"{rows.height} rows, and the figures that they allow.",
        shared_settings(rows, result_columns([result.verb])),
    ]
    return verb_page(result, figures, sentences, [_verdicts(result)], rows)


def _verdicts(result: Result) -> Section:
    """Return the section that says, for each layer, whether the draws follow the law."""
    notes = macros("sections.html").notes
    body = Markup("")
    for row in result.finished_rows.iter_rows(named=True):
        sentence, warning = verdict_lines(row)
        body += notes([f"{head_line(row)}. {sentence}"])
        body += notes([warning], "note warning") if warning else ""
    return Section("verdicts", "Does the law hold?", body, "Verdicts")
