"""Print fitted laws in the terminal: the answer for each model, and a table of kinds and laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.analysis.fit import LAWS
from attnlaw.analysis.fit.heavy_tailed import LARGEST_KAPPA, LEAST_KAPPA
from attnlaw.analysis.fit.summary import (
    NO_LAW,
    UNFITTED,
    certainty_line,
    groups_by_kind,
    kind_label,
    law_counts,
)
from attnlaw.core.tables import short_names
from attnlaw.core.words import count_of
from attnlaw.render.model_names import model_names
from attnlaw.render.terminal.console import Column, format_number, print_table
from attnlaw.render.terminal.screen import (
    print_definitions,
    print_hanging,
    print_lines,
    print_next,
    print_title,
    without,
)
from attnlaw.verbs.fit.answer import case_lines, next_commands

if TYPE_CHECKING:
    from attnlaw import FitResult

# Letter and colour of each law in a map of heads.
LETTERS: dict[str | None, tuple[str, str]] = {name: (law.letter, law.style) for name, law in LAWS.items()}
# Letter and colour of a matrix without a law.
UNFITTED_STYLE = ("?", "default")
# Columns whose medians are printed, by title.
MEDIANS = {
    "W1": "wasserstein",
    "beyond": "outliers",
    "alpha": "alpha",
    "covers": "tail_share",
    "kappa": "kappa",
}
MEDIAN_MEANINGS = {
    "W1": "distance between the spectrum and the spectrum of random matrices; 0 means equal",
    "beyond": "singular values above the largest one of a random matrix",
    "alpha": "exponent of the power law of the largest eigenvalues; smaller means heavier tails",
    "covers": "share of the values that the power law covers (above 50% it describes more than a tail)",
    "kappa": "shape parameter: small means heavy tails; about 3 for a product of two random matrices (less "
    "if their sides differ), hundreds or infinite for one random matrix",
}
FORMS = {"outliers": "g", "tail_share": ".0%"}


def show_case(result: FitResult, console: Console, details: bool = False) -> None:
    """Print the answer for one model. With `details`, add the map of heads and other matrices."""
    rows = result.fits
    inside = rows.filter(pl.col("layer").is_not_null())
    layers = inside.select("stack", "layer").n_unique()
    facts = [count_of(rows.height, "matrix", "matrices")]
    facts += [count_of(layers, "layer")] if layers else []
    console.print()
    print_title(console, result.row()["model"], " · ".join(facts))
    print_lines(console, tuple(case_lines(result)))
    if not details:
        return
    console.print()
    if inside.height:
        print_table(console, _law_map(inside))
        console.print()
        print_definitions(console, {LETTERS.get(law, UNFITTED_STYLE)[0]: law for law in law_counts(rows)})
    p_value = result.row()["not_random_p_value"]
    if p_value is not None:
        text = f"p = {p_value:.2g}: how often so many matrices of an untrained model differ from random ones"
        print_hanging(console, Text(), text)
    for row in rows.filter(pl.col("layer").is_null()).iter_rows(named=True):
        console.print(
            f"{row['kind']} {row['rows']} x {row['cols']}: {row['law'] or UNFITTED}, "
            f"alpha {format_number(row['alpha'], missing='not known')}"
        )


def show_summary(result: FitResult, console: Console, details: bool = False) -> None:
    """Print how many matrices of each kind follow each law, what the laws mean, and the next commands."""
    rows, names = result.tables["fits"], list(short_names(model_names(result)).values())
    laws = [law for law in (*LAWS, UNFITTED) if law in law_counts(rows) or law == "random"]
    console.print()
    print_table(console, _count_columns(rows, names, laws), ("matrices",))
    console.print()
    print_definitions(console, {law: LAWS[law].description if law in LAWS else NO_LAW for law in laws})
    if details:
        console.print()
        droppable = ("beyond", "W1", "kappa", "covers", "alpha")
        left_out = print_table(console, _median_columns(rows, names), droppable)
        console.print()
        print_definitions(console, without(MEDIAN_MEANINGS, left_out))
    console.print()
    if (sure := certainty_line(rows)) is not None:
        print_lines(console, (sure,))
        console.print()
    print_next(console, next_commands(result))


def _law_map(rows: pl.DataFrame) -> list[Column]:
    groups = rows.group_by("stack", "layer", maintain_order=True)
    names = [f"{stack or ''} {layer}".strip() for (stack, layer), _ in groups]
    columns = [Column("layer", names, is_text=True)]
    for kind in dict.fromkeys(rows["kind"]):
        laws = [_law_letters(group.filter(pl.col("kind") == kind)) for _, group in groups]
        columns.append(Column(kind_label(kind), laws, is_text=True))
    return columns


def _law_letters(rows: pl.DataFrame) -> Text:
    """Return a letter for each head or expert. A single matrix gets the name of its law instead."""
    named = rows.select(pl.any_horizontal(pl.col("head", "expert").is_not_null())).to_series().any()
    text = Text()
    for law in rows["law"]:
        letter, colour = LETTERS.get(law, UNFITTED_STYLE)
        text.append(letter if named else law or UNFITTED, style=colour)
    return text


def _place_columns(groups: Sequence[pl.DataFrame], names: Sequence[str]) -> list[Column]:
    models = [names[group["case"][0]] for group in groups]
    columns = [Column("kind", [kind_label(group["kind"][0]) for group in groups], is_text=True)]
    several = [Column("model", models, is_text=True, wraps=True, max_width=24)]
    return columns + (several if len(names) > 1 else [])


def _count_columns(rows: pl.DataFrame, names: Sequence[str], laws: Sequence[str]) -> list[Column]:
    groups = groups_by_kind(rows)
    counts = [law_counts(group) for group in groups]
    return [
        *_place_columns(groups, names),
        Column("matrices", [str(group.height) for group in groups]),
        *(
            Column(
                law.replace(" ", "\n").replace("heavy-", "heavy-\n"),
                [str(count.get(law, "–")) for count in counts],
                name=law,
            )
            for law in laws
        ),
    ]


def _median_columns(rows: pl.DataFrame, names: Sequence[str]) -> list[Column]:
    groups = groups_by_kind(rows)
    medians = {title: [_format_median(group, name) for group in groups] for title, name in MEDIANS.items()}
    return [*_place_columns(groups, names), *(Column(title, cells) for title, cells in medians.items())]


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
