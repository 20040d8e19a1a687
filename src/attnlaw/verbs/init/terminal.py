"""The screen of `init`: whether a model starts well, then a line for each layer or for each model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console
from rich.text import Text

from attnlaw.core.settings import setting_fields
from attnlaw.core.words import count_of
from attnlaw.render.describe_rows import varying_settings
from attnlaw.render.terminal.cases import (
    known_quantities,
    number_cells,
    print_measures,
    print_quantities,
    setting_columns,
)
from attnlaw.render.terminal.console import Column
from attnlaw.render.terminal.screen import (
    print_answer,
    print_definitions,
    print_hanging,
    print_next,
    print_title,
)
from attnlaw.verbs.init.answer import answer

if TYPE_CHECKING:
    from attnlaw import InitResult

# Title, meaning, and whether only `--details` shows it, by the name of a measure of layers.
COLUMNS = {
    "rms": ("size", "root mean square of the entries of the residual stream", False),
    "cosine": ("cosine", "mean cosine between different tokens; 1 means that all are parallel", False),
    "effective_rank": (
        "rank",
        "effective number of directions that the tokens span (not a whole number)",
        False,
    ),
    "entropy": ("entropy", "mean entropy of attention, divided by that of uniform attention", False),
    "score_sd": ("scores", "standard deviation of the attention scores", True),
    "gradient": ("gradient", "norm of the loss gradient with respect to the weights of the layer", False),
}
CASE_COLUMNS = {
    "rms": ("size", "root mean square of the entries of the residual stream after the last layer"),
    "cosine": ("cosine", "mean cosine between tokens after the last layer; 1 means that all are parallel"),
    "entropy": ("entropy", "mean entropy of attention in layer 1, divided by that of uniform attention"),
    "loss": ("loss", "initial loss in nats"),
    "uniform_loss": ("ln V", "loss of a uniform guess over a vocabulary of V ids, in nats"),
    "gradient_norm": ("gradient", "norm of the loss gradient with respect to all weights"),
}
OUTPUT_QUANTITIES = (
    "logit_sd",
    "loss",
    "loss_spread",
    "uniform_loss",
    "own_probability",
    "own_cosine",
    "cosine_spread",
    "angle_exponent",
    "gradient_norm",
    "gradient_exponent",
)
MOST_LAYERS = 9  # a deeper model shows only some layers on the first screen


def show_case(result: InitResult, console: Console, details: bool = False) -> None:
    """Print one model at one width: what the numbers mean, and with `details` all layers."""
    print_title(console, *_title(result))
    print_answer(console, answer(result))
    if details:
        meanings = _print_layers(result, console, details)
        console.print()
        print_definitions(console, meanings)
        console.print()
        known, values = known_quantities(result)
        print_quantities(
            console, [quantity for quantity in known if quantity.name in OUTPUT_QUANTITIES], values
        )
        console.print()


def show_summary(result: InitResult, console: Console, details: bool = False) -> None:
    """Print the layers of one model (or a line for each of several), meanings, and next commands."""
    meanings: dict[str, str] = {}
    if len(result) > 1:
        meanings = _print_cases(result, console)
    elif not details:
        meanings = _print_layers(result, console, details)
    draws = ", ".join(str(count) for count in result.rows["draws"].unique().sort())
    meanings["0.25(1)"] = f"0.25 with a standard error of 0.01, over {draws} initialisations"
    if not details:
        console.print()
    print_definitions(console, meanings)
    read = " and ".join(dict.fromkeys(result.rows["initialiser"]))
    note = f"Weights are drawn as {read} draws them. The authors may have used other values: see --std."
    print_hanging(console, Text(), note, style="dim")
    console.print()
    print_next(console, answer(result).next_commands)


def _title(result: InitResult) -> tuple[str, str]:
    row, (kind, random) = result.row(), result.architecture.row(0)
    layers = result.layers.height - 1
    tokens = row["tokens"] if row["ids"] is None else len(row["ids"])
    facts = [
        kind,
        "infinite width" if row["model_width"] is None else f"width {row['model_width']}",
        count_of(layers, "layer"),
        count_of(tokens, "random token" if row["ids"] is None else "token"),
        *([f"std {row['std']:g}"] if row["std"] is not None else []),
        count_of(row["draws"], "initialisation") if random else "not random",
    ]
    return row["model"], " · ".join(facts[1:] if kind == row["model"] else facts)


def _print_layers(result: InitResult, console: Console, details: bool) -> dict[str, str]:
    layers = result.layers
    step = 1 if details else -(-layers.height // MOST_LAYERS)
    number = pl.col("layer")
    shown = layers.filter(number.is_in([0, 1, layers.height - 1]) | (number % step == 0))
    measures = [
        (title, meaning, number_cells(shown, name))
        for name, (title, meaning, hidden) in COLUMNS.items()
        if details or not hidden
    ]
    first = Column("layer", [str(layer) for layer in shown["layer"]])
    return print_measures(console, [first], measures, ("scores", "rank", "entropy"))


def _print_cases(result: InitResult, console: Console) -> dict[str, str]:
    known = setting_fields(result.verb.settings)
    names = [name for name in varying_settings(result.rows, known) or ["model"] if name != "seed"]
    columns = [
        column._replace(is_text=name == "model")
        for name, column in zip(names, setting_columns(result, result.rows, names), strict=True)
    ]
    texts = {name: known[name].rule.help.split(". ")[0].rstrip(".") for name in names}
    meanings = {name.replace("_", " "): f"{text[:1].lower()}{text[1:]}" for name, text in texts.items()}
    measures = [
        (title, meaning, number_cells(result.rows, name)) for name, (title, meaning) in CASE_COLUMNS.items()
    ]
    return meanings | print_measures(console, columns, measures, ("gradient", "ln V", "entropy", "size"))
