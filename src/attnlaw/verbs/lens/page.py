"""The HTML page of a lens: the answer, the input, maps of heads and tokens, remarks, and all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from attnlaw.core.tables import unique_short_names
from attnlaw.core.words import count_of
from attnlaw.render.charts.figure import Figure
from attnlaw.render.describe_rows import failure_sentence
from attnlaw.render.pages.html import macros
from attnlaw.render.pages.page import Section, figure_section, headline_numbers, quantity_section, rows_page
from attnlaw.verbs.lens.answer import answer, page_commands

if TYPE_CHECKING:
    from attnlaw import LensResult

MAX_SENTENCES = 6  # for each kind of remark
INPUT_NOTICE = "This page contains your input; share it with care."
FIRST_FIGURES = ("head_attention", "lens_map")  # these come first; others follow in the order of the verb
# Columns that come first in the table of heads; the download has all columns.
FIRST_COLUMNS = (
    *("model", "layer", "head", "beta", "sharpness", "perplexity", "participation_over_null"),
    *("participation_over_random", "largest_column_mean", "sink_token", "top_column_rows", "top_offset"),
    *("top_offset_rows", "largest_logit", "logit_bound", "spread_over_typical"),
)
# Numbers on the card of a model.
CARD_QUANTITIES = (
    *("head_count", "median_beta", "heads_below_beta_2", "heads_above_beta_c", "median_rank_within"),
    *("largest_rank_within", "reconstruction_error"),
)


def page(result: LensResult, figures: Sequence[Figure]) -> str:
    """Return the HTML page of one input and one or several models."""
    rows = result.finished_rows
    names = rows.with_columns(short=pl.Series(unique_short_names(rows["model"]), dtype=pl.String))
    tokens = " or ".join(count_of(count, "token") for count in rows["tokens"].unique())
    lead = [
        f"{', '.join(names['short'])} on one input of {tokens}.",
        INPUT_NOTICE,
        failure_sentence(result.rows),
    ]
    first = [figure for name in FIRST_FIGURES for figure in figures if figure.name.startswith(name)]
    sections = [
        _input_section(result, names),
        figure_section("part-1", "Figures", [*first, *(figure for figure in figures if figure not in first)]),
        _heads_section(result, names),
        quantity_section(result.verb, rows),
    ]
    listed, verb = _listed_rows(result, names), result.verb
    said = replace(answer(result), next_commands=page_commands(rows.row(0, named=True)))
    return rows_page(verb.title, lead, sections, listed, [verb], said)


def _listed_rows(result: LensResult, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the first of heads, token pairs and ranks that was measured, with names of several models."""
    tables = [result.finished_table(name) for name in ("heads", "token_map", "entrywise")]
    table = next((table for table in tables if table.height), tables[0])
    if rows.height > 1:
        table = table.join(rows.select("case", model="short"), on="case", maintain_order="left")
    first = [name for name in FIRST_COLUMNS if name in table.columns]
    return table.select(*first, pl.exclude(*first, "case"))


def _heads_section(result: LensResult, rows: pl.DataFrame) -> Section:
    findings, cards = result.finished_table("head_findings"), []
    for row in rows.iter_rows(named=True):
        rules = findings.filter(case=row["case"]).group_by("rule", maintain_order=True)
        numbers = headline_numbers(result.verb, row, CARD_QUANTITIES)
        cards.append(
            row | {"numbers": numbers, "rules": [(rule, group.rows(named=True)) for (rule,), group in rules]}
        )
    body = macros("verbs/lens/page.html").findings(cards, MAX_SENTENCES)
    return Section("findings", "Heads and numbers", body, "Heads")


def _input_section(result: LensResult, rows: pl.DataFrame) -> Section:
    tokens = result.finished_table("input_tokens")
    inputs = [
        (name if rows.height > 1 else None, tokens.filter(pl.col("case") == case).rows(named=True))
        for case, name in rows.select("case", "short").iter_rows()
    ]
    return Section("input", "The input", macros("verbs/lens/page.html").inputs(inputs), "Input")
