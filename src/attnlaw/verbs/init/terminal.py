"""The screen of `init`: whether a model starts well, then a line for each layer or for each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import format_column, format_value
from attnlaw.core.settings import setting_fields
from attnlaw.core.words import count_of
from attnlaw.render.describe_rows import ValueLabels, varying_settings
from attnlaw.render.terminal.console import Column, print_table
from attnlaw.render.terminal.screen import print_answer, print_definitions, print_next, print_title, without
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
    "gradient": ("gradient", "norm of the gradient of the weights of the layer", False),
}
CASE_COLUMNS = {
    "rms": ("size", "root mean square of the entries of the residual stream after the last layer"),
    "cosine": ("cosine", "mean cosine between tokens after the last layer; 1 means that all are parallel"),
    "entropy": ("entropy", "mean entropy of attention in layer 1, divided by that of uniform attention"),
    "loss": ("loss", "initial loss in nats"),
    "uniform_loss": ("ln V", "loss of a uniform guess over a vocabulary of V ids, in nats"),
    "gradient_norm": ("gradient", "norm of the gradient of all weights"),
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
    """Print one model at one width: the meaning of the numbers, and with `details` all layers."""
    print_title(console, *_title(result))
    print_answer(console, answer(result))
    if details:
        meanings = _print_layers(result, console, details)
        console.print()
        print_definitions(console, meanings)
        console.print()
        values = result.values()
        quantities = [quantity for quantity in result.verb.quantities if quantity.name in OUTPUT_QUANTITIES]
        known = [quantity for quantity in quantities if values[quantity.name] is not None]
        columns = [
            Column("quantity", [quantity.label for quantity in known], is_text=True),
            Column("", [format_value(values[quantity.name]) for quantity in known]),
            Column("", [quantity.description for quantity in known], is_text=True, wraps=True),
        ]
        print_table(console, columns)
        console.print()


def show_summary(result: InitResult, console: Console, details: bool = False) -> None:
    """Print the layers of one model or a line for each of several, the meanings, and the next commands."""
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
    console.print(Text(note, style="dim"))
    console.print()
    print_next(console, answer(result).next_commands)


def _title(result: InitResult) -> tuple[str, str]:
    """Return the name of the model, and its sizes."""
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
    """Print a line for each layer. Return the meanings of the columns."""
    layers = result.layers.rows(named=True)
    last = len(layers) - 1
    step = 1 if details else -(-len(layers) // MOST_LAYERS)
    shown = [layer for layer in layers if layer["layer"] in (0, 1, last) or layer["layer"] % step == 0]
    columns, meanings = [Column("layer", [str(layer["layer"]) for layer in shown])], {}
    for name, (title, meaning, hidden) in COLUMNS.items():
        cells = _cells(shown, name)
        if any(cells) and (details or not hidden):
            columns.append(Column(title, cells))
            meanings[title] = meaning
    return without(meanings, print_table(console, columns, ("scores", "rank", "entropy")))


def _cells(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    values, errors = [row[name] for row in rows], [row.get(f"{name}_error") for row in rows]
    if any(errors):
        return format_column(values, errors)
    return ["" if value is None else f"{value:.4g}" for value in values]


def _print_cases(result: InitResult, console: Console) -> dict[str, str]:
    """Print a line for each model. Return the meanings of the columns."""
    labels, rows = ValueLabels(result.verb, result.rows), result.rows.rows(named=True)
    names = varying_settings(result.rows, setting_fields(result.verb.settings)) or ["model"]
    columns = [
        Column(
            name.replace("_", " "),
            ["" if row[name] is None else labels.label_of(name, row[name]) for row in rows],
            is_text=name == "model",
        )
        for name in names
        if name != "seed"
    ]
    known = setting_fields(result.verb.settings)
    texts = {name: known[name].rule.help.split(". ")[0].rstrip(".") for name in names if name != "seed"}
    meanings = {name.replace("_", " "): f"{text[:1].lower()}{text[1:]}" for name, text in texts.items()}
    for name, (title, meaning) in CASE_COLUMNS.items():
        cells = _cells(rows, name)
        if any(cells):
            columns.append(Column(title, cells))
            meanings[title] = meaning
    return without(meanings, print_table(console, columns, ("gradient", "ln V", "entropy", "size")))
