"""Print a comparison in the terminal: the answer, a line for each layer that changed, and what to try
next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.analysis.diff.columns import TENSOR_VERDICTS
from attnlaw.analysis.diff.places import layer_of, layers_text, name_in_layer, stack_names
from attnlaw.analysis.diff.summary import percent, verdict_detail, verdict_text
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.tables import short_names
from attnlaw.render.model_names import model_names
from attnlaw.render.terminal.console import Column, format_number, print_table, sparkline
from attnlaw.render.terminal.screen import print_answer, print_definitions, print_next, print_title
from attnlaw.verbs.diff.answer import answer

if TYPE_CHECKING:
    from attnlaw import DiffResult

WORST = 5  # number of tensors that --details lists
MOST_LAYERS = 16  # more changed layers are listed only with --details
LONG_NAME = 36  # longer names of tensors may take several lines
MOST_VERDICT = 24  # letters in a line of a verdict
OUTSIDE = "outside"  # what the table calls tensors that belong to no layer
SIZES = "the largest change in the layer: |model − base| / |base| (Frobenius norms)"
SIZE_COLUMNS = {"change of matrices": False, "change of vectors": True}  # whether a column is about vectors
TENSOR_MEANINGS = {
    "dB": "the same size in decibels, 20 log10(|base| / |model − base|); a higher value is a smaller change",
    "unchanged": "share of the entries that are the same in base and model",
}
MAP_MEANINGS = {
    "QK, VO": "size of the change of each head (bars), and the largest; FFN: of the matrix",
    "rank": "smallest and largest number of directions in which these changes exceed the rounding of the "
    "file. QK and VO are products of two tensors, so their change can have twice the rank of a tensor's "
    "change.",
    "scale": "⟨model, base⟩ / |base|², the value furthest from 1; below 1, a matrix shrank",
    "z": "how much of the changes is along the base's leading directions, in standard deviations above that "
    "of random changes; the value furthest from 0",
    "intruders": "number of the model's first 10 directions that resemble no direction of the base",
    "new": "number of these 10 that are not combinations of the base's directions of similar size",
}


def show_case(result: DiffResult, console: Console, details: bool = False) -> None:
    """Print one comparison."""
    summary = result.summary
    console.print()
    print_title(console, summary["model"], f"compared with {summary['base']}")
    print_answer(console, answer(result, details))
    _show_layers(result, console, details)
    if details:
        _show_tensors(result, console)
        _show_maps(result, console)


def show_summary(result: DiffResult, console: Console, details: bool = False) -> None:
    """Print a row for each of several models, what its columns mean, and the next commands."""
    if len(result) > 1:
        _show_models(result, console, details)
    changed = result.diff_tensors.filter(pl.col("verdict") != "identical")
    if changed.height:
        present = set(changed["verdict"])
        meanings = {name: verdict.says for name, verdict in TENSOR_VERDICTS.items() if name in present}
        kinds = {_is_vector(row) for row in changed.iter_rows(named=True) if row["size"] is not None}
        titles = [title for title, is_vector in SIZE_COLUMNS.items() if is_vector in kinds]
        sizes = {", ".join(titles): SIZES} if titles else {}
        maps = MAP_MEANINGS if details and (result.diff["size"].max() or 0) else {}
        if maps and result.diff["stack"].count():
            maps = {
                "layer": "in the table of heads, the count of layers continues from one stack to the next"
            } | maps
        tensors = TENSOR_MEANINGS if details and kinds else {}
        print_definitions(console, sizes | tensors | meanings | maps)
        console.print()
    if commands := answer(result).next_commands:
        print_next(console, commands)
        console.print()


def _show_models(result: DiffResult, console: Console, details: bool) -> None:
    rows = result.rows
    columns = [
        Column("model", list(short_names(model_names(result)).values()), is_text=True),
        Column("largest size", [_percent(size) for size in rows["worst_tensor_size"]]),
        Column("verdicts on tensors", [", ".join(names) for names in rows["verdicts"]], True, wraps=True),
    ]
    print_table(console, columns)
    console.print()
    if details:
        sizes = {kind.label: f"size_{name}" for name, kind in KINDS.items() if f"size_{name}" in rows.columns}
        known = {label: name for label, name in sizes.items() if rows[name].count()}
        known |= {"largest": "largest_size"}
        numbers = [Column(label, [_percent(size) for size in rows[name]]) for label, name in known.items()]
        console.print(Text("Median size of changes by kind of matrix, and the largest", style="bold"))
        print_table(console, [columns[0], *numbers, Column("new", [str(count) for count in rows["new"]])])
        console.print()


def _show_layers(result: DiffResult, console: Console, details: bool) -> None:
    """Print a line for each layer with a change, and one sentence about layers without any."""
    layers: dict[tuple[str, int] | None, list[dict[str, Any]]] = {}
    for row in result.diff_tensors.iter_rows(named=True):
        layers.setdefault(layer_of(row["tensor"]), []).append(row)
    changed = {
        place: [row for row in rows if row["verdict"] != "identical"] for place, rows in layers.items()
    }
    places = sorted((place for place, rows in changed.items() if rows), key=_order)
    if not places:
        return
    inside = [place for place in layers if place is not None]
    stacks = stack_names((prefix for prefix, _ in inside), result.diff["stack"])
    left_out: list[Any] = []
    if not details and len(places) > MOST_LAYERS:
        largest = sorted(places, key=lambda place: _weight(_worst(changed[place])), reverse=True)
        left_out = largest[MOST_LAYERS:]
        places = largest[:MOST_LAYERS]
        places.sort(key=_order)
    worst = [_worst(changed[place]) for place in places]
    names = [name_in_layer(row["tensor"]) if any(_weight(row)) else "–" for row in worst]
    wide = max(map(len, names)) > LONG_NAME
    labels = [OUTSIDE if place is None else f"{stacks[place[0]]} {place[1]}".strip() for place in places]
    columns = [
        Column("layer", labels, is_text=True),
        *_size_columns([changed[place] for place in places]),
        Column("in tensor", names, is_text=True, wraps=wide),
        Column("what happened", [_verdicts(layers[place]) for place in places], True, wraps=True),
    ]
    print_table(console, columns)
    if left_out:
        sizes = [row["size"] for place in left_out for row in changed[place] if row["size"]]
        to = f" (by at most {percent(max(sizes))})" if sizes else ""
        console.print(
            Text(f"{len(left_out)} more layers changed less{to}: --details shows all.", style="dim")
        )
    same = [place for place in inside if not changed[place]]
    by_stack = {prefix: [number for stack, number in same if stack == prefix] for prefix, _ in same}
    sentences = [layers_text(stacks[prefix] or None, numbers) for prefix, numbers in by_stack.items()]
    if sentences:
        every = f"{'; '.join(sentences)}: every tensor is identical."
        console.print(Text(every, style="dim"))
    console.print()


def _size_columns(layers: Sequence[Sequence[dict[str, Any]]]) -> list[Column]:
    columns = []
    for title, is_vector in SIZE_COLUMNS.items():
        sizes = [
            [row["size"] for row in rows if row["size"] is not None and _is_vector(row) == is_vector]
            for rows in layers
        ]
        if any(sizes):
            shown = [_percent(max(known, default=None)) or "–" for known in sizes]
            columns.append(Column(title.replace(" of ", " of\n"), shown))
    return columns


def _is_vector(row: dict[str, Any]) -> bool:
    return bool(sum(side > 1 for side in row["shape"]) < 2)


def _order(place: tuple[str, int] | None) -> tuple[bool, str, int]:
    return (True, "", 0) if place is None else (False, *place)


def _worst(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return max(rows, key=_weight)


def _weight(row: dict[str, Any]) -> tuple[bool, float]:
    return row["verdict"] == "non-finite", row["size"] or 0.0


def _verdicts(rows: Sequence[dict[str, Any]]) -> str:
    counts = Counter(row["verdict"] for row in rows)
    texts = []
    for verdict in sorted(TENSOR_VERDICTS, key="identical".__eq__):  # identical comes last
        if counts[verdict]:
            detail = verdict_detail([row for row in rows if row["verdict"] == verdict])
            texts.append(f"{counts[verdict]} {verdict}{f' ({detail})' if detail else ''}")
    return ", ".join(texts)


def _show_tensors(result: DiffResult, console: Console) -> None:
    changed = result.diff_tensors.filter(pl.col("size") > 0).sort("size", descending=True).head(WORST)
    if changed.height:
        console.print(Text("Tensors that changed most", style="bold"))
        print_table(console, _tensor_columns(changed), tight=True)
        console.print()


def _show_maps(result: DiffResult, console: Console) -> None:
    inside = result.diff.filter(pl.col("layer").is_not_null())
    if inside["size"].count() and inside["size"].max():
        console.print(Text("Heads (QK, VO) and feed-forward matrices (FFN)", style="bold"))
        print_table(console, _map_columns(inside), ("scale", "intruders", "z", "rank"), tight=True)
        console.print()


def _map_columns(maps: pl.DataFrame) -> list[Column]:
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
    z = [rows.select(pl.concat_list("z_left", "z_right").explode()).to_series() for rows in layers]
    return [
        *columns,
        Column("\nrank", [_range(rows["rank"].drop_nulls().to_list()) for rows in layers]),
        Column("\nscale", [format_number(_furthest(rows["scale"], 1.0), ".3f") for rows in layers]),
        Column("\nz", [format_number(_furthest(values, 0.0), ".1f") for values in z]),
        Column("\nintruders", [_both(rows, "intruders") for rows in layers]),
        Column("\nnew", [_both(rows, "new") for rows in layers]),
    ]


def _range(values: Sequence[int]) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _furthest(values: pl.Series, centre: float) -> float | None:
    return max(values.drop_nulls().to_list(), key=lambda value: abs(value - centre), default=None)


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
        Column("verdict", [*map(verdict_text, rows.iter_rows(named=True))], True, True, MOST_VERDICT),
    ]


def _percent(value: Any) -> str:
    return "" if value is None else percent(value)
