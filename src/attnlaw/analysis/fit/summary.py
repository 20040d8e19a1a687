"""Sentences about the laws that the matrices of a model follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from attnlaw.analysis.fit import LAWS
from attnlaw.analysis.fit.null import LEVEL
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.answer import AnswerStatus, Line

UNFITTED = "not fitted"
# What it means that no law was fitted.
NO_LAW = "cannot be compared with random matrices, such as a matrix of zeros"
FEW_VALUES = 64  # with fewer singular values, several laws often fit the same matrix
# What it means that most matrices follow a law: for several matrices, and for one.
STRONG = "their singular values spread much further than those of random matrices"
ITS_STRONG = STRONG.replace("their", "its").replace("matrices", "ones")
USUAL = "This is usual after training, and shows neither a problem nor good generalization."
THEORY = "the theory of trained attention (law learned): some directions were learned, the others are zero"
MEANINGS = {
    "random": ("look like random numbers: training hardly changed them", "looks like random numbers"),
    "learned": (f"follow {THEORY}", f"follows {THEORY}"),
    "heavy-tailed": (f"are heavy-tailed: {STRONG}", f"is heavy-tailed: {ITS_STRONG}"),
    "power-law tail": (f"have a power-law tail: {STRONG}", f"has a power-law tail: {ITS_STRONG}"),
    "power-law spectrum": (f"have a power-law spectrum: {STRONG}", f"has a power-law spectrum: {ITS_STRONG}"),
    "neither": (
        "differ from random numbers, but follow none of the laws",
        "differs from random numbers, but follows none of the laws",
    ),
    UNFITTED: ("cannot be compared with random numbers", "cannot be compared with random numbers"),
}


def null_test_sentence(counts: Mapping[str, Any]) -> str | None:
    """Return a sentence with the number of matrices that differ from random ones, or None if none was tested.

    >>> null_test_sentence({"tested": 120, "rejected": 118, "expected": 1.19, "p_value": 0.0})
    '118 of 120 weight matrices differ from random ones (chance alone: about 1.2).'
    """
    tested, rejected = counts["tested"], counts["rejected"]
    if not tested:
        return None
    matrices, differ = "matrix" if tested == 1 else "matrices", "differs" if rejected == 1 else "differ"
    return (
        f"{rejected} of {tested} weight {matrices} {differ} from random ones "
        f"(chance alone: about {counts['expected']:.2g})."
    )


def null_test_line(counts: Mapping[str, Any]) -> Line | None:
    """Return a line that says whether the weights look trained, or None if no matrix was tested."""
    sentence = null_test_sentence(counts)
    if sentence is None:
        return None
    significant = counts["p_value"] is not None and counts["p_value"] <= LEVEL
    if 2 * counts["rejected"] >= counts["tested"]:
        # A few matrices may differ by chance.
        return Line(f"Trained: {sentence}", AnswerStatus.OK) if significant else Line(sentence)
    if significant:
        return Line(f"Trained only in part: {sentence}", AnswerStatus.UNUSUAL)
    return Line(f"Looks untrained: {sentence}", AnswerStatus.WARNING)


def training_line(quantities: Mapping[str, Any]) -> Line:
    """Return `null_test_line` for the quantities of fits, or a line that says that nothing was tested."""
    counts = {
        name: quantities[f"not_random_{name}"] for name in ("tested", "rejected", "expected", "p_value")
    }
    nothing = Line("No matrix could be compared with random ones.", AnswerStatus.WARNING)
    return null_test_line(counts) or nothing


def law_line(rows: pl.DataFrame) -> Line:
    """Return a line that names and explains the law of most matrices, and names that of each kind."""
    counts = law_counts(rows)
    most, count = max(counts.items(), key=lambda pair: pair[1])
    several, single = MEANINGS[most]
    if list(counts) == [UNFITTED]:
        return Line("No law could be fitted.", is_main=True)
    if rows.height == 1:
        return Line(f"The matrix {single}.", is_main=True)
    whole = f"All {count} matrices" if len(counts) == 1 else f"{count} of {rows.height} matrices"
    text = f"{whole} {several}." if count > 1 else "No two matrices follow the same law."
    if most == "heavy-tailed":
        text += f" {USUAL}"
    groups = groups_by_kind(rows)
    kinds = [f"{kind_label(group['kind'][0])} {_laws_text(law_counts(group))}" for group in groups]
    if len(counts) > 1 and len(kinds) > 1:
        text += f" Most common by kind: {', '.join(kinds)}."
    return Line(text, is_main=True)


def _laws_text(counts: Mapping[str, int]) -> str:
    """Return the most common laws of a kind of matrix. All laws with the largest number are named."""
    number, total = max(counts.values()), sum(counts.values())
    laws = [law for law, count in counts.items() if count == number]
    if len(laws) == 1:
        return f"{laws[0]} ({number} of {total})"
    return f"{', '.join(laws[:-1])} and {laws[-1]} ({number} each of {total})"


def certainty_line(rows: pl.DataFrame) -> Line | None:
    """Return a line that says how certain the laws are, or None if no laws were fitted."""
    values = rows.filter(pl.col("law").is_not_null() & (pl.col("law") != "random"))["values"]
    least = values.min()
    if least is None:
        return None
    text = "A law is a description that the data do not reject. It does not rank models."
    if isinstance(least, int) and least < FEW_VALUES:
        text += f" With only {least} singular values, as some matrices have here, other laws may fit as well."
    return Line(text)


def law_counts(rows: pl.DataFrame) -> dict[str, int]:
    """Return the number of matrices of each law that occurs, in the order of `LAWS`."""
    counts = dict(rows["law"].fill_null(UNFITTED).value_counts().iter_rows())
    return {law: counts[law] for law in (*LAWS, UNFITTED) if law in counts}


def groups_by_kind(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the rows of each kind and model. Models of the same kind follow each other."""
    kinds = list(dict.fromkeys(rows["kind"]))
    groups = rows.partition_by("kind", "case", maintain_order=True)
    return sorted(groups, key=lambda group: kinds.index(group["kind"][0]))


def kind_label(kind: str) -> str:
    return KINDS[kind].label if kind in KINDS else kind.replace("_", " ")
