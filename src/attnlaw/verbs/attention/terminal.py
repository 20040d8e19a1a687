"""The spectrum of random attention in the terminal: whether draws follow the law, and what it looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import format_with_error
from attnlaw.render.terminal.console import Column, print_table, sparkline
from attnlaw.render.terminal.view import show
from attnlaw.theory.laws.attention_shape import CENTRINGS, MATRICES
from attnlaw.theory.laws.finite_size import few_rows_beta
from attnlaw.verbs.attention.verdict import head_line, verdict_lines

if TYPE_CHECKING:
    from attnlaw import AttentionResult

PLACES = 40  # characters of the picture of a density
LEVEL_NAMES = {0.5: "median", 1.0: "largest"}
MATRIX_NAMES = {
    "attention": "the attention matrices of all heads, side by side",
    "mean": "the mean of the heads' attention matrices",
    "values": "attention times values",
    "output": "the output of the layer",
}


def show_case(result: AttentionResult, console: Console, details: bool = False) -> None:
    """Print the sizes of one layer, and whether its random draws follow the law."""
    row = result.row()
    sentence, warning = verdict_lines(row)
    console.print(Text(head_line(row), style="bold"), soft_wrap=True)
    console.print(Text(sentence), soft_wrap=True)
    if warning:
        console.print(Text(warning, style="yellow"))


def show_summary(result: AttentionResult, console: Console, details: bool = False) -> None:
    """Print the spectrum of one layer, or a row for each of several. Limits and the next command follow."""
    console.print()
    if len(result) == 1:
        _show_spectrum(result, console)
    else:
        # The remarks are above.
        show(replace(result, rows=result.rows.with_columns(remark=pl.lit(None, pl.String))), console)
    largest = few_rows_beta(int(result.rows["tokens"].max()))  # type: ignore[arg-type]
    limits = (
        "The law is for random weights and orthogonal tokens. Tokens of real text are not orthogonal, and "
        "causal masks and rotary positions are not covered. Do not rely on it for narrow heads (attnlaw "
        f"warns when h d_K²/2n is below 5) or for a sharpness β above {largest:.3g}."
    )
    console.print(Text(limits, style="dim"))
    console.print(Text("Next: --figure spectrum.pdf draws it, attnlaw lab attention has sliders."))


def _show_spectrum(result: AttentionResult, console: Console) -> None:
    """Print quantiles of the singular values, and the densities as lines of blocks."""
    row = result.row()
    matrix = MATRICES[row["matrix"]]
    taken = CENTRINGS[row["centring"]].label
    console.print(
        Text(f"Singular values of {MATRIX_NAMES[matrix.name]}: {matrix.label}, minus {taken}"),
        soft_wrap=True,
    )
    lines = result.quantiles.rows(named=True)
    names = [LEVEL_NAMES.get(line["level"], f"{line['level']:.0%} are below") for line in lines]
    columns = [Column("", names, is_text=True), Column("law", [f"{line['law']:.3f}" for line in lines])]
    if row["draws"]:
        columns.append(Column("drawn", [_drawn(line) for line in lines]))
    print_table(console, columns)
    if row["atom_at_zero"] > 0:
        console.print(Text(f"{row['atom_at_zero']:.1%} of the values are exactly zero, not drawn below."))
    for name, picture in _pictures(result):
        console.print(Text(f"{name:<6} {picture}"), soft_wrap=True)
    top = f"{row['edges'][-1] ** 0.5:.3g}"
    console.print(Text(f"       0{top:>{PLACES - 1}}   singular value", style="dim"))
    console.print()


def _drawn(line: dict[str, Any]) -> str:
    error = line["drawn_error"]
    return format_with_error(line["drawn"], error) if error else f"{line['drawn']:.3f}"


def _pictures(result: AttentionResult) -> list[tuple[str, str]]:
    """Return the densities of the law and of the first draw as blocks, from 0 to the end of the law."""
    law = result.law_densities.with_columns(s=pl.col("x").sqrt())
    s = law["s"].to_numpy()
    shape = (2 * law["s"] * law["density"]).to_numpy()
    width = float(result.row()["edges"][-1]) ** 0.5 / PLACES
    counts = []
    for place in range(PLACES):
        low, high = place * width, (place + 1) * width
        inside = shape[(s >= low) & (s < high)]
        counts.append(float(inside.mean()) if inside.size else 0.0)
    pictures = [("law", sparkline(counts, max(counts)))]
    if "drawn_values" in result.tables:
        drawn = result.drawn_values["value"].sqrt()
        kept: Sequence[float] = drawn.filter(drawn > 0).to_list()
        bins = [0.0] * PLACES
        for value in kept:
            bins[min(int(value / width), PLACES - 1)] += 1 / (drawn.len() * width)
        pictures.append(("drawn", sparkline(bins, max(bins))))
    return pictures
