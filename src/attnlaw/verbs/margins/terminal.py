"""Print margins in the terminal: how models compare, and where a margin is sensitive."""

from __future__ import annotations

from math import exp, expm1
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.checkpoints.network import KINDS
from attnlaw.core.tables import unique_short_names
from attnlaw.core.words import short_number
from attnlaw.render.terminal.console import Column, bar, format_number, number_columns, print_table
from attnlaw.render.terminal.screen import (
    print_answer,
    print_definitions,
    print_hanging,
    print_next,
    print_title,
    without,
)
from attnlaw.verbs.margins import D_MEANING
from attnlaw.verbs.margins.answer import answer, most_sensitive_place

if TYPE_CHECKING:
    from attnlaw import MarginsResult

MAX_KINDS = 8  # number of kinds of linear maps that are listed
AMPLIFICATION = {
    "amplification": ("median", ".3g"),
    "max": ("max", ".3g"),
    "log10": ("log10_measured", ".2f"),
    "worst case": ("log10_worst_case", ".2f"),
}
MEANINGS = {
    "D": "how far a typical prediction is from flipping, relative to the spread of the inputs",
    "error": "standard error of D, as a factor to multiply or divide by",
    "inputs": "number of inputs that were measured",
}
KAPPA_MEANING = "condition number: changing all weights by a fraction 1/κ could flip a prediction"
AMPLIFICATION_MEANINGS = {
    "amplification": "how many times larger the change of the logits is than a small change of the input",
    "worst case": "log10 of the largest such factor that the weights alone allow",
    "effective directions": "number of singular values that matter on these inputs, out of all",
}


def show_summary(result: MarginsResult, console: Console, details: bool = False) -> None:
    """Print how the models compare, a table of them, and tables of their layers."""
    names = unique_short_names(result.rows["model"])
    inputs = " or ".join(str(count) for count in result.rows["inputs"].unique(maintain_order=True))
    print_title(console, "Relative margin D", f"{inputs} inputs without labels")
    console.print()
    known = answer(result)
    print_answer(console, known)
    droppable = ("confidence", "flat", "ties", "median")
    hidden = print_table(console, _model_columns(result, names, details), droppable)
    console.print()
    for name, case in zip(names, result, strict=True):
        _print_places(case, name if len(names) > 1 else "", console, details)
    meanings = _meanings(result, details)
    if result.rows["log_ratio"].count():
        meanings[f"D vs {names[0]}"] = (
            f"change of D from {names[0]}, input by input; in brackets: one standard error"
        )
    print_definitions(console, without(meanings, hidden))
    print_hanging(console, Text(), D_MEANING, style="dim")
    console.print()
    print_next(console, known.next_commands)


def _model_columns(result: MarginsResult, names: list[str], details: bool) -> list[Column]:
    rows = result.rows
    errors = [None if error is None else exp(error) for error in rows["mean_log_error"]]
    columns = [
        Column("model", names, is_text=True),
        Column("D", [format_number(value, ".3g", missing="–") for value in rows["geometric_mean"]]),
        Column("error", ["–" if error is None else f"×/÷ {error:.2f}" for error in errors]),
        Column("inputs", [str(count) for count in rows["inputs"]]),
    ]
    if rows["log_ratio"].count():
        columns.append(Column(f"D vs {names[0]}", list(map(_change, rows.iter_rows(named=True)))))
    if rows["total_kappa"].count() and len(names) > 1:
        places = [
            "–" if row["total_kappa"] is None else most_sensitive_place(result, row)
            for row in result.finished_rows.iter_rows(named=True)
        ]
        columns.append(
            Column("κ", [format_number(value, ".3g", missing="–") for value in rows["total_kappa"]])
        )
        columns.append(Column("most in", places, is_text=True))
    if details:
        middle = number_columns(
            rows, {name: (name, ".3g") for name in ("median", "median_low", "median_high")}
        )
        cells = zip(*(column.cells for column in middle), strict=True)
        columns.append(Column("median", [f"{value} [{low}, {high}]" for value, low, high in cells]))
        columns += [Column(name, [str(count) for count in rows[name]]) for name in ("ties", "flat")]
        columns.append(Column("confidence", [f"{value:.2f}" for value in rows["confidence"]]))
    return columns


def _change(row: dict[str, Any]) -> str:
    """Return the relative difference of D from the first model, with the range of one error of log D."""
    if row["log_ratio"] is None:
        return "–"
    middle, error = row["log_ratio"], row["log_ratio_error"] or 0.0
    return f"{expm1(middle):+.1%} [{expm1(middle - error):+.1%}, {expm1(middle + error):+.1%}]"


def _print_places(result: MarginsResult, name: str, console: Console, details: bool) -> None:
    if not {"kappa_layers", "amplification"} & set(result.tables):
        return
    if name:
        console.print(Text(name, style="bold"))
    print_table(console, _layer_columns(result, details), ("log10", "max"))
    if "kappa_kinds" in result.tables and details:
        largest = result.kappa_kinds.sort("kappa", descending=True, maintain_order=True).head(MAX_KINDS)
        listing = "  ".join(
            f"{kind} {short_number(kappa)}" for kind, kappa in largest.select("kind", "kappa").rows()
        )
        print_hanging(console, Text("condition (κ) by kind of map  "), listing)
        console.print(f"κ in total        {short_number(result.total_kappa or 0.0)}")
    if "directions" in result.tables:
        _print_directions(result.directions, console)
    console.print()


def _layer_columns(result: MarginsResult, details: bool) -> list[Column]:
    columns = []
    if "kappa_layers" in result.tables:
        kappas = result.kappa_layers["kappa"].to_list()
        top = max(kappas)
        bars = [bar(kappa / top if 0 < top < float("inf") else 0.0, 16) for kappa in kappas]
        columns = [Column("layer", result.kappa_layers["place"].to_list())]
        columns += [
            Column("κ", [f"{short_number(kappa)}" for kappa in kappas]),
            Column("", bars, is_text=True),
        ]
    if "amplification" in result.tables:
        rows = result.amplification
        columns = columns or [Column("layer", [str(layer) for layer in rows["layer"]])]
        below = [""] * (len(columns[0].cells) - rows.height)  # for maps outside of layers
        forms = {
            name: form for name, form in AMPLIFICATION.items() if details or name not in ("max", "log10")
        }
        columns += [column._replace(cells=[*column.cells, *below]) for column in number_columns(rows, forms)]
    return columns


def _print_directions(directions: pl.DataFrame, console: Console) -> None:
    known = directions.filter(pl.col("effective_directions").is_not_null())
    sums = known.group_by("kind", maintain_order=True).agg(pl.col("effective_directions", "rank").sum())
    phrases = [f"{KINDS[kind].label} {count} of {ranks}" for kind, count, ranks in sums.iter_rows()]
    print_hanging(console, Text("effective directions: "), "  ".join(phrases))


def _meanings(result: MarginsResult, details: bool) -> dict[str, str]:
    meanings = dict(MEANINGS)
    if details:
        meanings["median"] = "median of D over inputs, with a confidence interval"
        meanings["ties, flat"] = "number of inputs that are left out, because their margin or gradient is 0"
        meanings["confidence"] = "mean of the largest predicted probability; D ranks models better"
    if "kappa_layers" in result.tables:
        meanings["κ"] = KAPPA_MEANING
    return meanings | (AMPLIFICATION_MEANINGS if "amplification" in result.tables else {})
