"""What a page says of rows before it shows them: how many tasks failed, and what all rows share."""

from __future__ import annotations

import polars as pl

from attnlaw.report.settings import label
from attnlaw.report.study_rows import FOUND

# Columns of a study's rows that the download alone has.
NOT_SHOWN = ("task", "attnlaw_version", "error", "seed")
NOT_SHOWN_ENDING = "_part"  # paths of tables
LONGEST = 300  # letters of an error


def plain_names(rows: pl.DataFrame) -> list[str]:
    """The columns that a table on a page may show."""
    return [
        name
        for name, dtype in rows.schema.items()
        if not dtype.is_nested() and name not in NOT_SHOWN and not name.endswith(NOT_SHOWN_ENDING)
    ]


def constants(rows: pl.DataFrame) -> list[str]:
    """The settings that have one value in all of several rows; results are shown though they agree."""
    results = {name for found in FOUND.values() for name in found}
    names = [name for name in plain_names(rows) if name not in results and rows[name].n_unique() == 1]
    return names if rows.height > 1 else []


def same(rows: pl.DataFrame) -> str:
    """A sentence that tells the settings which all rows share; nothing without them."""
    idle = _idle(rows)
    told = {
        name: rows[name][0]
        for name in constants(rows)
        if rows[name].count() and name != "status" and name not in idle
    }
    return f"The same in all rows: {label(told)}." if told else ""


def _idle(rows: pl.DataFrame) -> set[str]:
    """The settings of `learn` that play no part in any row: those of another output or another target."""

    def has(name: str) -> bool:
        return name in rows.columns and rows[name].count() > 0

    if not has("output"):
        return set()
    idle = set() if "softmax" in rows["output"] else {"beta"}
    if not has("target_exponent"):
        return idle | {"target_dimension"}
    return idle if rows["target_exponent"].null_count() else idle | {"target_rank"}


def failed(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of tasks that failed; the steps of a training run have no status."""
    told = rows.schema.get("status") == pl.String
    return rows.filter(pl.col("status") == "failed") if told else rows.clear()


def failures(rows: pl.DataFrame) -> str:
    """How many tasks failed, with the first error; nothing where none did.

    >>> failures(pl.DataFrame({"status": ["done", "failed"], "error": [None, "weights: torn; copy them"]}))
    '1 of 2 tasks failed: weights: torn; copy them.'
    """
    lost = failed(rows)
    if not lost.height:
        return ""
    errors = lost["error"].drop_nulls().to_list() if "error" in lost.columns else []
    first = str(errors[0]).strip().partition("\n")[0] if errors else "no error was kept"
    cut = first if len(first) <= LONGEST else f"{first[:LONGEST]}…"
    return f"{lost.height} of {rows.height} tasks failed: {cut.rstrip('.')}."
