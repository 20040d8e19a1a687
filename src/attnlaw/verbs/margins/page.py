"""The HTML page of margins: the answer, a card for each model, charts, and all inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from attnlaw.core.result import Result
from attnlaw.core.tables import short_names, unique_short_names
from attnlaw.render.charts.figure import Figure
from attnlaw.render.describe_rows import failure_sentence
from attnlaw.render.pages.html import macros
from attnlaw.render.pages.page import Section, figure_section, headline_numbers, quantity_section, rows_page
from attnlaw.verbs.margins import D_MEANING
from attnlaw.verbs.margins.answer import answer, distance_text, page_commands

# Numbers on the card of a model, after D and its median.
CARD_QUANTITIES = ("inputs", "ties", "flat", "confidence", "total_kappa")


def page(result: Result, figures: Sequence[Figure]) -> str:
    """Return the HTML page of one or several models on the same inputs."""
    result = replace(result, rows=result.rows.drop("inputs_sha256"))  # a hash is useless to a reader
    rows = result.finished_rows
    short = short_names(rows["model"].unique(maintain_order=True))
    # The inputs with the smallest D come first: a small change would flip them.
    inputs = result.finished_table("margins").with_columns(pl.col("model").replace(short))
    listed = inputs.sort("distance", nulls_last=True).drop("case")
    counts = " or ".join(str(count) for count in rows["inputs"].unique(maintain_order=True))
    names = f"{', '.join(short.values())} on {counts} inputs without labels."
    sections = [
        _cards_section(result, rows),
        figure_section("part-1", "Figures", figures),
        quantity_section(result.verb, rows),
    ]
    lead = [names, D_MEANING, failure_sentence(result.rows)]
    said = replace(answer(result), next_commands=page_commands([*short]))
    return rows_page(result.verb.title, lead, sections, listed, [result.verb], said)


def _cards_section(result: Result, rows: pl.DataFrame) -> Section:
    names = unique_short_names(rows["model"])
    cards = [
        {
            "model": row["model"],
            "short": short,
            "distance": None if row["geometric_mean"] is None else distance_text(row),
            "median": [row[name] for name in ("median", "median_low", "median_high")],
            "numbers": headline_numbers(result.verb, row, CARD_QUANTITIES),
        }
        for short, row in zip(names, rows.iter_rows(named=True), strict=True)
    ]
    return Section("models", "D of each model", macros("verbs/margins/page.html").models(cards), "Models")
