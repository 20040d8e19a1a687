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
THEORY = "the theory of trained attention (learned): some directions were learned, the rest was cut off"
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


def training_line(quantities: Mapping[str, Any]) -> Line:
    """Return a line that says whether the matrices look trained, and how many would by chance alone.

    >>> counts = {"tested": 40, "rejected": 0, "expected": 0.4, "p_value": 1.0}
    >>> training_line({f"not_random_{name}": count for name, count in counts.items()}).text
    'Looks untrained: 0 of 40 weight matrices differ from random ones (chance alone: about 0.4).'
    """
    tested, rejected, expected, p_value = (
        quantities[f"not_random_{name}"] for name in ("tested", "rejected", "expected", "p_value")
    )
    if not tested:
        return Line("No matrix could be compared with random ones.", AnswerStatus.WARNING)
    matrices, differ = "matrix" if tested == 1 else "matrices", "differs" if rejected == 1 else "differ"
    sentence = (
        f"{rejected} of {tested} weight {matrices} {differ} from random ones "
        f"(chance alone: about {expected:.2g})."
    )
    significant = p_value is not None and p_value <= LEVEL
    if 2 * rejected >= tested:
        return Line(f"Trained: {sentence}", AnswerStatus.OK) if significant else Line(sentence)
    if significant:
        return Line(f"Trained only in part: {sentence}", AnswerStatus.UNUSUAL)
    return Line(f"Looks untrained: {sentence}", AnswerStatus.WARNING)


def law_line(rows: pl.DataFrame) -> Line:
    """Return a line that names the law of most matrices, explains the law, and names the law of each kind.

    Args:
        rows: the table of fits of one model.
    """
    counts = law_counts(rows)
    most, count = _most_common(counts)
    several, single = MEANINGS[most]
    if list(counts) == [UNFITTED]:
        return Line("No law could be fitted.", is_main=True)
    if rows.height == 1:
        return Line(f"The matrix {single}.", is_main=True)
    whole = f"All {count} matrices" if len(counts) == 1 else f"{count} of {rows.height} matrices"
    text = f"{whole} {several}." if count > 1 else "No two matrices follow the same law."
    if most == "heavy-tailed":
        text += f" {USUAL}"
    kinds = []
    for group in groups_by_kind(rows):
        kinds.append(f"{kind_label(group['kind'][0])} {_laws_text(law_counts(group))}")
    if len(counts) > 1 and len(kinds) > 1:
        text += f" Most common by kind: {', '.join(kinds)}."
    return Line(text, is_main=True)


def _laws_text(counts: Mapping[str, int]) -> str:
    """Return the most common laws of a kind of matrix. All laws with the largest number are named.

    >>> _laws_text({"learned": 1, "heavy-tailed": 3})
    'heavy-tailed (3 of 4)'
    >>> _laws_text({"heavy-tailed": 2, "power-law tail": 2}), _laws_text({"random": 1, "learned": 1})
    ('heavy-tailed and power-law tail (2 each of 4)', 'random and learned (1 each of 2)')
    """
    number, total = max(counts.values()), sum(counts.values())
    laws = [law for law, count in counts.items() if count == number]
    if len(laws) == 1:
        return f"{laws[0]} ({number} of {total})"
    return f"{', '.join(laws[:-1])} and {laws[-1]} ({number} each of {total})"


def _most_common(counts: Mapping[str, int]) -> tuple[str, int]:
    return max(counts.items(), key=lambda pair: pair[1])


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
