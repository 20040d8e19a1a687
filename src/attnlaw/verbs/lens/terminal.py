"""Print a lens in the terminal: what a low rank costs heads, what heads do, and what moves each token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import Outcome
from attnlaw.render.terminal.console import Column, number_columns, print_message, print_table, sparkline

if TYPE_CHECKING:
    from attnlaw import LensResult

MAX_TOKENS = 32
MAX_SENTENCES = 3  # for each kind of remark
MAX_LETTERS = 12  # number of letters of a token that are printed
# Titles of table columns, each with the column of the data and its number format.
ENTRYWISE = {
    "rank": ("rank", ".0f"),
    "worst entry": ("largest", ".3g"),
    "of any head": ("most", ".3g"),
    "tail/n": ("tail", ".3g"),
    "rms": ("rms", ".3g"),
    "worst/rms": ("ratio", ".2f"),
}
HEADS = {
    "layer": ("layer", ".0f"),
    "β": ("beta", ".2f"),
    "largest": ("most", ".2f"),
    "perplexity": ("perplexity", ".1f"),
    "PR/null": ("participation_over_null", ".2f"),
    "PR/random": ("participation_over_random", ".2f"),
    "sink": ("largest_column_mean", ".0%"),
    "logit": ("largest_logit", ".1f"),
    "logit/bound": ("fraction", ".2f"),
}


def show_case(result: LensResult, console: Console, details: bool = False) -> None:
    """Print what heads do, how exact the operator is, and a line for each token."""
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


def _print_entrywise(result: LensResult, console: Console) -> None:
    row, lines = result.row(), result.entrywise
    worst = lines.sort("rank_within", descending=True, maintain_order=True).row(0, named=True)
    console.print(
        f"every attention weight within 0.01: rank {row['median_rank_within']} in half of the heads, "
        f"{worst['rank_within']} in all (head {worst['layer']}.{worst['head']}), of {row['tokens']}",
        soft_wrap=True,
    )
    ratio = (pl.col("largest") / pl.col("rms")).filter(pl.col("coherence") != 0)
    ranks = lines.group_by("rank", maintain_order=True).agg(
        pl.col("largest", "tail", "rms").median(), most=pl.col("largest").max(), ratio=ratio.median()
    )
    print_table(console, number_columns(ranks, ENTRYWISE), ("tail/n",))


def _print_heads(result: LensResult, console: Console) -> None:
    row = result.row()
    beta_2, beta_c = result.heads.select(pl.max("beta_2", "beta_c")).row(0)
    console.print(
        f"{row['head_count']} heads: {row['heads_below_beta_2']} below β₂ {beta_2:.2f}, "
        f"{row['heads_above_beta_c']} above β_c {beta_c:.2f}"
    )
    for (rule,), findings in result.head_findings.group_by("rule", maintain_order=True):
        count = f"{findings.height} head{'s' if findings.height > 1 else ''}"
        console.print(f"{rule}: {count}", style="bold")
        for sentence in findings["sentence"].head(MAX_SENTENCES):
            console.print(Text(f"  {sentence}"), soft_wrap=True)
    fractions = (pl.col("largest_logit") / pl.col("logit_bound")).filter(pl.col("logit_bound") != 0)
    medians = ("beta", "perplexity", "participation_over_null", "participation_over_random")
    layers = result.heads.group_by("layer", maintain_order=True).agg(
        pl.col(*medians, "largest_column_mean").median(),
        pl.col("largest_logit").max(),
        most=pl.col("beta").max(),
        fraction=fractions.max(),
    )
    print_table(console, number_columns(layers, HEADS), ("logit/bound", "sink"))
    legend = "PR: directions; null: random heads as sharp; random: weights redrawn"
    console.print(Text(legend, style="dim"))


def _print_operator(result: LensResult, console: Console) -> None:
    row = result.row()
    ended = "exact" if row["status"] == Outcome.DONE else row["status"]
    console.print(f"reconstruction error  {row['reconstruction_error']:.2e} ({ended})")
    console.print(f"offset |c| / |F(X)|   {row['offset_share']:.3g}")
    if row["singular_values"]:
        values = "  ".join(f"{value:.4g}" for value in row["singular_values"])
        console.print(f"singular values of T  {values}", soft_wrap=True)
    print_table(console, _token_columns(result), ("rollout",))
    if row["tokens"] > MAX_TOKENS:
        console.print(f"{row['tokens'] - MAX_TOKENS} more tokens; --out DIR draws all of them")
    if row["probes"] is not None:
        errors = pl.col("norm_error") / pl.col("norm").clip(1e-300)
        spread = f"standard error up to {result.token_map.select(errors.max()).item():.1%}"
        console.print(f"norms estimated from {row['probes']} probes a token, {spread}")


def _token_columns(result: LensResult) -> list[Column]:
    tokens, moved = result.input_tokens, result.token_map.partition_by("output", maintain_order=True)
    shown = tokens[:MAX_TOKENS]
    columns = [
        Column("", [str(place) for place in shown["position"]]),
        Column("id", [str(number) for number in shown["id"]]),
        Column("token", [_shorten(label) for label in shown["token"]], is_text=True),
    ]
    for title, name in (("moved by (operator)", "share"), ("rollout", "rollout")):
        shares = [inputs[name].to_list() for inputs in moved[:MAX_TOKENS]]
        lines = [sparkline(row, max(row)) if tokens.height <= MAX_TOKENS else "" for row in shares]
        most = [f"{row.index(max(row))} ({max(row):.0%})" for row in shares]
        columns += [Column(title, lines, is_text=True), Column("most", most, is_text=True, name=title)]
    return columns


def _shorten(label: str) -> str:
    return label if len(label) <= MAX_LETTERS else f"{label[: MAX_LETTERS - 1]}…"
