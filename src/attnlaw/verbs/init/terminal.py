"""The law of a model before training in the terminal: remarks, then a line for each layer, then the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlaw.render.terminal.console import column_table, print_table

TITLES = {
    "rms": "rms",
    "cosine": "cosine",
    "effective_rank": "eff. rank",
    "entropy": "entropy",
    "score_sd": "score sd",
    "gradient": "gradient",
}
DROPPABLE_COLUMNS = ("eff. rank", "score sd", "entropy")  # what a narrow screen goes without, in this order
MOST_LAYERS = 16  # layers; beyond, every second, third, ... one


def show(found: Any, console: Console) -> None:
    """Print one model at one width."""
    console.print(Text(_headline(found), style="bold"), soft_wrap=True)
    if found.remark:
        for line in found.remark.split("; "):
            console.print(Text(f"- {line}"), soft_wrap=True)
    print_table(console, lambda left_out: _layers(found, left_out), DROPPABLE_COLUMNS)
    console.print(Text(_output_summary(found)), soft_wrap=True)


def show_together(found: Sequence[Any], console: Console) -> None:
    """What the numbers are, after all models."""
    words = "means with standard errors over initialisations; entropy is over that of uniform attention"
    read = ", ".join(dict.fromkeys(one.initialiser for one in found))
    console.print(Text(f"{words}; initialisers as read from {read}", style="dim"), soft_wrap=True)


def _headline(found: Any) -> str:
    model = found.architecture
    limit = found.model_width is None
    width = "the limit of infinite width" if limit else f"width {found.model_width}"
    drawn = f"{found.draws} initialisations" if found.random else "not random"
    return f"{model.name}, {width}, {model.depth} layers, {len(found.tokens)} tokens: {drawn}"


def _layers(found: Any, left_out: Sequence[str]) -> Table:
    step = -(-len(found.layers) // MOST_LAYERS)
    last = len(found.layers) - 1
    shown = [layer for layer in found.layers if layer.layer in (0, 1, last) or layer.layer % step == 0]
    cells = {"layer": [str(one.layer) for one in shown]}
    for name, title in TITLES.items():
        values = [getattr(one, name) for one in shown]
        if any(value is not None for value in values):
            cells[title] = ["" if value is None else str(value.estimate) for value in values]
    return column_table(cells, left_out)


def _output_summary(found: Any) -> str:
    words = [f"logit sd {found.logit_sd}"]
    if found.loss is not None:
        words.append(f"loss {found.loss} (ln V {found.uniform_loss:.4f})")
    if found.own_probability is not None:
        words.append(f"own token {found.own_probability}")
    if found.gradient_norm is not None:
        words.append(f"gradient {found.gradient_norm}")
    if found.angle_exponent is not None:
        words.append(f"angle exponent {found.angle_exponent}")
    return ", ".join(words)
