"""A lens in the terminal: what a low rank costs heads, what they do, what moves each token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlaw.core.estimate import Outcome
from attnlaw.core.result import Result
from attnlaw.render.terminal.console import column_table, print_message, print_table, sparkline

MAX_TOKENS = 32  # tokens
MAX_SENTENCES = 3  # of a rule
MAX_LETTERS = 12  # letters of a token


def show_case(result: Result, console: Console) -> None:
    """Print what was found of heads, then how exact the operator is and a line for each token."""
    row = result.row()
    console.print(Text(row["model"], style="bold"), soft_wrap=True)
    size = f"{row['layers']} layers, {row['tokens']} tokens of width {row['hidden_size']}"
    console.print(f"{row['family']}, {size}", style="dim")
    if row["median_rank_within"] is not None:
        _print_entrywise(result, console)
    if row["head_count"]:
        _print_heads(result, console)
    if "token_map" in result.tables:
        _print_operator(result, console)
    if row["remark"]:
        print_message(f"attnlaw: {row['remark']}")


def _print_entrywise(result: Result, console: Console) -> None:
    """Which rank keeps every weight within 0.01, then a line for each rank: medians over heads."""
    row, lines = result.row(), result.entrywise.rows(named=True)
    worst = max(lines, key=lambda line: line["rank_within"])
    console.print(
        f"every attention weight within 0.01: rank {row['median_rank_within']} in half of the heads, "
        f"{worst['rank_within']} in all (head {worst['layer']}.{worst['head']}), of {row['tokens']}",
        soft_wrap=True,
    )
    ranks = list(zip(*_group(lines, "layer", "head"), strict=True))
    cells = {
        "rank": [str(errors[0]["rank"]) for errors in ranks],
        "worst entry": [f"{median(error['largest'] for error in errors):.3g}" for errors in ranks],
        "of any head": [f"{max(error['largest'] for error in errors):.3g}" for errors in ranks],
        "tail/n": [f"{median(error['tail'] for error in errors):.3g}" for errors in ranks],
        "rms": [f"{median(error['rms'] for error in errors):.3g}" for errors in ranks],
        "worst/rms": [
            _median([error["largest"] / error["rms"] for error in errors if error["coherence"]])
            for errors in ranks
        ],
    }
    print_table(console, lambda left_out: column_table(cells, left_out), ("tail/n",))


def _print_heads(result: Result, console: Console) -> None:
    """How many heads are beyond the marks, the clearest sentences of every rule, a line for each layer."""
    row, heads = result.row(), result.heads
    console.print(
        f"{row['head_count']} heads: {row['heads_below_beta_2']} below β₂ {heads['beta_2'].max():.2f}, "
        f"{row['heads_above_beta_c']} above β_c {heads['beta_c'].max():.2f}"
    )
    for findings in _group(result.head_findings.rows(named=True), "rule"):
        count = f"{len(findings)} head{'s' if len(findings) > 1 else ''}"
        console.print(f"{findings[0]['rule']}: {count}", style="bold")
        for finding in findings[:MAX_SENTENCES]:
            console.print(Text(f"  {finding['sentence']}"), soft_wrap=True)
    layers = _group(heads.rows(named=True), "layer")
    print_table(console, lambda left_out: _table_by_layer(layers, left_out), ("logit/bound", "sink"))
    legend = "PR: directions; null: random heads as sharp; random: weights redrawn"
    console.print(Text(legend, style="dim"))


def _group(rows: Sequence[dict[str, Any]], *names: str) -> list[list[dict[str, Any]]]:
    """Return the rows that follow one another with the same values of some columns."""
    return [list(group) for _, group in groupby(rows, key=lambda row: [row[name] for name in names])]


def _table_by_layer(layers: Sequence[Sequence[dict[str, Any]]], left_out: Sequence[str]) -> Table:
    """Medians over the heads of each layer, beside the largest beta."""
    bounds = [
        [head["largest_logit"] / head["logit_bound"] for head in heads if head["logit_bound"]]
        for heads in layers
    ]
    cells = {
        "layer": [str(heads[0]["layer"]) for heads in layers],
        "β": [f"{median(head['beta'] for head in heads):.2f}" for heads in layers],
        "largest": [f"{max(head['beta'] for head in heads):.2f}" for heads in layers],
        "perplexity": [f"{median(head['perplexity'] for head in heads):.1f}" for heads in layers],
        "PR/null": [_median([head["participation_over_null"] for head in heads]) for heads in layers],
        "PR/random": [_median([head["participation_over_random"] for head in heads]) for heads in layers],
        "sink": [f"{median(head['largest_column_mean'] for head in heads):.0%}" for heads in layers],
        "logit": [f"{max(head['largest_logit'] for head in heads):.1f}" for heads in layers],
        "logit/bound": [f"{max(fractions):.2f}" if fractions else "–" for fractions in bounds],
    }
    return column_table(cells, left_out)


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.2f}" if known else "–"


def _print_operator(result: Result, console: Console) -> None:
    row = result.row()
    ended = "exact" if row["status"] == Outcome.DONE else row["status"]
    console.print(f"reconstruction error  {row['reconstruction_error']:.2e} ({ended})")
    console.print(f"offset |c| / |F(X)|   {row['offset_share']:.3g}")
    if row["singular_values"]:
        values = "  ".join(f"{value:.4g}" for value in row["singular_values"])
        console.print(f"singular values of T  {values}", soft_wrap=True)
    print_table(console, lambda left_out: _token_table(result, left_out), ("rollout",))
    if row["tokens"] > MAX_TOKENS:
        console.print(f"{row['tokens'] - MAX_TOKENS} more tokens; --out DIR draws all of them")
    if row["probes"] is not None:
        errors = result.token_map.select(pl.col("norm_error") / pl.col("norm").clip(1e-300)).to_series()
        spread = f"standard error up to {errors.max():.1%}"
        console.print(f"norms estimated from {row['probes']} probes a token, {spread}")


def _token_table(result: Result, left_out: Sequence[str]) -> Table:
    """One row for each token: what moves it, and what moves it most, by the operator and by rollout."""
    columns = {"moved by (operator)": "share", "rollout": "rollout"}
    maps = {title: name for title, name in columns.items() if title not in left_out}
    table = Table(box=None, pad_edge=False)
    for title in ("", "id", "token"):
        table.add_column(title, justify="left" if title == "token" else "right", no_wrap=True)
    for title in maps:
        table.add_column(title, no_wrap=True)
        table.add_column("most", no_wrap=True)
    tokens, moved = result.input_tokens, result.token_map.partition_by("output", maintain_order=True)
    for (place, number, label), inputs in zip(tokens[:MAX_TOKENS].iter_rows(), moved, strict=False):
        cells: list[str] = []
        for name in maps.values():
            shares = inputs[name].to_list()
            top = max(shares)
            cells.append(sparkline(shares, top=top) if tokens.height <= MAX_TOKENS else "")
            cells.append(f"{shares.index(top)} ({top:.0%})")
        table.add_row(str(place), str(number), Text(_shorten(label)), *cells)
    return table


def _shorten(label: str) -> str:
    return label if len(label) <= MAX_LETTERS else f"{label[: MAX_LETTERS - 1]}…"
