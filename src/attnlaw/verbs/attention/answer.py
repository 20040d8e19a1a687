"""The answer of `attention`: whether random layers of this shape follow the spectral law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.command_line import command
from attnlaw.core.result import Result
from attnlaw.theory.laws.attention_shape import MATRICES
from attnlaw.verbs.attention.verdict import CLOSE, head_line, verdict_of

MOST_LINES = 6  # layers that get a sentence each


def answer(result: Result) -> Answer:
    """Return the answer for one layer, or for several."""
    rows = result.finished_rows.to_dicts()
    verdicts = [verdict_of(row) for row in rows]
    if len(rows) == 1:
        lines = [layer_line(rows[0])]
    elif len(rows) <= MOST_LINES:
        lines = [_named(row) for row in rows]
    else:
        counts = Counter(verdict.words or "were not compared with random layers" for verdict in verdicts)
        parts = ", ".join(f"{count} {words}" for words, count in counts.items())
        every = all(verdict.words == CLOSE for verdict in verdicts)
        lines = [Line(f"Of {len(rows)} layers, {parts}.", AnswerStatus.OK if every else None)]
    return Answer((*lines, Line(limits())), _next_commands(result))


def limits() -> str:
    """Return a description of the cases that the law does not cover or describe reliably."""
    return (
        "The law is for random weights and orthogonal tokens. It does not cover real text, whose tokens are "
        "not orthogonal, causal masks or rotary positions. It fits badly if heads are too narrow, or the "
        "sharpness β too large, for this number of tokens; then attnlaw prints a warning."
    )


def layer_line(row: Mapping[str, Any]) -> Line:
    """Return whether the draws of a layer follow the law, with a warning if there is one."""
    verdict = verdict_of(row)
    return Line(verdict.sentence, verdict.status, (verdict.warning,) if verdict.warning else ())


def _named(row: Mapping[str, Any]) -> Line:
    line = layer_line(row)
    return Line(f"{head_line(row)}: {line.text}", line.status, line.details)


def _next_commands(result: Result) -> dict[str, str]:
    row, commands = result.finished_rows.row(0, named=True), {}
    if not (result.rows["draws"] > 0).any():
        commands[command(result, draws=4)] = "compare the law with random layers"
    elif len(result) == 1 and verdict_of(row).words != CLOSE and _has_second_order(row):
        commands[command(result, second_order=True)] = "correct the law for narrow heads"
    if len(result) == 1 and not MATRICES[row["matrix"]].output:
        commands[command(result, matrix="output")] = "the spectrum of the output of the layer"
    commands[command(result, "--out", "results")] = "a page with pictures"
    return commands


def _has_second_order(row: Mapping[str, Any]) -> bool:
    tied = row["sharing"] == "tied" and MATRICES[row["matrix"]].values
    return not row["second_order"] and not tied
