"""A lens in the terminal: what moves each token, by the operator and by attention rollout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlaw.base.estimate import Outcome
from attnlaw.command.console import print_table, say, sparkline

SHOWN = 32


def show(lens: Any, console: Console) -> None:
    """Print how exact the operator is, its largest singular values, and a line for each token."""
    tokens = len(lens.ids)
    console.print(Text(lens.model, style="bold"), soft_wrap=True)
    console.print(
        f"{lens.family}, {lens.layers} layers, {tokens} tokens of width {lens.operator.width}", style="dim"
    )
    ended = "exact" if lens.outcome is Outcome.DONE else lens.outcome
    console.print(f"reconstruction error  {lens.reconstruction_error:.2e} ({ended})")
    console.print(f"offset |c| / |F(X)|   {lens.offset_share:.3g}")
    if lens.singular_values:
        values = "  ".join(f"{value:.4g}" for value in lens.singular_values)
        console.print(f"singular values of T  {values}", soft_wrap=True)
    print_table(console, lambda left_out: _table(lens, left_out), ("rollout",))
    if tokens > SHOWN:
        console.print(f"{tokens - SHOWN} more tokens; --out DIR draws all of them")
    probes = lens.token_map.probes
    if probes is not None:
        worst = float((lens.token_map.errors / lens.token_map.norms.clip(min=1e-300)).max())
        console.print(f"norms estimated from {probes} probes a token, standard error up to {worst:.1%}")
    if lens.remark:
        say(f"attnlaw: {lens.remark}")


def _table(lens: Any, left_out: Sequence[str]) -> Table:
    """One row for each token: what moves it, and what moves it most, by the operator and by rollout."""
    both = {"moved by (operator)": lens.token_map.shares, "rollout": lens.rollout}
    maps = {title: rows for title, rows in both.items() if title not in left_out}
    table = Table(box=None, pad_edge=False)
    for title in ("token", "id"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in maps:
        table.add_column(title, no_wrap=True)
        table.add_column("most", no_wrap=True)
    for i, token in enumerate(lens.ids[:SHOWN]):
        cells: list[str] = []
        for rows in maps.values():
            top = float(rows[i].max())
            cells.append(sparkline(rows[i].tolist(), top=top) if len(lens.ids) <= SHOWN else "")
            cells.append(f"{rows[i].argmax()} ({top:.0%})")
        table.add_row(str(i), str(token), *cells)
    return table
