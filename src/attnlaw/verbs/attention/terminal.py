"""The spectrum of random attention in the terminal: whether draws follow the law, and what it looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import format_value, format_with_error
from attnlaw.core.settings import setting_fields
from attnlaw.core.words import short_number
from attnlaw.render.describe_rows import varying_settings
from attnlaw.render.terminal.cases import known_quantities, print_measures, setting_columns
from attnlaw.render.terminal.console import Column, print_table, sparkline
from attnlaw.render.terminal.screen import (
    print_definitions,
    print_hanging,
    print_lines,
    print_next,
    print_title,
)
from attnlaw.theory.laws.attention_shape import CENTRINGS, MATRICES
from attnlaw.verbs.attention.answer import LIMITS, answer, head_line, layer_line, verdict_of

if TYPE_CHECKING:
    from attnlaw import AttentionResult

PLACES = 40  # characters of the picture of a density
LEVEL_NAMES = {0.5: "median", 1.0: "largest"}
ROW_COLUMNS = {
    "law_distance": (
        "difference",
        "largest difference between the cumulative distributions of draws and law (Kolmogorov-Smirnov)",
    ),
    "law_w1": ("W1", "mean distance between draws and law, divided by the mean of the law (Wasserstein-1)"),
    "equivalent_distance": ("to Gaussian", "largest difference to the Gaussian equivalent of the same draws"),
    "coefficient_error": ("readout", "error of a ridge regression on the output, as the law predicts it"),
    "arrival_time": ("time", "training time until a readout reaches the loss (gradient flow)"),
}
SYMBOLS = {
    "A₁": "attention matrix of the first head",
    "V": "values of the tokens",
    "W": "random weights of the layer",
    "d_K": "size of a head's queries and keys",
}
MATRIX_NAMES = {
    "attention": "the attention matrices of all heads",
    "mean": "the mean of the heads' attention matrices",
    "values": "attention times values",
    "output": "the output of the layer",
}


def show_case(result: AttentionResult, console: Console, details: bool = False) -> None:
    """Print the sizes of one layer, and whether its random draws follow the law."""
    print_title(console, head_line(result.row()), "random attention")
    print_lines(console, (layer_line(result.row()),))


def show_summary(result: AttentionResult, console: Console, details: bool = False) -> None:
    """Print the spectrum of one layer (or a row for each of several), then limits and next commands."""
    console.print()
    if len(result) == 1:
        _show_spectrum(result, console)
    else:
        _show_rows(result, console)
    if details:
        _show_quantities(result, console)
    print_hanging(console, Text(""), LIMITS, style="dim")
    console.print()
    print_next(console, answer(result).next_commands)


def _show_rows(result: AttentionResult, console: Console) -> None:
    varied = varying_settings(result.rows, setting_fields(result.verb.settings))
    columns = setting_columns(result, result.rows, varied)
    values = [result.values(case) for case in range(len(result))]
    measures = [
        (title, meaning, [format_value(known[name]) for known in values])
        for name, (title, meaning) in ROW_COLUMNS.items()
    ]
    titles = [*(column.title for column in columns), *(title for title, _, _ in measures)]
    meanings = print_measures(console, columns, measures, titles[:0:-1])
    console.print()
    print_definitions(console, meanings)
    console.print()


def _show_quantities(result: AttentionResult, console: Console) -> None:
    known, values = known_quantities(result)
    columns = [Column("quantity", [quantity.label for quantity in known], is_text=True)]
    columns += [
        Column(f"case {case}" if len(values) > 1 else "", [format_value(numbers[q.name]) for q in known])
        for case, numbers in enumerate(values, start=1)
    ]
    meanings = [quantity.description for quantity in known]
    print_table(console, [*columns, Column("", meanings, is_text=True, wraps=True)])
    console.print()


def _show_spectrum(result: AttentionResult, console: Console) -> None:
    row = result.row()
    matrix = MATRICES[row["matrix"]]
    taken = CENTRINGS[row["centring"]].label
    print_hanging(console, Text(""), f"Singular values of {MATRIX_NAMES[matrix.name]}")
    lines = result.quantiles.rows(named=True)
    names = [LEVEL_NAMES.get(line["level"], f"{line['level']:.0%} quantile") for line in lines]
    columns = [
        Column("", names, is_text=True),
        Column("law", [f"{_three_digits(line['law'])}" for line in lines]),
    ]
    if row["draws"]:
        columns.append(Column("drawn", [_drawn(line) for line in lines]))
    print_table(console, columns)
    if row["atom_at_zero"] > 0:
        console.print(Text(f"{row['atom_at_zero']:.1%} of the values are zero and are not shown below."))
    for name, picture in _pictures(result):
        console.print(Text(f"{name:<6} {picture}"), soft_wrap=True)
    top = f"{row['edges'][-1] ** 0.5:.3g}"
    console.print(Text(f"       0{top:>{PLACES - 1}}   singular value", style="dim"))
    console.print()
    layers = "one random layer" if row["draws"] == 1 else f"{row['draws']} random layers"
    warning = verdict_of(row).warning or ""
    meanings = {"matrix": f"{matrix.label}, after subtracting the {taken}"}
    meanings |= {name: text for name, text in SYMBOLS.items() if name in f"{matrix.label} {warning}"}
    meanings |= {
        "n, h": "number of tokens, and number of heads",
        "β": "standard deviation of the logits in a row of attention",
        "law": "singular value that theory predicts; the bars show the density from 0 on",
    }
    if row["draws"]:
        meanings["drawn"] = f"mean over {layers} of these sizes; 0.25(1) means a standard error of 0.01"
    print_definitions(console, meanings)
    console.print()


def _drawn(line: dict[str, Any]) -> str:
    error = line["drawn_error"]
    return format_with_error(line["drawn"], error) if error else _three_digits(line["drawn"])


def _three_digits(value: float) -> str:
    return f"{value:.3f}" if value < 10 else short_number(value)


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
