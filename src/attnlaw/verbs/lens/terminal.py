"""Print a lens in the terminal: what stands out, then tables of layers, ranks and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import Outcome
from attnlaw.core.words import count_of, short_number
from attnlaw.render.terminal.console import Column, left_out, number_columns, print_table, sparkline
from attnlaw.render.terminal.screen import (
    print_answer,
    print_definitions,
    print_hanging,
    print_next,
    print_title,
    without,
)
from attnlaw.verbs.lens.answer import answer, is_causal, next_commands

if TYPE_CHECKING:
    from attnlaw import LensResult

MAX_TOKENS = 32  # lines of tokens with --details
FEW_TOKENS = 12  # lines of tokens without it
MAX_SENTENCES = 3  # for each kind of remark, with --details
MAX_LETTERS = 12  # number of letters of a token that are printed
# Titles of table columns, each with the column of the data and its number format.
HEADS = {
    "layer": ("layer", ".0f"),
    "sharpness\nβ": ("beta", ".2f"),
    "max\nβ": ("most", ".2f"),
    "tokens\nattended": ("perplexity", ".1f"),
    "\ndirections": ("participation_over_null", ".2f"),
    "largest\nshare": ("largest_column_mean", ".0%"),
    "max\nlogit": ("largest_logit", ".1f"),
    "% of\nbound": ("fraction", ".0%"),
}
DROPPABLE = ("over random", "% of bound", "largest share", "max β")
HEADS_DETAILS = {"over\nrandom": ("participation_over_random", ".2f")}
ENTRYWISE = {"rank": ("rank", ".0f"), "median\nhead": ("largest", ".3g"), "worst\nhead": ("most", ".3g")}
ENTRYWISE_DETAILS = {"tail / n": ("tail", ".3g"), "rms": ("rms", ".3g"), "worst / rms": ("ratio", ".2f")}
TOKEN_MEANINGS = {
    "shaped by": "a bar for each input token: how much it moves this output token",
    "exact": "computed from the whole network: attention, values, norms and feed-forward",
    "rollout": "computed from attention weights alone (attention rollout)",
    "most": "position of the input token with the largest share",
}
OPERATOR_MEANINGS = {
    "F(X)": "output of the network for this input; it equals T X + c, with a linear map T and an offset c "
    "that comes from biases",
}


def show_case(result: LensResult, console: Console, details: bool = False) -> None:
    """Print the main results for one model, and tables of its layers, of ranks, and of tokens."""
    row = result.row()
    heads = f" × {count_of(result.heads['head'].n_unique(), 'head')}" if row["head_count"] else ""
    facts = (
        f"{row['family']} · {count_of(row['tokens'], 'token')} · {count_of(row['layers'], 'layer')}{heads}"
    )
    print_title(console, row["model"], facts)
    console.print()
    print_answer(console, answer(result))
    if row["head_count"]:
        _print_heads(result, console, details)
    if row["median_rank_within"] is not None:
        _print_entrywise(result, console, details)
    if "token_map" in result.tables and (details or row["head_count"] is None):
        _print_tokens(result, console, MAX_TOKENS if details else FEW_TOKENS)
    if "token_map" in result.tables and details:
        _print_operator(result, console)


def show_summary(result: LensResult, console: Console, details: bool = False) -> None:
    """Print what the columns mean, and the commands to try next."""
    meanings = _head_meanings(result, details)
    if meanings:
        cases = [case for case in result if case.row()["head_count"]]
        hidden = [set(left_out(console, _head_columns(case, details), DROPPABLE)) for case in cases]
        names = set.intersection(*hidden)
        meanings = without(meanings, ("bound" if name == "% of bound" else name for name in names))
    meanings |= _rank_meanings(result, details)
    if "token_map" in result.tables and details:
        meanings |= OPERATOR_MEANINGS
    if "token_map" in result.tables and (details or result.rows["head_count"].null_count()):
        meanings |= TOKEN_MEANINGS
    print_definitions(console, meanings)
    console.print()
    print_next(console, next_commands(result))


def _print_heads(result: LensResult, console: Console, details: bool) -> None:
    row = result.row()
    print_table(console, _head_columns(result, details), DROPPABLE)
    note = "Rows show medians over the heads of a layer; max is the largest value of any head."
    print_hanging(console, Text(), note, style="dim")
    if details:
        _print_remarks(result.head_findings, console)
        low, high = (_threshold(result, name) for name in ("beta_2", "beta_c"))
        counts = f"{row['heads_below_beta_2']} below β₂ {low}, {row['heads_above_beta_c']} above β_c {high}"
        console.print(f"{count_of(row['head_count'], 'head')}: {counts}; median β {row['median_beta']:.2f}")
    console.print()


def _head_columns(result: LensResult, details: bool) -> list[Column]:
    fractions = (pl.col("largest_logit") / pl.col("logit_bound")).filter(pl.col("logit_bound") != 0)
    medians = ("beta", "perplexity", "participation_over_null", "participation_over_random")
    layers = result.heads.group_by("layer", maintain_order=True).agg(
        pl.col(*medians, "largest_column_mean").median(),
        pl.col("largest_logit").max(),
        most=pl.col("beta").max(),
        fraction=fractions.max(),
    )
    return number_columns(layers, HEADS | (HEADS_DETAILS if details else {}))


def _print_remarks(remarks: pl.DataFrame, console: Console) -> None:
    for (rule, meaning), group in remarks.group_by("rule", "meaning", maintain_order=True):
        count = count_of(group.height, "head")
        console.print()
        print_hanging(console, Text(f"{rule}, {count}: ", style="bold"), meaning)
        for sentence in group["sentence"].head(MAX_SENTENCES):
            print_hanging(console, Text("  "), sentence)
        if group.height > MAX_SENTENCES:
            console.print(
                f"  and {group.height - MAX_SENTENCES} more heads in head_findings.parquet of --out DIR"
            )
    console.print()


def _head_meanings(result: LensResult, details: bool) -> dict[str, str]:
    if "heads" not in result.tables or not result.heads.height:
        return {}
    low, high = (_threshold(result, name) for name in ("beta_2", "beta_c"))
    if details:
        low, high = f"{low} (β₂)", f"{high} (β_c)"
    more = (
        {"over random": "number of directions, relative to random weights on the same tokens"}
        if details
        else {}
    )
    return {
        "sharpness β": f"standard deviation of a position's attention logits. Theory of random attention "
        f"can hold up to {low}; above {high}, a position looks at only a few tokens.",
        "tokens attended": "effective number of tokens that a position attends to",
        "directions": "number of different directions among attention rows, relative to an equally "
        "sharp random head; below 1, positions attend to similar tokens",
        **more,
        "largest share": "largest share of a head's attention that goes to a single token, over all "
        "positions",
        "bound": "largest logit that any input could reach in the head",
    }


def _threshold(result: LensResult, name: str) -> str:
    return " or ".join(dict.fromkeys(f"{value:.2f}" for value in result.heads[name].sort().unique()))


def _print_entrywise(result: LensResult, console: Console, details: bool) -> None:
    ratio = (pl.col("largest") / pl.col("rms")).filter(pl.col("coherence") != 0)
    ranks = result.entrywise.group_by("rank", maintain_order=True).agg(
        pl.col("largest", "tail", "rms").median(), most=pl.col("largest").max(), ratio=ratio.median()
    )
    print_table(console, number_columns(ranks, ENTRYWISE | (ENTRYWISE_DETAILS if details else {})))
    console.print()


def _rank_meanings(result: LensResult, details: bool) -> dict[str, str]:
    if "entrywise" not in result.tables:
        return {}
    more = {
        "tail / n": "error that the singular values alone predict",
        "rms": "root mean square error of all attention weights, which hides the worst one",
    }
    return {
        "rank": "number of singular values of a head's attention matrix that are kept",
        "median head": "largest error of any attention weight, median over heads",
        "worst head": "largest error of any attention weight, in the worst head",
    } | (more if details else {})


def _print_tokens(result: LensResult, console: Console, most: int) -> None:
    tokens = result.row()["tokens"]
    print_table(console, _token_columns(result, most), ("rollout", "exact"))
    if tokens > most:
        kept = "last" if is_causal(result.token_map) and most == FEW_TOKENS else "first"
        more = "--out DIR draws all" if most == MAX_TOKENS else "--details shows more"
        console.print(Text(f"The {kept} {most} of {tokens} tokens; {more}.", style="dim"))
    console.print()


def _token_columns(result: LensResult, most: int) -> list[Column]:
    tokens, moved = result.input_tokens, result.token_map.partition_by("output", maintain_order=True)
    start = max(0, tokens.height - most) if most == FEW_TOKENS and is_causal(result.token_map) else 0
    shown = tokens[start : start + most]
    columns = [
        Column("", [str(place) for place in shown["position"]]),
        Column("id", [str(number) for number in shown["id"]]),
        Column("token", [_shorten(label) for label in shown["token"]], is_text=True),
    ]
    for title, name in (("exact", "share"), ("rollout", "rollout")):
        shares = [inputs[name].to_list() for inputs in moved[start : start + most]]
        lines = [sparkline(row, max(row)) if tokens.height <= MAX_TOKENS else "" for row in shares]
        largest = [f"{row.index(max(row))} ({max(row):.0%})" for row in shares]
        columns.append(Column(f"shaped by\n({title})", lines, is_text=True, name=title))
        columns.append(Column("\nmost", largest, is_text=True, name=title))
    return columns


def _print_operator(result: LensResult, console: Console) -> None:
    row = result.row()
    ended = "exact" if row["status"] == Outcome.DONE else row["status"]
    console.print(f"reconstruction error  {row['reconstruction_error']:.2e} ({ended})")
    console.print(
        f"offset |c| / |F(X)|   {short_number(row['offset_share'])} (share of the output that comes from "
        "biases)"
    )
    if row["singular_values"]:
        values = "  ".join(f"{value:.4g}" for value in row["singular_values"])
        console.print(f"singular values of T  {values}", soft_wrap=True)
    if row["probes"] is not None:
        errors = pl.col("norm_error") / pl.col("norm").clip(1e-300)
        spread = f"standard error up to {result.token_map.select(errors.max()).item():.1%}"
        console.print(
            f"The shares are estimated from {row['probes']} random probes for each token, {spread}."
        )
    console.print()


def _shorten(label: str) -> str:
    return label if len(label) <= MAX_LETTERS else f"{label[: MAX_LETTERS - 1]}…"
