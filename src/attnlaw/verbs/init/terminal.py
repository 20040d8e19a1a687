"""An untrained model in the terminal: remarks, then a line for each layer, then logits and loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import format_with_error
from attnlaw.render.terminal.console import Column, print_table

if TYPE_CHECKING:
    from attnlaw import InitResult

TITLES = {
    "rms": "rms",
    "cosine": "cosine",
    "effective_rank": "eff. rank",
    "entropy": "entropy",
    "score_sd": "score sd",
    "gradient": "gradient",
}
OUTPUT_TITLES = {
    "own_probability": "own token",
    "gradient_norm": "gradient",
    "angle_exponent": "angle exponent",
}
MOST_LAYERS = 16  # a deeper model shows only every second, third, ... layer


def show_case(result: InitResult, console: Console, details: bool = False) -> None:
    """Print one model at one width."""
    console.print(Text(_headline(result), style="bold"), soft_wrap=True)
    if remark := result.row()["remark"]:
        for line in remark.split("; "):
            console.print(Text(f"- {line}"), soft_wrap=True)
    print_table(console, _layer_columns(result), ("eff. rank", "score sd", "entropy"))
    console.print(Text(_output_summary(result.values())), soft_wrap=True)


def show_summary(result: InitResult, console: Console, details: bool = False) -> None:
    """Print what the numbers mean. This comes once, after all models."""
    words = "means with standard errors over initialisations; entropy is over that of uniform attention"
    read = ", ".join(dict.fromkeys(result.rows["initialiser"]))
    console.print(Text(f"{words}; initialisers as read from {read}", style="dim"), soft_wrap=True)


def _headline(result: InitResult) -> str:
    row, (kind, random) = result.row(), result.architecture.row(0)
    width = "the limit of infinite width" if row["model_width"] is None else f"width {row['model_width']}"
    tokens = row["tokens"] if row["ids"] is None else len(row["ids"])
    drawn = f"{row['draws']} initialisations" if random else "not random"
    return f"{kind}, {width}, {result.layers.height - 1} layers, {tokens} tokens: {drawn}"


def _layer_columns(result: InitResult) -> list[Column]:
    layers = result.layers.rows(named=True)
    step = -(-len(layers) // MOST_LAYERS)
    last = len(layers) - 1
    shown = [layer for layer in layers if layer["layer"] in (0, 1, last) or layer["layer"] % step == 0]
    columns = [Column("layer", [str(layer["layer"]) for layer in shown])]
    for name, title in TITLES.items():
        cells = [
            "" if layer[name] is None else format_with_error(layer[name], layer[f"{name}_error"])
            for layer in shown
        ]
        columns += [Column(title, cells)] if any(cells) else []
    return columns


def _output_summary(values: Mapping[str, Any]) -> str:
    words = [f"logit sd {values['logit_sd']}"]
    if values["loss"] is not None:
        words.append(f"loss {values['loss']} (ln V {values['uniform_loss']:.4f})")
    for name, title in OUTPUT_TITLES.items():
        if values[name] is not None:
            words.append(f"{title} {values[name]}")
    return ", ".join(words)
