"""The answer of margins in words: how models compare, and what limits the comparison."""

from __future__ import annotations

import shlex
from math import exp
from typing import Any

from attnlaw.analysis.forward.inputs import input_words
from attnlaw.analysis.forward.margins import CLEAR, SAME
from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.result import Result
from attnlaw.core.tables import unique_short_names
from attnlaw.core.words import short_number
from attnlaw.render.model_names import lines_about_models
from attnlaw.verbs.typed import words_of

LONGEST_COMMAND = 400  # letters; a longer command is not repeated


def answer(result: Result) -> Answer:
    """Return a comparison of the models, its limits, and the commands to try next."""
    rows = result.finished_rows
    names = unique_short_names(rows["model"])
    measured = list(zip(names, rows.iter_rows(named=True), strict=True))
    lines = [_comparison(name, names[0], row) for name, row in measured[1:] if row["comparison"]]
    if len(measured) == 1:
        row = measured[0][1]
        lines += [_single_line(row), *_place_line(result, row), *_amplification_line(result, row)]
    return Answer((*lines, *_warnings(measured)), next_commands(result))


def next_commands(result: Result) -> dict[str, str]:
    """Return the command with more options. The command does not repeat an input that is too long."""
    row, models = result.finished_rows.row(0, named=True), list(dict.fromkeys(result.rows["model"]))
    words = ["attnlaw", "margins", *models, *input_words(row)]
    words += words_of(result.verb.settings, row, ("limit", "kappa", "amplification"))
    command = shlex.join(words)
    # D may not choose between causal language models, so another comparison comes next.
    if len(command) > LONGEST_COMMAND or (len(models) > 1 and row["extension"]):
        return page_commands(models)
    return {
        **({} if row["kappa"] else {f"{command} --kappa": "which layers the margin depends on"}),
        f"{command} --out results": "D of every input, in results/report.html",
    }


def page_commands(models: list[str]) -> dict[str, str]:
    """Return commands to try after the page was read."""
    commands = {shlex.join(["attnlaw", "audit", models[0]]): "check the weights of the model"}
    if len(models) > 1:
        commands = {shlex.join(["attnlaw", "diff", *models[:2]]): "see which matrices differ"} | commands
    return commands


def distance_text(row: dict[str, Any]) -> str:
    """Return D of a model as text, with its standard error as a factor."""
    if row["geometric_mean"] is None:
        return "D has no mean"
    return f"D {short_number(row['geometric_mean'])} (×/÷ {exp(row['mean_log_error'] or 0.0):.2f})"


def _single_line(row: dict[str, Any]) -> Line:
    inputs = f"{row['inputs']} inputs without labels"
    return Line(
        f"{distance_text(row)} on {inputs}. One D alone says little: compare it with the D of other models.",
        is_main=True,
    )


def _comparison(name: str, first: str, row: dict[str, Any]) -> Line:
    if row["log_ratio"] is None:
        return Line(f"{name} cannot be compared with {first}: {row['comparison']}.", AnswerStatus.WARNING)
    text = f"D of {name}, compared with {first}: {row['comparison']}."
    if not row["extension"] and abs(row["log_ratio"]) >= max(SAME, CLEAR * (row["log_ratio_error"] or 0.0)):
        text += f" This suggests that {name if row['log_ratio'] > 0 else first} generalises better."
    return Line(text, is_main=True)


def most_sensitive_place(result: Result, row: dict[str, Any]) -> str:
    """Return the layer, or the linear map outside the layers, with the largest condition number."""
    places = result.finished_table("kappa_layers").filter(case=row["case"])
    worst = places.sort("kappa", descending=True, maintain_order=True).row(0, named=True)
    return str(worst["place"]) if worst["layer"] is None else f"layer {worst['place']}"


def _place_line(result: Result, row: dict[str, Any]) -> list[Line]:
    if row["total_kappa"] is None:
        return []
    text = f"A relative change of the weights by {1 / row['total_kappa']:.2g} could flip a typical"
    place = most_sensitive_place(result, row)
    kappa = row["total_kappa"]
    total = (
        f"This is 1/κ with κ = {f'{kappa:,.0f}' if kappa >= 100 else f'{kappa:.3g}'} for all maps together."
    )
    return [Line(f"{text} prediction, to first order. {total} The margin depends most on {place}.")]


def _amplification_line(result: Result, row: dict[str, Any]) -> list[Line]:
    layers = result.finished_table("amplification").filter(case=row["case"])
    if not layers.height:
        return []
    most = layers.sort("median", descending=True, maintain_order=True).row(0, named=True)
    text = (
        f"A small change of the input of layer {most['layer']} moves the logits most: "
        f"{short_number(most['median'])}"
    )
    worst = most["log10_worst_case"]
    bound = "" if worst is None else f" The weights alone would allow 10^{worst:.1f}."
    return [Line(f"{text} times as much.{bound}")]


def _warnings(measured: list[tuple[str, dict[str, Any]]]) -> list[Line]:
    remarks = {name: filter(None, (row["remark"] or "").split("; ")) for name, row in measured}
    lines = lines_about_models(remarks)
    return [Line(f"{line[0].upper()}{line[1:]}.", AnswerStatus.WARNING) for line in lines]
