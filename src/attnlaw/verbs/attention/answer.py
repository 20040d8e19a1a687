"""The answer of `attention`: whether random layers of this shape follow the spectral law."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.command_line import command
from attnlaw.core.estimate import Estimate, format_percent
from attnlaw.core.result import Result
from attnlaw.theory.laws.attention_shape import MATRICES, AttentionShape
from attnlaw.theory.laws.finite_size import finite_size_warnings

MOST_LINES = 6  # layers that get a sentence each
# Cases that the law does not cover or describe reliably.
LIMITS = (
    "The law holds for random weights and orthogonal tokens. It does not cover real text, whose tokens are "
    "not orthogonal, causal masks or rotary positions. It fits badly if heads are too narrow, or the "
    "sharpness β too large, for this number of tokens; then attnlaw prints a warning."
)
# Largest Kolmogorov-Smirnov distance of each verdict. A histogram of a few hundred values shows 0.1 but not
# 0.05.
VERDICTS = {0.05: "follow the law", 0.15: "follow the law only roughly", 1.0: "do not follow the law"}
CLOSE, ROUGH, WORST = VERDICTS.values()
GOOD = 0.05  # largest distance that counts as agreement
SINGULAR = {
    verdict: verdict.replace("do not", "does not")
    if "not" in verdict
    else verdict.replace("follow", "follows")
    for verdict in VERDICTS.values()
}
# The steps of a distribution function of m values are 1/m high: no law is closer to all of them than 1/(2m).
LEAST_VALUES = 10
# One sample in twenty of independent values is further from its law than this over sqrt(m). Singular values
# are spaced more evenly.
FAR = 1.36


def answer(result: Result) -> Answer:
    """Return the answer for one layer, or for several layers."""
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
    return Answer((*lines, Line(LIMITS)), _next_commands(result))


def layer_line(row: Mapping[str, Any]) -> Line:
    """Return a line that says whether the draws of a layer follow the law, and a warning if needed."""
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
        commands[command(result, matrix="output")] = "the spectrum of the layer's output"
    commands[command(result, "--out", "results")] = "a page with pictures"
    return commands


def _has_second_order(row: Mapping[str, Any]) -> bool:
    tied = row["sharing"] == "tied" and MATRICES[row["matrix"]].values
    return not row["second_order"] and not tied


def head_line(row: Mapping[str, Any]) -> str:
    """Return the sizes of one layer in words, after the layer's name if it has one."""
    heads = "1 head" if row["heads"] == 1 else f"{row['heads']} heads"
    sizes = f"{row['tokens']} tokens, {heads} of size {row['head_size']}, sharpness β = {row['beta']:g}"
    return sizes if row["name"] is None else f"{row['name']}: {sizes}"


@dataclass(frozen=True)
class LayerVerdict:
    """Whether the draws of one layer follow the law.

    Args:
        sentence: the verdict with its number, in words.
        words: the verdict alone, one of `VERDICTS`. The text is empty without draws, or with too few values.
        warning: the reason not to rely on the law, or another remark.
    """

    sentence: str
    words: str
    status: AnswerStatus | None
    warning: str | None = None


def verdict_of(row: Mapping[str, Any]) -> LayerVerdict:
    """Return whether draws follow the law. Only nonzero values count, as zeros follow from the sizes."""
    sentence, words = _verdict(row)
    status = {CLOSE: AnswerStatus.OK, ROUGH: AnswerStatus.WARNING, WORST: AnswerStatus.WARNING}.get(words)
    if not row["remark"]:
        return LayerVerdict(sentence, words, status)
    sizes = row["tokens"], row["head_size"], row["beta"], row["heads"], row["second_order"]
    if not finite_size_warnings(*sizes):
        lead = "Note"  # a value beyond the edge does not speak against the law of the others
    else:
        is_near = words in VERDICTS.values() and words != WORST
        lead = "At this size the law may be off" if is_near else "Do not rely on the law here"
        status = AnswerStatus.WARNING
    return LayerVerdict(sentence, words, status, f"{lead}: {row['remark']}.")


def _verdict(row: Mapping[str, Any]) -> tuple[str, str]:
    draws = row["draws"]
    if row["law_distance"] is None:
        return "This is only the prediction, not compared with random layers.", ""
    sizes = [row[name] for name in ("tokens", "heads", "head_size", "value_size", "output_size", "sharing")]
    count = AttentionShape(*sizes).rank(row["matrix"])
    share = count / row["tokens"]
    error = row["law_distance_error"]
    distance = Estimate(min(row["law_distance"] / share, 1.0), None if error is None else error / share)
    values = "value that is" if count == 1 else "values that are"
    among = "" if count == row["tokens"] else f" among the {count} {values} not zero"
    by = f"the cumulative distributions differ by up to {format_percent(distance)}{among}"
    good = "" if distance.value <= GOOD else f" ({GOOD:.0%} or less is good agreement)"
    verdict = next(words for largest, words in VERDICTS.items() if distance.value <= largest)
    if count < LEAST_VALUES and distance.value <= FAR / math.sqrt(count):
        return f"There are too few values to say whether the law holds: {by}.", ""
    layers = f"One random layer {SINGULAR[verdict]}" if draws == 1 else f"{draws} random layers {verdict}"
    return f"{layers}: {by}{good}.", verdict
