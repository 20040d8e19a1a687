"""Print margins in the terminal: D, the comparison in words, then where the margin could be lost."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.checkpoints.network import KINDS
from attnlaw.render.terminal.console import Column, bar, number_columns, print_message, print_table
from attnlaw.verbs.margins import D_MEANING

if TYPE_CHECKING:
    from attnlaw import MarginsResult

MAX_KINDS = 8  # number of kinds of linear maps that are listed
AMPLIFICATION = {
    "amplification": ("median", ".3g"),
    "largest": ("max", ".3g"),
    "log10": ("log10_measured", ".2f"),
    "worst case": ("log10_worst_case", ".2f"),
}


def show_case(result: MarginsResult, console: Console, details: bool = False) -> None:
    """Print D of one model, then kappa and amplification of each layer."""
    values, row = result.values(), result.row()
    console.print(Text(row["model"], style="bold"), soft_wrap=True)
    console.print(Text(_headline(result)), soft_wrap=True)
    if "pairs" in result.tables:
        summary = f"log ratio {values['log_ratio']} to {row['compared_with']}"
        pairs = f"{result.pairs['inputs'][0]} pairs"
        console.print(Text(f"{summary}, {pairs}: {row['comparison']}"), soft_wrap=True)
    elif row["comparison"] is not None:
        console.print(Text(row["comparison"]), soft_wrap=True)
    if {"kappa_layers", "amplification"} & set(result.tables):
        print_table(console, _layer_columns(result), ("largest",))
    if "kappa_kinds" in result.tables:
        largest = result.kappa_kinds.sort("kappa", descending=True, maintain_order=True).head(MAX_KINDS)
        listing = "  ".join(f"{kind} {kappa:.3g}" for kind, kappa in largest.select("kind", "kappa").rows())
        console.print(Text(f"kappa by kind: {listing}"), soft_wrap=True)
    if "directions" in result.tables:
        _print_directions(result.directions, console)
    if row["remark"]:
        print_message(f"attnlaw: {row['model']}: {row['remark']}")


def show_summary(result: MarginsResult, console: Console, details: bool = False) -> None:
    """Print a note on how to use D."""
    console.print(Text(f"D {D_MEANING}", style="dim"), soft_wrap=True)


def _headline(result: MarginsResult) -> str:
    values = result.values()
    mean, (middle, low, high) = values["mean_log"], values["median"]
    words = [
        f"D {exp(mean.value):.3g} (x/: {exp(mean.error):.2f})",
        f"median {middle:.3g} [{low:.3g}, {high:.3g}]",
        f"{values['inputs']} inputs",
    ]
    if values["ties"] or values["flat"]:
        words.append(f"{values['ties']} ties, {values['flat']} flat")
    if "kappa_layers" in result.tables:
        worst = max(result.kappa_layers.rows(named=True), key=lambda line: line["kappa"])
        place = worst["place"] if worst["layer"] is None else f"layer {worst['place']}"
        words.append(f"kappa {values['total_kappa']:.3g}, most in {place}")
    return "  ".join(words)


def _layer_columns(result: MarginsResult) -> list[Column]:
    columns = []
    if "kappa_layers" in result.tables:
        kappas = result.kappa_layers["kappa"].to_list()
        top = max(kappas)
        bars = [bar(kappa / top if 0 < top < float("inf") else 0.0, 16) for kappa in kappas]
        columns = [Column("layer", result.kappa_layers["place"].to_list())]
        columns += [Column("kappa", [f"{kappa:.3g}" for kappa in kappas]), Column("", bars, is_text=True)]
    if "amplification" in result.tables:
        rows = result.amplification
        columns = columns or [Column("layer", [str(layer) for layer in rows["layer"]])]
        below = [""] * (len(columns[0].cells) - rows.height)  # for maps outside of layers
        columns += [
            column._replace(cells=[*column.cells, *below]) for column in number_columns(rows, AMPLIFICATION)
        ]
    return columns


def _print_directions(directions: pl.DataFrame, console: Console) -> None:
    known = directions.filter(pl.col("effective_directions").is_not_null())
    sums = known.group_by("kind", maintain_order=True).agg(pl.col("effective_directions", "rank").sum())
    phrases = [f"{KINDS[kind].label} {count} of {ranks}" for kind, count, ranks in sums.iter_rows()]
    console.print(Text(f"effective directions: {'  '.join(phrases)}"), soft_wrap=True)
