"""Print fitted laws in the terminal: a map of heads for each model, and a table of all models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.analysis.fit import LAWS
from attnlaw.analysis.fit.heavy_tailed import LARGEST_KAPPA, LEAST_KAPPA
from attnlaw.core.tables import short_names
from attnlaw.render.model_names import model_names
from attnlaw.render.terminal.console import Column, format_number, print_table

if TYPE_CHECKING:
    from attnlaw import FitResult

# Letter and colour of each law in a map of heads.
LETTERS: dict[str | None, tuple[str, str]] = {name: (law.letter, law.style) for name, law in LAWS.items()}
# Name, letter and colour of a matrix without a law.
UNFITTED, UNFITTED_STYLE = "not fitted", ("?", "default")
# Columns whose medians are printed, by title.
MEDIANS = {
    "W1": "wasserstein",
    "beyond": "outliers",
    "alpha": "alpha",
    "covers": "tail_share",
    "kappa": "kappa",
}
FORMS = {"outliers": "g", "tail_share": ".0%"}


def show_case(result: FitResult, console: Console, details: bool = False) -> None:
    """Print one model, with a line for each layer and a letter for each head."""
    rows, counts = result.fits, result.row()
    console.print()
    console.print(Text(rows["model"][0], style="bold"), soft_wrap=True)
    inside = rows.filter(pl.col("layer").is_not_null())
    if inside.height:
        print_table(console, _law_map(inside))
    console.print(
        Text(
            f"not random at level 0.01: {counts['not_random_rejected']} of {counts['not_random_tested']} "
            f"matrices (freshly initialised: {counts['not_random_expected']:.2g} expected, "
            f"p = {counts['not_random_p_value']:.2g})",
            style="dim",
        )
    )
    for row in rows.filter(pl.col("layer").is_null()).iter_rows(named=True):
        console.print(
            f"{row['kind']} {row['rows']} x {row['cols']}: {row['law'] or UNFITTED}, "
            f"alpha {format_number(row['alpha'])}"
        )


def show_summary(result: FitResult, console: Console, details: bool = False) -> None:
    """Print the number of matrices of each law and medians of fitted numbers, by kind and model."""
    rows, names = result.tables["fits"], list(short_names(model_names(result)).values())
    legend = Text("\n")
    for law, (letter, colour) in _letters_by_law(rows).items():
        legend.append(letter, style=f"bold {colour}").append(f" {law or UNFITTED}  ")
    console.print(legend)
    console.print()
    print_table(console, _summary_columns(rows, names), ("beyond", "W1", "kappa", "covers", "alpha"))
    console.print(
        Text(
            "Numbers of matrices, then medians. W1: distance to the null; beyond: values beyond its edge; "
            "alpha: exponent of a power law, which covers that share of the values (no tail above one half); "
            "kappa: small is a heavy tail; 2.3 to 3.4 for a random head, less where its sides differ, "
            "hundreds or infinite for a random matrix.",
            style="dim",
        )
    )


def _law_map(rows: pl.DataFrame) -> list[Column]:
    groups = rows.group_by("stack", "layer", maintain_order=True)
    names = [f"{stack or ''} {layer}".strip() for (stack, layer), _ in groups]
    columns = [Column("layer", names, is_text=True)]
    for kind in dict.fromkeys(rows["kind"]):
        laws = [_law_letters(group.filter(pl.col("kind") == kind)) for _, group in groups]
        columns.append(Column(kind.replace("_", " "), laws, is_text=True))
    return columns


def _law_letters(rows: pl.DataFrame) -> Text:
    """Return a letter for each head or expert. A single matrix gets the name of its law instead."""
    named = rows.select(pl.any_horizontal(pl.col("head", "expert").is_not_null())).to_series().any()
    text = Text()
    for law in rows["law"]:
        letter, colour = LETTERS.get(law, UNFITTED_STYLE)
        text.append(letter if named else law or UNFITTED, style=colour)
    return text


def _letters_by_law(rows: pl.DataFrame) -> dict[str | None, tuple[str, str]]:
    """Return the letter and colour of every law, and under None those of matrices without a law."""
    return LETTERS | ({None: UNFITTED_STYLE} if rows["law"].null_count() else {})


def _summary_columns(rows: pl.DataFrame, names: Sequence[str]) -> list[Column]:
    kinds = list(dict.fromkeys(rows["kind"]))
    pairs = rows.group_by("kind", "case", maintain_order=True)
    groups = [group for _, group in sorted(pairs, key=lambda pair: kinds.index(pair[0][0]))]
    counts = [dict(group.group_by("law").len().iter_rows()) for group in groups]
    return [
        Column("kind", [group["kind"][0].replace("_", " ") for group in groups], is_text=True),
        Column(
            "model", [names[group["case"][0]] for group in groups], is_text=True, wraps=True, max_width=24
        ),
        *(
            Column(f"[{colour}]{letter}[/]", [str(count.get(law, "")) for count in counts])
            for law, (letter, colour) in _letters_by_law(rows).items()
        ),
        *(
            Column(title, [_format_median(group, name) for group in groups])
            for title, name in MEDIANS.items()
        ),
    ]


def _format_median(rows: pl.DataFrame, name: str) -> str:
    """Format the median of a column. A kappa below the grid counts as 0, and a kappa above it as infinite."""
    if name != "kappa":
        return format_number(rows[name].median(), FORMS.get(name, "#.3g"))
    above, below = (pl.col(name).is_not_null() for name in ("kappa_low", "kappa_high"))
    off_grid = pl.when(above).then(float("inf")).when(below).then(0.0)
    middle = rows.select(pl.coalesce("kappa", off_grid).median()).item()
    if middle is None or LEAST_KAPPA <= middle <= LARGEST_KAPPA:
        return format_number(middle)
    return f">{LARGEST_KAPPA:g}" if middle > LARGEST_KAPPA else f"<{LEAST_KAPPA:.2g}"
