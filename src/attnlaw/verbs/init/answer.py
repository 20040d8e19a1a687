"""The answer of `init`: whether an untrained model starts well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.command_line import command
from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.core.result import Result
from attnlaw.core.settings import setting_fields
from attnlaw.render.describe_rows import ValueLabels, varying_settings
from attnlaw.theory.init.remarks import SCORES, WIDE, Start, StartRemark, start_remarks
from attnlaw.verbs.init import LIMIT_WIDTH, OWN_WIDTH

MOST_LINES = 8  # sentences about several models
SUBJECT = "These are random initial weights as the config describes them, not the weights of a checkpoint."
STATUSES = {True: AnswerStatus.UNUSUAL, False: AnswerStatus.OK, None: None}  # of a start that is unusual


def answer(result: Result) -> Answer:
    """Return the answer for one untrained model, or for several."""
    rows = result.finished_rows
    remarks = [_remarks(row, result.tables["layers"]) for row in rows.iter_rows(named=True)]
    lines = [Line(f"{remark.text}.", STATUSES[remark.unusual]) for remark in remarks[0]]
    lines = [Line(SUBJECT), *(lines if rows.height == 1 else _several(result, remarks))]
    if (rows["status"] == Outcome.INEXACT).any():
        lines.append(Line("With --units, only means and covariances of hidden units are exact."))
    return Answer(tuple(lines), _next_commands(result, remarks))


def _remarks(row: dict[str, Any], layers: pl.DataFrame) -> list[StartRemark]:
    layers = layers.filter(pl.col("case") == row["case"])

    def by_layer(name: str) -> dict[int, Estimate]:
        known = layers.drop_nulls(name)
        return dict(zip(known["layer"], map(Estimate, known[name], known[f"{name}_error"]), strict=True))

    def known(name: str) -> Estimate | None:
        return None if row[name] is None else Estimate(row[name], row[f"{name}_error"])

    start = Start(
        rms=by_layer("rms"),
        cosine=by_layer("cosine"),
        score_sd=known("score_sd"),
        entropy=known("entropy"),
        logit_sd=Estimate(row["logit_sd"], row["logit_sd_error"]),
        loss=known("loss"),
        uniform_loss=row["uniform_loss"],
        gradient=by_layer("gradient"),
        infinite=row["model_width"] is None,
    )
    return start_remarks(start)


def _several(result: Result, remarks: Sequence[Sequence[StartRemark]]) -> list[Line]:
    rows, labels = result.finished_rows, ValueLabels(result.verb, result.rows)
    settings = varying_settings(rows, setting_fields(result.verb.settings)) or ["model"]
    names = [labels.describe({name: row[name] for name in settings}) for row in rows.to_dicts()]
    unusual = [
        Line(f"{name}: {remark.text}.", AnswerStatus.UNUSUAL)
        for name, lines in zip(names, remarks, strict=True)
        for remark in lines
        if remark.unusual
    ]
    usual = sum(not any(remark.unusual for remark in lines) for lines in remarks)
    count = Line(f"{usual} of {len(names)} cases start without anything unusual.", AnswerStatus.OK)
    if not usual:
        count = Line(f"All {len(names)} cases start in an unusual way.", AnswerStatus.UNUSUAL)
    more = len(unusual) - MOST_LINES
    left_out = [Line(f"The table has {more} more such sentences (column remark).")] if more > 0 else []
    return [count, *unusual[:MOST_LINES], *left_out]


def _next_commands(result: Result, remarks: Sequence[Sequence[StartRemark]]) -> dict[str, str]:
    row, commands = result.finished_rows.row(0, named=True), {}
    width, single = row["model_width"], len(result) == 1
    if single and width is not None and (row["logit_sd"] > WIDE or (row["score_sd"] or 0.0) > SCORES):
        std = float(f"{1 / math.sqrt(width):.2g}")
        if row["std"] is None or std < row["std"]:
            commands[command(result, std=std)] = "weights with which logits have standard deviation 1"
    if single and any(remark.unusual and "rank collapse" in remark.text for remark in remarks[0]):
        deepest = max(result.tables["layers"]["layer"])
        depths = [depth for depth in (1, 2, 4, 8, 16, 32) if depth <= deepest]
        commands[command(result, depth=depths)] = "at which depth tokens become alike"
    if set(result.rows["width"]) == {OWN_WIDTH} and len(result) <= 2:
        commands[command(result, width=[OWN_WIDTH, LIMIT_WIDTH], gradients=None)] = (
            "compare with infinite width"
        )
    if not (result.rows["gradients"] > 0).any() and set(result.rows["width"]) == {OWN_WIDTH}:
        commands[command(result, gradients=10)] = "also gradients by layer (needs attnlaw[lens])"
    commands[command(result, "--out", "results")] = "a page with pictures of all layers"
    first, last = list(commands.items())[:-1], list(commands.items())[-1]
    return dict([*first[:2], last])
