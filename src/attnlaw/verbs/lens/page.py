"""The page of a lens: what was found of heads, the input itself, maps of heads and tokens, all rows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any

import polars as pl

from attnlaw.core.tables import short_names
from attnlaw.render.charts.data import ChartData
from attnlaw.render.pages.page import Section, cards_section, headline, quantity_section, rows_page
from attnlaw.render.pages.section import section_html

MAX_SENTENCES = 6  # of a rule
INPUT_NOTICE = "This page contains the input: who has the page has the text."
# Columns of heads that the page's table shows first; the download has all.
FIRST_COLUMNS = (
    *("model", "layer", "head", "beta", "sharpness", "perplexity", "participation_over_null"),
    *("participation_over_random", "largest_column_mean", "sink_token", "top_column_rows", "top_offset"),
    *("top_offset_rows", "largest_logit", "logit_bound", "spread_over_typical"),
)
# Numbers of a card.
CARD_QUANTITIES = (
    "head_count",
    "median_beta",
    "heads_below_beta_2",
    "heads_above_beta_c",
    "reconstruction_error",
)


def lens_page(source: ChartData, sections: Sequence[Section], note: str) -> str:
    """The page of one input through one or several models."""
    names = list(source.rows["model"])
    short = short_names(names)
    tokens = ", ".join(str(count) for count in dict.fromkeys(source.rows["tokens"]))
    lead = (
        f"{', '.join(short[name] for name in names)} on one input of {tokens} tokens. {INPUT_NOTICE} {note}"
    )
    quantities = quantity_section(source.verb, source.rows, several=False)
    parts = [
        _findings_section(source, short),
        _input_section(source, short),
        *sections,
        *([] if quantities is None else [quantities]),
    ]
    return rows_page(source.verb.title, lead.strip(), parts, _download_table(source), [source.verb])


def _download_table(source: ChartData) -> pl.DataFrame:
    """Heads, else pairs of tokens, else ranks, whichever were looked at; with their model if several."""
    names = ("heads", "token_map", "entrywise")
    table = next(source.tables[name] for name in names if source.tables[name].height)
    if source.rows.height > 1:
        models = source.rows.select(
            source.key, pl.col("model").replace_strict(short_names(source.rows["model"]))
        )
        table = table.join(models, on=source.key, maintain_order="left")
    first = [name for name in FIRST_COLUMNS if name in table.columns]
    return table.select(*first, *(name for name in table.columns if name not in (*first, source.key)))


def _findings_section(source: ChartData, short: dict[str, str]) -> Section:
    """A card for every model: its numbers, and the clearest heads of every rule that holds."""
    table = source.tables["head_findings"]
    cards = []
    for row in source.rows.iter_rows(named=True):
        findings = table.filter(pl.col(source.key) == row[source.key])
        facts = f"{row['family']} · {row['layers']} layers · hidden size {row['hidden_size']}"
        remark = f'<p class="note warning">{escape(row["remark"])}</p>' if row["remark"] else ""
        sentences = "" if row["head_count"] is None else _findings_html(findings)
        cards.append(
            f"<article><h3>{escape(short[row['model']])}</h3>"
            f'<p class="path">{escape(row["model"])}</p><p class="facts">{escape(facts)}</p>{remark}'
            f"{_rank_paragraph(row)}{sentences}{headline(source.verb, row, CARD_QUANTITIES)}</article>"
        )
    return cards_section("findings", "What heads do", "Findings", cards)


def _rank_paragraph(row: dict[str, Any]) -> str:
    """Which rank keeps every attention weight, where that was asked."""
    if row["median_rank_within"] is None:
        return ""
    return (
        f"<p>Rank <b>{row['median_rank_within']}</b> keeps every attention weight within 0.01 in half of the "
        f"heads, rank <b>{row['largest_rank_within']}</b> in all, of {row['tokens']} tokens.</p>"
    )


def _findings_html(findings: pl.DataFrame) -> str:
    items = []
    for rule, group in groupby(findings.iter_rows(named=True), key=lambda finding: str(finding["rule"])):
        rule_findings = list(group)
        spans = "".join(
            f"<span>{escape(finding['sentence'])}</span>" for finding in rule_findings[:MAX_SENTENCES]
        )
        rest = len(rule_findings) - MAX_SENTENCES
        more = f"<span>and {rest} more in head_findings.parquet</span>" if rest > 0 else ""
        count = f"{len(rule_findings)} head{'s' if len(rule_findings) > 1 else ''}"
        means = escape(rule_findings[0]["meaning"])
        items.append(f'<li class="finding"><b>{escape(rule)}, {count}</b>: {means}{spans}{more}</li>')
    return f'<ul class="findings">{"".join(items)}</ul>' if items else "<p>No rule holds for any head.</p>"


def _input_section(source: ChartData, short: dict[str, str]) -> Section:
    """The tokens of the input as each model reads them."""
    table = source.tables["tokens"]
    blocks = []
    for row in source.rows.iter_rows(named=True):
        token_rows = table.filter(pl.col(source.key) == row[source.key])
        title = f"<h3>{escape(short[row['model']])}</h3>" if source.rows.height > 1 else ""
        tokens = "".join(map(_token_html, token_rows.rows(named=True)))
        blocks.append(f'<div class="card">{title}<p class="tokens">{tokens}</p></div>')
    lead = f'<p class="lead">{escape(INPUT_NOTICE)} Position and id are told under the pointer.</p>'
    return Section("input", "Input", section_html("input", "The input", lead, *blocks))


def _token_html(row: dict[str, Any]) -> str:
    return f'<span title="{row["position"]} · id {row["id"]}">{escape(row["token"])}</span>'
