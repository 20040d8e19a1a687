"""Print a comparison in the terminal: the verdict in a sentence, each layer, and the largest changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.analysis.diff.summary import percent, verdict_text
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.tables import short_names
from attnlaw.render.model_names import model_names
from attnlaw.render.terminal.console import Column, format_number, print_table, sparkline

if TYPE_CHECKING:
    from attnlaw import DiffResult

WORST = 5  # tensors that are listed
LEGEND = (
    "size: |update| / |base| by head, and the largest. Medians of a layer: rank, singular values of an "
    "update above the rounding of the file; scale, below 1 the maps shrank; z, how far updates keep to the "
    "base's leading directions, in deviations of chance. intruders: of the model's first 10 directions of "
    "each map, those that no vector of the base is near; new: those outside its directions of like size."
)


def show_case(result: DiffResult, console: Console, details: bool = False) -> None:
    """Print one comparison."""
    summary = result.summary
    console.print()
    title = Text(summary["model"], style="bold").append(f" against {summary['base']}", style="dim")
    console.print(title, soft_wrap=True)
    console.print(Text(summary["sentence"]))
    console.print(Text(summary["compared"]))
    if summary["next_step"]:
        console.print(Text(summary["next_step"]))
    inside = result.diff.filter(pl.col("layer").is_not_null())
    if inside["size"].count() and inside["size"].max():
        print_table(console, _layer_columns(inside), ("scale", "intruders", "z", "rank"), tight=True)
    changed = result.diff_tensors.filter(pl.col("size") > 0).sort("size", descending=True).head(WORST)
    if changed.height:
        console.print(Text("changed most", style="bold"))
        print_table(console, _tensor_columns(changed), tight=True)


def show_summary(result: DiffResult, console: Console, details: bool = False) -> None:
    """Print a row for each of several models, in their order."""
    console.print()
    if len(result) > 1:
        _show_models(result, console)
    if (result.diff.select(pl.max("size")).item() or 0) > 0:
        console.print(Text(LEGEND, style="dim"))
        console.print()


def _show_models(result: DiffResult, console: Console) -> None:
    rows = result.rows
    sizes = {kind.label: f"size_{name}" for name, kind in KINDS.items() if f"size_{name}" in rows.columns}
    sizes = {label: name for label, name in sizes.items() if rows[name].count()} | {"largest": "largest_size"}
    columns = [
        Column("model", list(short_names(model_names(result)).values()), is_text=True),
        Column("verdicts", [", ".join(verdicts) for verdicts in rows["verdicts"]], is_text=True),
        *(Column(label, [_percent(size) for size in rows[name]]) for label, name in sizes.items()),
        Column("new", [str(count) for count in rows["new"]]),
    ]
    console.print()
    print_table(console, columns, ["new", "largest"])
    console.print(Text("Median sizes of updates by kind of map, and the largest.", style="dim"))
    console.print()


def _layer_columns(maps: pl.DataFrame) -> list[Column]:
    groups = maps.group_by("stack", "layer", maintain_order=True)
    labels = [f"{stack or ''} {layer}".strip() for (stack, layer), _ in groups]
    layers = [rows for _, rows in groups]
    columns = [Column("\nlayer", labels, is_text=True)]
    for name, kind in KINDS.items():
        of_kind = [rows.filter(pl.col("kind") == name) for rows in layers]
        if any(rows.height for rows in of_kind):
            top = max((rows["size"].max() or 0.0 for rows in of_kind), default=0.0)
            several = max(rows.height for rows in of_kind) != 1
            sizes = [_sizes(rows, top) for rows in of_kind]
            columns.append(Column(f"{kind.label}\nsize", sizes, is_text=several))
    z = [rows.select(pl.concat_list("z_left", "z_right").explode()).to_series().median() for rows in layers]
    return [
        *columns,
        Column("\nrank", [format_number(rows["rank"].median(), ".0f") for rows in layers]),
        Column("\nscale", [format_number(rows["scale"].median(), ".3f") for rows in layers]),
        Column("\nz", [format_number(value, ".1f") for value in z]),
        Column("\nintruders", [_both(rows, "intruders") for rows in layers]),
        Column("\nnew", [_both(rows, "new") for rows in layers]),
    ]


def _sizes(rows: pl.DataFrame, top: Any) -> str:
    """Return the sizes of a layer's updates as text: bars if there are 2 to 32, and the largest size."""
    sizes = rows["size"].drop_nulls().to_list()
    if not sizes:
        return ""
    blocks = f"{sparkline(sizes, top)} " if 1 < len(sizes) <= 32 else ""
    return f"{blocks}{_percent(max(sizes))}"


def _both(rows: pl.DataFrame, name: str) -> str:
    total = sum(int(rows[f"{name}_{side}"].sum()) for side in ("left", "right"))
    return str(total) if total else "·"


def _tensor_columns(rows: pl.DataFrame) -> list[Column]:
    return [
        Column("tensor", rows["tensor"].to_list(), is_text=True, wraps=True),
        Column("size", [_percent(size) for size in rows["size"]]),
        Column("dB", [format_number(ratio, ".1f") for ratio in rows["sqnr_db"]]),
        Column("unchanged", [_percent(share) for share in rows["unchanged"]]),
        Column("verdict", list(map(verdict_text, rows.iter_rows(named=True))), is_text=True, wraps=True),
    ]


def _percent(value: Any) -> str:
    return "" if value is None else percent(value)
