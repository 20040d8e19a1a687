"""The answer of margins in words: how models compare, and what limits the comparison."""

from __future__ import annotations

import shlex
from math import exp
from typing import Any

from attnlaw.analysis.forward.inputs import input_words
from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.result import Result
from attnlaw.core.tables import unique_short_names
from attnlaw.render.model_names import lines_about_models

LONGEST_COMMAND = 120  # letters; a longer command is not repeated


def answer(result: Result) -> Answer:
    """Return how models compare, what limits the comparison, and the commands to try next."""
    rows = result.finished_rows
    names = unique_short_names(rows["model"])
    measured = list(zip(names, rows.iter_rows(named=True), strict=True))
    lines = [_comparison(name, names[0], row) for name, row in measured[1:] if row["comparison"]]
    if len(measured) == 1:
        lines.append(_single_line(measured[0][1]))
    for name, row in measured:
        prefix = f"{name}: " if len(measured) > 1 else ""
        lines += _place_line(result, prefix, row) + _amplification_line(result, prefix, row)
    return Answer((*lines, *_warnings(measured)), next_commands(measured[0][1], names))


def next_commands(row: dict[str, Any], names: list[str]) -> dict[str, str]:
    """Return the command with further options, or the options alone if it has several models or is long."""
    words = ["attnlaw", "margins", row["model"], *input_words(row)]
    words += [f"--{name}" for name in ("kappa", "amplification") if row[name]]
    command = shlex.join(words)
    start = f"{command} " if len(command) <= LONGEST_COMMAND and len(names) == 1 else ""
    return {
        **({} if row["kappa"] else {f"{start}--kappa": "which layers the margin depends on"}),
        f"{start}--out results": "D of every input, in results/report.html",
    }


def distance_text(row: dict[str, Any]) -> str:
    """Format D of a model with its standard error as a factor."""
    if row["geometric_mean"] is None:
        return "D has no mean"
    return f"D {row['geometric_mean']:.3g} (×/÷ {exp(row['mean_log_error'] or 0.0):.2f})"


def _single_line(row: dict[str, Any]) -> Line:
    inputs = f"{row['inputs']} inputs without labels"
    return Line(
        f"{distance_text(row)} on {inputs}. One number says little: compare it with D of other models."
    )


def _comparison(name: str, first: str, row: dict[str, Any]) -> Line:
    if row["log_ratio"] is None:
        return Line(f"{name} cannot be compared with {first}: {row['comparison']}.", AnswerStatus.WARNING)
    return Line(f"D of {name}, compared with {first}: {row['comparison']}.")


def _place_line(result: Result, name: str, row: dict[str, Any]) -> list[Line]:
    """Return where the margin depends on the weights most, if that was measured."""
    if row["total_kappa"] is None:
        return []
    places = result.finished_table("kappa_layers").filter(case=row["case"])
    worst = places.sort("kappa", descending=True, maintain_order=True).row(0, named=True)
    place = worst["place"] if worst["layer"] is None else f"layer {worst['place']}"
    return [
        Line(
            f"{name}{'a' if name else 'A'} relative change of the weights by {1 / row['total_kappa']:.2g} (1/κ) could flip a "
            f"typical prediction, to first order. The margin depends most on {place}."
        )
    ]


def _amplification_line(result: Result, name: str, row: dict[str, Any]) -> list[Line]:
    """Return which layer amplifies a small change most, if that was measured."""
    layers = result.finished_table("amplification").filter(case=row["case"])
    if not layers.height:
        return []
    most = layers.sort("median", descending=True, maintain_order=True).row(0, named=True)
    worst = most["log10_worst_case"]
    bound = "" if worst is None else f" The weights alone would allow 10^{worst:.1f}."
    change = f"a small change of the input of layer {most['layer']} moves the logits most"
    name = name or "On these inputs, "
    return [Line(f"{name}{change}: {most['median']:.3g} times as much.{bound}")]


def _warnings(measured: list[tuple[str, dict[str, Any]]]) -> list[Line]:
    """Return each remark once, with the models that it is about."""
    remarks = {name: filter(None, (row["remark"] or "").split("; ")) for name, row in measured}
    lines = lines_about_models(remarks)
    return [Line(f"{line[0].upper()}{line[1:]}.", AnswerStatus.WARNING) for line in lines]
