"""Whether random draws of a layer follow the law, in a sentence. The screen and the page show it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnlaw.core.answer import AnswerStatus
from attnlaw.core.estimate import Estimate, format_percent
from attnlaw.theory.laws.attention_shape import AttentionShape
from attnlaw.theory.laws.finite_size import finite_size_warnings

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


def head_line(row: Mapping[str, Any]) -> str:
    """Return the sizes of one layer, with the layer's name if it has one."""
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
    """Return whether the draws of one layer follow the law, and a warning if there is a reason for one.

    The distance is judged among the nonzero values, because zeros follow from the sizes alone.
    """
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
    """Return the sentence, and the verdict if there is one."""
    draws = row["draws"]
    if row["law_distance"] is None:
        return "This is the law alone, not compared with random layers.", ""
    sizes = [row[name] for name in ("tokens", "heads", "head_size", "value_size", "output_size", "sharing")]
    count = AttentionShape(*sizes).rank(row["matrix"])
    share = count / row["tokens"]
    error = row["law_distance_error"]
    distance = Estimate(min(row["law_distance"] / share, 1.0), None if error is None else error / share)
    values = "value that is" if count == 1 else "values that are"
    among = "" if count == row["tokens"] else f" among the {count} {values} not zero"
    by = f"the distribution functions differ by up to {format_percent(distance)}{among}"
    good = "" if distance.value <= GOOD else f" ({GOOD:.0%} or less is good agreement)"
    verdict = next(words for largest, words in VERDICTS.items() if distance.value <= largest)
    if count < LEAST_VALUES and distance.value <= FAR / math.sqrt(count):
        return f"There are too few values to say whether the law holds: {by}.", ""
    layers = f"One random layer {SINGULAR[verdict]}" if draws == 1 else f"{draws} random layers {verdict}"
    return f"{layers}: {by}{good}.", verdict
