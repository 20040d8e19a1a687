"""The HTML that a notebook shows for a result: its quantities, or a table of several cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from attnlaw.core.answer import Answer
from attnlaw.core.estimate import Estimate, format_value
from attnlaw.core.result import Result
from attnlaw.core.words import short_number
from attnlaw.render.pages.html import macros

MOST_LINES = 20  # lines of a table that a notebook shows


def result_html(result: Result, answer: Answer | None = None) -> Markup:
    """Return HTML with the answer and the quantities of a single case, or a table of several cases."""
    lines = macros("notebook.html").answer(answer.lines if answer else ())
    return Markup(lines + (_case_html(result) if len(result) == 1 else _cases_html(result)))


def _case_html(result: Result) -> Markup:
    known = {
        name.replace("_", " "): "" if value is True else format_value(value)
        for name, value in result.settings().items()
        if value is not None and value is not False
    }
    settings = ", ".join(f"{name} {value}".strip() for name, value in known.items())
    values = result.values()
    rows = [
        (quantity.label, text, quantity.description)
        for quantity in result.verb.quantities
        if not quantity.hidden and (text := format_value(values[quantity.name]))
    ]
    html: Markup = macros("notebook.html").case(result.verb.title, settings, result.status_texts(), rows)
    return html


def _cases_html(result: Result) -> Markup:
    verb, values = result.verb, [result.values(case) for case in range(len(result))]
    columns = [
        (verb.label(name), [format_value(value) for value in result.rows[column]])
        for name, column in verb.setting_columns.items()
        if len({str(value) for value in result.rows[column]}) > 1
    ]
    for quantity in verb.quantities:
        cells = [_short_text(numbers[quantity.name]) for numbers in values]
        if quantity.in_summary and any(cells):
            columns.append((quantity.name.replace("_", " "), cells))
    head, rows = [title for title, _ in columns], list(zip(*(cells for _, cells in columns), strict=True))
    html: Markup = macros("notebook.html").cases(verb.title, len(result), head, rows)
    return html


def _short_text(value: Any) -> str:
    if isinstance(value, Estimate) and not value.error:
        value = value.value
    is_number = isinstance(value, float) and math.isfinite(value)
    return short_number(value) if is_number else format_value(value)


def frame_html(frame: pl.DataFrame, columns: Sequence[str]) -> Markup:
    """Return the first rows of a table as HTML. Columns without values are left out."""
    kept = [name for name in columns if name in frame.columns and frame[name].count()]
    rows = [[_short_text(value) for value in row] for row in frame.select(kept).head(MOST_LINES).iter_rows()]
    head = [name.replace("_", " ") for name in kept]
    html: Markup = macros("notebook.html").frame(head, rows, frame.height - MOST_LINES)
    return html
