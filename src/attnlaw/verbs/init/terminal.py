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


def show(law: Any, console: Console) -> None:
    """Print one model at one width."""
    console.print(Text(_headline(law), style="bold"), soft_wrap=True)
    if law.remark:
        for line in law.remark.split("; "):
            console.print(Text(f"- {line}"), soft_wrap=True)
    print_table(console, lambda left_out: _layers(law, left_out), DROPPABLE_COLUMNS)
    console.print(Text(_output_summary(law)), soft_wrap=True)


def show_together(laws: Sequence[Any], console: Console) -> None:
    """What the numbers are, after all models."""
    words = "means with standard errors over initialisations; entropy is over that of uniform attention"
    read = ", ".join(dict.fromkeys(law.initialiser for law in laws))
    console.print(Text(f"{words}; initialisers as read from {read}", style="dim"), soft_wrap=True)


def _headline(law: Any) -> str:
    model = law.architecture
    limit = law.model_width is None
    width = "the limit of infinite width" if limit else f"width {law.model_width}"
    drawn = f"{law.draws} initialisations" if law.random else "not random"
    return f"{model.name}, {width}, {model.depth} layers, {len(law.tokens)} tokens: {drawn}"


def _layers(law: Any, left_out: Sequence[str]) -> Table:
    step = -(-len(law.layers) // MOST_LAYERS)
    last = len(law.layers) - 1
    shown = [layer for layer in law.layers if layer.layer in (0, 1, last) or layer.layer % step == 0]
    cells = {"layer": [str(layer.layer) for layer in shown]}
    for name, title in TITLES.items():
        values = [getattr(layer, name) for layer in shown]
        if any(value is not None for value in values):
            cells[title] = ["" if value is None else str(value.estimate) for value in values]
    return column_table(cells, left_out)


def _output_summary(law: Any) -> str:
    words = [f"logit sd {law.logit_sd}"]
    if law.loss is not None:
        words.append(f"loss {law.loss} (ln V {law.uniform_loss:.4f})")
    if law.own_probability is not None:
        words.append(f"own token {law.own_probability}")
    if law.gradient_norm is not None:
        words.append(f"gradient {law.gradient_norm}")
    if law.angle_exponent is not None:
        words.append(f"angle exponent {law.angle_exponent}")
    return ", ".join(words)
