"""How proxies grow with depth and width over several models, in the terminal."""

from __future__ import annotations

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.analysis.audit.growth import exponent_text, growth_reason, growth_sentence, growth_table
from attnlaw.render.terminal.console import Column, print_table
from attnlaw.theory.bounds import BOUNDS
from attnlaw.theory.bounds.proxy_growth import LEAST_MODELS


def show_growth(rows: pl.DataFrame, console: Console) -> None:
    """Print the exponents of every proxy, or why there are none if there are three models or more."""
    reason = growth_reason(rows)
    if reason is not None:
        if rows.height >= LEAST_MODELS:
            console.print(Text(f"{reason[0].upper()}{reason[1:]}.", style="dim"))
        return
    table = growth_table(rows)
    console.print()
    console.print(Text(growth_sentence(rows, table)))
    print_table(console, growth_columns(table))
    console.print()


def growth_columns(table: pl.DataFrame) -> list[Column]:
    """Return the columns of the table of exponents."""
    lines = table.rows(named=True)
    columns = [Column("proxy", [BOUNDS[line["proxy"]].label for line in lines], is_text=True, wraps=True)]
    for name in ("depth", "width"):
        cells = [exponent_text(line, name) for line in lines]
        columns += [Column(f"exponent\nof {name}", cells)] if any(cells) else []
    return columns
