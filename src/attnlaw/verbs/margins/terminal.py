"""Margins in the terminal: the headline, the comparison in words, then where the margin could be lost."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log10
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlaw.checkpoints.network import KINDS
from attnlaw.render.terminal.console import bar, column_table, print_message, print_table
from attnlaw.verbs.margins import D_MEANING

MAX_KINDS = 8  # of maps that are told


def show(found: Any, console: Console) -> None:
    """Print one model: the headline first, then bars of kappa and the amplification of each layer."""
    console.print(Text(found.margins.model, style="bold"), soft_wrap=True)
    console.print(Text(_headline(found)), soft_wrap=True)
    if found.difference is not None:
        ratio = found.difference.log_ratio
        told = f"log ratio {ratio} to {found.compared_with}, {found.difference.inputs} pairs"
        console.print(Text(f"{told}: {found.difference.sentence}"), soft_wrap=True)
    elif found.apart is not None:
        console.print(Text(found.apart), soft_wrap=True)
    if found.condition is not None or found.amplification is not None:
        print_table(console, lambda left_out: _table_by_layer(found, left_out), ("largest",))
    if found.condition is not None:
        _print_kinds(found.condition, console)
    if found.matrices is not None:
        _print_directions(found.matrices, console)
    if found.remark:
        print_message(f"attnlaw: {found.margins.model}: {found.remark}")


def show_together(found: Sequence[Any], console: Console) -> None:
    """What D is good for, after all models."""
    console.print(Text(f"D {D_MEANING}", style="dim"), soft_wrap=True)


def _headline(found: Any) -> str:
    own = found.margins
    middle, low, high = own.median
    words = [
        f"D {exp(own.mean_log.value):.3g} (x/: {exp(own.mean_log.error):.2f})",
        f"median {middle:.3g} [{low:.3g}, {high:.3g}]",
        f"{own.inputs} inputs",
    ]
    if own.ties or own.flat:
        words.append(f"{own.ties} ties, {own.flat} flat")
    if found.condition is not None:
        words.append(f"kappa {found.condition.total:.3g}, most in {found.condition.worst_place}")
    return "  ".join(words)


def _table_by_layer(found: Any, left_out: Sequence[str]) -> Table:
    """A line for each layer: kappa with a bar, amplification beside its worst case."""
    cells: dict[str, list[str]] = {}
    if found.condition is not None:
        own = [kappa for _, _, kappa in found.condition.places]
        top = max(own)
        cells["layer"] = [name for _, name, _ in found.condition.places]
        cells["kappa"] = [f"{kappa:.3g}" for kappa in own]
        cells[""] = [bar(kappa / top if 0 < top < float("inf") else 0.0, 16) for kappa in own]
    if found.amplification is not None:
        rows = found.amplification.rows
        worst = found.log10_worst_case
        names = cells.setdefault("layer", [str(row.layer) for row in rows])
        outside = [""] * (len(names) - len(rows))
        cells["amplification"] = [f"{row.median:.3g}" for row in rows] + outside
        cells["largest"] = [f"{row.max:.3g}" for row in rows] + outside
        cells["log10"] = [f"{log10(row.median):.2f}" if row.median else "–" for row in rows] + outside
        cells["worst case"] = ([f"{one:.2f}" for one in worst] if worst else ["–"] * len(rows)) + outside
    return column_table(cells, left_out, texts=("",))


def _print_kinds(condition: Any, console: Console) -> None:
    ranked = sorted(condition.by_kind.items(), key=lambda pair: -pair[1])[:MAX_KINDS]
    told = "  ".join(f"{kind} {kappa:.3g}" for kind, kappa in ranked)
    console.print(Text(f"kappa by kind: {told}"), soft_wrap=True)


def _print_directions(matrices: Sequence[Any], console: Console) -> None:
    known = [matrix for matrix in matrices if matrix.effective_directions is not None]
    counts: dict[str, tuple[int, int]] = {}
    for one in known:
        directions, ranks = counts.get(one.kind, (0, 0))
        counts[one.kind] = directions + one.effective_directions, ranks + one.rank
    told = [f"{KINDS[kind].label} {directions} of {ranks}" for kind, (directions, ranks) in counts.items()]
    console.print(Text(f"effective directions: {'  '.join(told)}"), soft_wrap=True)
