"""The HTML page of margins: the sentence that ranks models, a card for each model, charts, and all inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from typing import Any

import polars as pl

from attnlaw.core.estimate import format_with_error
from attnlaw.core.result import Result
from attnlaw.core.tables import short_names
from attnlaw.render.charts.figure import Figure
from attnlaw.render.pages.html import macros
from attnlaw.render.pages.page import Section, headline_numbers, verb_page
from attnlaw.verbs.margins import D_MEANING

# Numbers on the card of a model, after D and its median.
CARD_QUANTITIES = ("inputs", "ties", "flat", "confidence", "total_kappa")


def page(result: Result, figures: Sequence[Figure]) -> str:
    """Return the HTML page of one or several models on the same inputs."""
    result = replace(result, rows=result.rows.drop("inputs_sha256"))  # a hash is useless to a reader
    rows = result.finished_rows
    short = short_names(rows["model"])
    # The inputs with the smallest D come first: a small change would flip them.
    inputs = result.finished_table("margins").with_columns(pl.col("model").replace(short))
    listed = inputs.sort("distance", nulls_last=True).drop("case")
    sections = [_cards_section(result, rows, short)]
    return verb_page(result, figures, _sentences(result, rows, short), sections, listed)


def _sentences(result: Result, rows: pl.DataFrame, short: dict[str, str]) -> list[str]:
    measured = [row for row in rows.iter_rows(named=True) if row["geometric_mean"] is not None]
    sentences = [_comparison_sentence(row, short) for row in measured if row["comparison"] is not None]
    if not sentences and measured:
        sentences = [
            f"{short[row['model']]} has {_distance(row)} on {row['inputs']} inputs." for row in measured
        ]
    if any(row["extension"] for row in measured):
        meaning = next(known.description for known in result.verb.quantities if known.name == "extension")
        sentences = [f"{meaning[0].upper()}{meaning[1:]}.", *sentences]
    return [*sentences, f"D {D_MEANING}."]


def _comparison_sentence(row: dict[str, Any], short: dict[str, str]) -> str:
    names = f"{short[row['model']]} against {short.get(row['compared_with'], row['compared_with'])}"
    if row["log_ratio"] is None:
        return f"{names}: {row['comparison']}."
    ratio = format_with_error(row["log_ratio"], row["log_ratio_error"])
    return f"{names}: {row['comparison']} (log ratio {ratio})."


def _distance(row: dict[str, Any]) -> str:
    """Format the geometric mean of D, with its standard error as a factor."""
    return f"D {row['geometric_mean']:.3g} (×/÷ {exp(row['mean_log_error'] or 0.0):.2f})"


def _cards_section(result: Result, rows: pl.DataFrame, short: dict[str, str]) -> Section:
    cards = [
        {
            "model": row["model"],
            "short": short[row["model"]],
            "distance": None if row["geometric_mean"] is None else _distance(row),
            "median": [row[name] for name in ("median", "median_low", "median_high")],
            "remark": row["remark"],
            "numbers": headline_numbers(result.verb, row, CARD_QUANTITIES),
        }
        for row in rows.iter_rows(named=True)
    ]
    return Section("models", "D on these inputs", macros("verbs/margins/page.html").models(cards), "D")
