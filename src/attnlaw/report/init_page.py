"""The page of models before training: what a person may want to know of each first, then charts and rows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from attnlaw.base.quantity import columns
from attnlaw.base.settings import declared
from attnlaw.report.labels import MOST_CASES, same, varied
from attnlaw.report.page import Section, cards_section, headline, meanings, rows_page
from attnlaw.report.source import Source

# Numbers of a card.
NUMBERS = ("rms", "cosine", "score_sd", "entropy", "logit_sd", "loss", "uniform_loss", "gradient_norm")


def init_page(source: Source, sections: Sequence[Section], note: str) -> str:
    """The page of one or several laws; of many there are no cards."""
    rows, verb = source.rows, source.verb
    found = meanings(verb, rows, several=False)
    cards = [_cards(source)] if rows.height <= MOST_CASES else []
    quantities = [*columns(verb.quantities), *(name for one in verb.tables for name in columns(one.columns))]
    lead = f"Before training, from config.json alone. {same(rows, quantities)} {note}"
    parts = [*cards, *sections, *([] if found is None else [found])]
    return rows_page(verb.title, lead.strip(), parts, rows, [verb])


def _cards(source: Source) -> Section:
    """A card for every law: its remarks, and its numbers with errors."""
    told = varied(source.rows, declared(source.verb.settings)) or ["model"]
    cards = []
    for row in source.rows.rows(named=True):
        remarks = "".join(
            f'<p class="note">{escape(one)}</p>' for one in (row["remark"] or "").split("; ") if one
        )
        name = source.names.told({setting: row[setting] for setting in told})
        numbers = headline(source.verb, row, NUMBERS, errors=True)
        cards.append(f"<article><h3>{escape(name)}</h3>{remarks}{numbers}</article>")
    return cards_section("laws", "Remarks", "Remarks", cards)
