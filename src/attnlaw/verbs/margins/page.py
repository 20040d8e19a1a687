"""The page of margins: the sentence that ranks first, then a card for each model, charts, all inputs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import exp
from typing import Any

import polars as pl

from attnlaw.core.estimate import format_with_error
from attnlaw.core.tables import short_names
from attnlaw.render.charts.data import ChartData
from attnlaw.render.pages.page import Section, cards_section, headline, quantity_section, rows_page
from attnlaw.verbs.margins import D_MEANING

# Numbers of a card, after D and its median.
CARD_QUANTITIES = ("inputs", "ties", "flat", "confidence", "total_kappa")


def margins_page(source: ChartData, sections: Sequence[Section], note: str) -> str:
    """The page of one or several models on the same inputs."""
    short = short_names(source.rows["model"].to_list())
    rows = source.rows.rows(named=True)
    lead = " ".join(_sentences(rows, short, source))
    quantities = quantity_section(source.verb, source.rows.drop("inputs_sha256"), several=False)
    parts = [_cards_section(rows, short, source), *sections, *([] if quantities is None else [quantities])]
    return rows_page(
        source.verb.title, f"{lead} {note}".strip(), parts, _download_table(source, short), [source.verb]
    )


def _sentences(rows: Sequence[dict[str, Any]], short: dict[str, str], source: ChartData) -> list[str]:
    """What the numbers say: that they establish nothing, or pairs of models, or the number of one."""
    measured = [row for row in rows if row["geometric_mean"] is not None]
    sentences = [_comparison_sentence(row, short) for row in measured if row["comparison"] is not None]
    if not sentences and measured:
        sentences = [
            f"{short[row['model']]} has {_distance(row)} on {row['inputs']} inputs." for row in measured
        ]
    extension = source.quantity("extension")
    if extension is not None and any(row["extension"] for row in measured):
        sentences = [f"{extension.description[0].upper()}{extension.description[1:]}.", *sentences]
    return [*sentences, f"D {D_MEANING}."]


def _comparison_sentence(row: dict[str, Any], short: dict[str, str]) -> str:
    """One model beside the first, with the error of their difference."""
    names = f"{short[row['model']]} against {short.get(row['compared_with'], row['compared_with'])}"
    if row["log_ratio"] is None:
        return f"{names}: {row['comparison']}."
    ratio = format_with_error(row["log_ratio"], row["log_ratio_error"])
    return f"{names}: {row['comparison']} (log ratio {ratio})."


def _distance(row: dict[str, Any]) -> str:
    """D with the factor of one standard error."""
    return f"D {row['geometric_mean']:.3g} (×/÷ {exp(row['mean_log_error'] or 0.0):.2f})"


def _cards_section(rows: Sequence[dict[str, Any]], short: dict[str, str], source: ChartData) -> Section:
    """A card for every model: D, its median and interval, what is to be known, its numbers."""
    cards = []
    for row in rows:
        remark = f'<p class="note warning">{escape(row["remark"])}</p>' if row["remark"] else ""
        path = f'<p class="path">{escape(row["model"])}</p>' if short[row["model"]] != row["model"] else ""
        cards.append(
            f"<article><h3>{escape(short[row['model']])}</h3>"
            f"{path}{_distance_paragraph(row)}{remark}{headline(source.verb, row, CARD_QUANTITIES)}</article>"
        )
    return cards_section("models", "D on these inputs", "D", cards)


def _distance_paragraph(row: dict[str, Any]) -> str:
    if row["geometric_mean"] is None:
        return ""
    median = f"median {row['median']:.3g} [{row['median_low']:.3g}, {row['median_high']:.3g}]"
    return f'<p class="answer">{escape(_distance(row))}</p><p class="facts">{escape(median)}</p>'


def _download_table(source: ChartData, short: dict[str, str]) -> pl.DataFrame:
    """All inputs, smallest D first: those that a small change would flip."""
    table = source.tables["margins"]
    named = table.with_columns(pl.col("model").replace_strict(short))
    return named.sort("distance", nulls_last=True).drop(source.key)
