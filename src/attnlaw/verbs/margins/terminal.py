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


def show(measurement: Any, console: Console) -> None:
    """Print one model: the headline first, then bars of kappa and the amplification of each layer."""
    console.print(Text(measurement.margins.model, style="bold"), soft_wrap=True)
    console.print(Text(_headline(measurement)), soft_wrap=True)
    if measurement.difference is not None:
        ratio = measurement.difference.log_ratio
        summary = f"log ratio {ratio} to {measurement.compared_with}, {measurement.difference.inputs} pairs"
        console.print(Text(f"{summary}: {measurement.difference.sentence}"), soft_wrap=True)
    elif measurement.comparison_problem is not None:
        console.print(Text(measurement.comparison_problem), soft_wrap=True)
    if measurement.condition is not None or measurement.amplification is not None:
        print_table(console, lambda left_out: _table_by_layer(measurement, left_out), ("largest",))
    if measurement.condition is not None:
        _print_kinds(measurement.condition, console)
    if measurement.matrices is not None:
        _print_directions(measurement.matrices, console)
    if measurement.remark:
        print_message(f"attnlaw: {measurement.margins.model}: {measurement.remark}")


def show_together(measurements: Sequence[Any], console: Console) -> None:
    """What D is good for, after all models."""
    console.print(Text(f"D {D_MEANING}", style="dim"), soft_wrap=True)


def _headline(measurement: Any) -> str:
    margins = measurement.margins
    middle, low, high = margins.median
    words = [
        f"D {exp(margins.mean_log.value):.3g} (x/: {exp(margins.mean_log.error):.2f})",
        f"median {middle:.3g} [{low:.3g}, {high:.3g}]",
        f"{margins.inputs} inputs",
    ]
    if margins.ties or margins.flat:
        words.append(f"{margins.ties} ties, {margins.flat} flat")
    if measurement.condition is not None:
        words.append(f"kappa {measurement.condition.total:.3g}, most in {measurement.condition.worst_place}")
    return "  ".join(words)


def _table_by_layer(measurement: Any, left_out: Sequence[str]) -> Table:
    """A line for each layer: kappa with a bar, amplification beside its worst case."""
    cells: dict[str, list[str]] = {}
    if measurement.condition is not None:
        kappas = [kappa for _, _, kappa in measurement.condition.places]
        top = max(kappas)
        cells["layer"] = [name for _, name, _ in measurement.condition.places]
        cells["kappa"] = [f"{kappa:.3g}" for kappa in kappas]
        cells[""] = [bar(kappa / top if 0 < top < float("inf") else 0.0, 16) for kappa in kappas]
    if measurement.amplification is not None:
        rows = measurement.amplification.rows
        worst = measurement.log10_worst_case
        names = cells.setdefault("layer", [str(row.layer) for row in rows])
        outside = [""] * (len(names) - len(rows))
        cells["amplification"] = [f"{row.median:.3g}" for row in rows] + outside
        cells["largest"] = [f"{row.max:.3g}" for row in rows] + outside
        cells["log10"] = [f"{log10(row.median):.2f}" if row.median else "–" for row in rows] + outside
        cells["worst case"] = ([f"{bound:.2f}" for bound in worst] if worst else ["–"] * len(rows)) + outside
    return column_table(cells, left_out, texts=("",))


def _print_kinds(condition: Any, console: Console) -> None:
    ranked = sorted(condition.by_kind.items(), key=lambda pair: -pair[1])[:MAX_KINDS]
    listing = "  ".join(f"{kind} {kappa:.3g}" for kind, kappa in ranked)
    console.print(Text(f"kappa by kind: {listing}"), soft_wrap=True)


def _print_directions(matrices: Sequence[Any], console: Console) -> None:
    known = [matrix for matrix in matrices if matrix.effective_directions is not None]
    counts: dict[str, tuple[int, int]] = {}
    for matrix in known:
        directions, ranks = counts.get(matrix.kind, (0, 0))
        counts[matrix.kind] = directions + matrix.effective_directions, ranks + matrix.rank
    phrases = [f"{KINDS[kind].label} {directions} of {ranks}" for kind, (directions, ranks) in counts.items()]
    console.print(Text(f"effective directions: {'  '.join(phrases)}"), soft_wrap=True)
