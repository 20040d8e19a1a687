"""A comparison in the terminal: the verdict in one sentence, a line per layer, what changed most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlaw.checkpoints.network import KINDS
from attnlaw.core.result import Result
from attnlaw.core.tables import short_names
from attnlaw.render.terminal.console import column_table, format_number, print_table, sparkline
from attnlaw.verbs.audit.names import model_names

WORST = 5  # tensors that are named
# Columns that a narrow screen goes without, in this order.
DROPPABLE_COLUMNS = ("scale", "intruders", "z", "rank")
LEGEND = (
    "size: |update| / |base| by head, and the largest. Medians of a layer: rank, singular values of an "
    "update above the rounding of the file; scale, below 1 the maps shrank; z, how far updates keep to the "
    "base's leading directions, in deviations of chance. intruders: of the model's first 10 directions of "
    "each map, those that no vector of the base is near; new: those outside its directions of like size."
)


def show_case(result: Result, console: Console) -> None:
    """Print one comparison."""
    summary = result.summary
    console.print()
    title = Text(summary["model"], style="bold").append(f" against {summary['base']}", style="dim")
    console.print(title, soft_wrap=True)
    console.print(Text(summary["sentence"]))
    inside = result.diff.filter(pl.col("layer").is_not_null())
    if inside["size"].count() and inside["size"].max():
        print_table(console, lambda left_out: _layers(inside, left_out), DROPPABLE_COLUMNS)
    changed = result.diff_tensors.filter(pl.col("size") > 0).sort("size", descending=True).head(WORST)
    if changed.height:
        console.print(Text("changed most", style="bold"))
        print_table(console, lambda _: _tensors(changed))


def show_summary(result: Result, console: Console) -> None:
    """Print a row for each of several models, in their order."""
    console.print()
    if len(result) > 1:
        _show_models(result, console)
    if (result.diff["size"].max() or 0) > 0:
        console.print(Text(LEGEND, style="dim"))
        console.print()


def _show_models(result: Result, console: Console) -> None:
    rows = result.rows
    cells = {"model": list(short_names(model_names(result)).values())}
    cells["verdicts"] = [", ".join(verdicts) for verdicts in rows["verdicts"]]
    for kind in KINDS:
        if f"size_{kind}" in rows.columns and rows[f"size_{kind}"].count():
            cells[KINDS[kind].label] = [_percent(size) for size in rows[f"size_{kind}"]]
    cells["largest"] = [_percent(size) for size in rows["largest_size"]]
    cells["new"] = [str(count) for count in rows["new"]]
    console.print()
    print_table(
        console,
        lambda left_out: column_table(cells, left_out, texts=("model", "verdicts")),
        ["new", "largest"],
    )
    console.print(Text("Median sizes of updates by kind of map, and the largest.", style="dim"))
    console.print()


def _layers(maps: pl.DataFrame, left_out: Sequence[str]) -> Table:
    """One line per layer: sizes of every kind of map, then what all of them say."""
    kinds = [kind for kind in KINDS if kind in set(maps["kind"])]
    tops = {kind: maps.filter(pl.col("kind") == kind)["size"].max() or 0.0 for kind in kinds}
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), collapse_padding=True)
    table.add_column("\nlayer", no_wrap=True)
    for kind in kinds:
        table.add_column(
            f"{KINDS[kind].label}\nsize", no_wrap=True, justify="left" if _many(maps, kind) else "right"
        )
    shown = [name for name in ("rank", "scale", "z", "intruders", "new") if name not in left_out]
    for name in shown:
        table.add_column(f"\n{name}", justify="right", no_wrap=True)
    for (stack, layer), rows in maps.group_by("stack", "layer", maintain_order=True):
        cells = [Text(f"{stack or ''} {layer}".strip())]
        cells += [Text(_sizes(rows.filter(pl.col("kind") == kind), tops[kind])) for kind in kinds]
        said = {
            "rank": format_number(rows["rank"].median(), ".0f"),
            "scale": format_number(rows["scale"].median(), ".3f"),
            "z": format_number(
                rows.select(pl.concat_list("z_left", "z_right").explode()).to_series().median(), ".1f"
            ),
            "intruders": _both(rows, "intruders"),
            "new": _both(rows, "new"),
        }
        table.add_row(*cells, *(said[name] for name in shown))
    return table


def _many(maps: pl.DataFrame, kind: str) -> bool:
    return bool(maps.filter(pl.col("kind") == kind).group_by("layer", "stack").len()["len"].max() != 1)


def _sizes(rows: pl.DataFrame, top: Any) -> str:
    """A block for each head or expert, and the largest."""
    sizes = rows["size"].drop_nulls().to_list()
    if not sizes:
        return ""
    blocks = f"{sparkline(sizes, top)} " if 1 < len(sizes) <= 32 else ""
    return f"{blocks}{_percent(max(sizes))}"


def _both(rows: pl.DataFrame, name: str) -> str:
    total = sum(int(rows[f"{name}_{side}"].sum()) for side in ("left", "right"))
    return str(total) if total else "·"


def _tensors(rows: pl.DataFrame) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), collapse_padding=True)
    table.add_column("tensor", overflow="fold")
    for title in ("size", "dB", "unchanged"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows.iter_rows(named=True):
        rank = f", rank {row['rank']}" if row["verdict"] == "low-rank" else ""
        form = f" to {row['format']}" if row["format"] else ""
        table.add_row(
            Text(row["tensor"]),
            _percent(row["size"]),
            format_number(row["sqnr_db"], ".1f"),
            _percent(row["unchanged"]),
            Text(f"{row['verdict']}{rank}{form}"),
        )
    return table


def _percent(value: Any) -> str:
    """
    >>> _percent(0.2345), _percent(0.00166), _percent(0.0), _percent(None)
    ('23.4%', '0.166%', '0%', '')
    """
    if value is None:
        return ""
    return f"{100 * value:.3g}%" if value < 1e4 else f"{value:.2g}×"
