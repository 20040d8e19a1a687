"""The page of models before training: what a person may want to know of each first, then charts and rows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from attnlaw.core.quantity import column_kinds
from attnlaw.core.settings import setting_fields
from attnlaw.render.charts.data import ChartData
from attnlaw.render.charts.labels import MOST_CASES, shared_settings, varying_settings
from attnlaw.render.pages.page import Section, cards_section, headline, quantity_section, rows_page

# Numbers of a card.
NUMBERS = ("rms", "cosine", "score_sd", "entropy", "logit_sd", "loss", "uniform_loss", "gradient_norm")


def init_page(source: ChartData, sections: Sequence[Section], note: str) -> str:
    """The page of one or several laws; of many there are no cards."""
    rows, verb = source.rows, source.verb
    table_section = quantity_section(verb, rows, several=False)
    cards = [_cards(source)] if rows.height <= MOST_CASES else []
    quantities = [
        *column_kinds(verb.quantities),
        *(name for table_spec in verb.tables for name in column_kinds(table_spec.columns)),
    ]
    lead = f"Before training, from config.json alone. {shared_settings(rows, quantities)} {note}"
    parts = [*cards, *sections, *([] if table_section is None else [table_section])]
    return rows_page(verb.title, lead.strip(), parts, rows, [verb])


def _cards(source: ChartData) -> Section:
    """A card for every law: its remarks, and its numbers with errors."""
    settings = varying_settings(source.rows, setting_fields(source.verb.settings)) or ["model"]
    cards = []
    for row in source.rows.rows(named=True):
        remarks = "".join(
            f'<p class="note">{escape(remark)}</p>' for remark in (row["remark"] or "").split("; ") if remark
        )
        name = source.value_labels.describe({setting: row[setting] for setting in settings})
        numbers = headline(source.verb, row, NUMBERS, errors=True)
        cards.append(f"<article><h3>{escape(name)}</h3>{remarks}{numbers}</article>")
    return cards_section("laws", "Remarks", "Remarks", cards)
