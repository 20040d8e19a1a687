"""The page of `init`: cards with remarks and numbers, then charts and rows."""

from __future__ import annotations

from collections.abc import Sequence

from attnlaw.core.result import Result
from attnlaw.core.settings import setting_fields
from attnlaw.render.charts.figure import Figure
from attnlaw.render.describe_rows import MOST_CASES, ValueLabels, shared_settings, varying_settings
from attnlaw.render.pages.html import macros
from attnlaw.render.pages.page import Section, headline_numbers, result_columns, verb_page

# The numbers that a card shows.
NUMBERS = ("rms", "cosine", "score_sd", "entropy", "logit_sd", "loss", "uniform_loss", "gradient_norm")


def page(result: Result, figures: Sequence[Figure]) -> str:
    """Return the HTML page of one or several laws. If there are many laws, the page has no cards."""
    rows = result.finished_rows
    lead = ["Before training, from config.json alone.", shared_settings(rows, result_columns([result.verb]))]
    sections = [_remarks(result)] if rows.height <= MOST_CASES else []
    return verb_page(result, figures, lead, sections, rows)


def _remarks(result: Result) -> Section:
    """Return a section with a card for every law. A card has remarks, and numbers with their errors."""
    rows, labels = result.finished_rows, ValueLabels(result.verb, result.rows)
    settings = varying_settings(rows, setting_fields(result.verb.settings)) or ["model"]
    cards = [
        {
            "name": labels.describe({setting: row[setting] for setting in settings}),
            "remarks": [remark for remark in (row["remark"] or "").split("; ") if remark],
            "numbers": headline_numbers(result.verb, row, NUMBERS, errors=True),
        }
        for row in rows.iter_rows(named=True)
    ]
    return Section("laws", "Remarks", macros("verbs/init/page.html").remarks(cards))
