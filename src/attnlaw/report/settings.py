"""The settings of a study's rows: which of them varied, and labels that tell them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

# Beyond so many, cases are left to the table.
MOST_CASES = 6


def varied(rows: pl.DataFrame, arguments: Sequence[str]) -> list[str]:
    """The arguments that have more than one value."""
    return [name for name in arguments if name in rows.columns and rows[name].n_unique() > 1]


def free(rows: pl.DataFrame, names: Sequence[str], given: str) -> list[str]:
    """The arguments that vary within one value of `given`, too: not those that were chosen for each."""
    return [name for name in names if (rows.group_by(given).agg(pl.col(name).n_unique())[name] > 1).any()]


def labelled(rows: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The rows with a column `series` that tells the values of the named arguments."""
    labels = [label({name: row[name] for name in names}) for row in rows.iter_rows(named=True)]
    return rows.with_columns(series=pl.Series(labels, dtype=pl.String))


def cases(rows: pl.DataFrame, names: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of every setting of the named arguments, at most six, with a label for its title."""
    if not names:
        yield "", rows
        return
    for count, (_, own) in enumerate(rows.group_by(names, maintain_order=True)):
        if count < MOST_CASES:
            title = label({name: own[name][0] for name in names})
            yield f": {title}" if title else "", own


def label(values: dict[str, Any]) -> str:
    """Names with their values; what a row does not have is left out.

    >>> label({"target_rank": 0.5, "beta": None, "residual": True, "width": float("inf")})
    'target rank 0.5, residual yes, width ∞'
    """

    def text(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return "∞" if value == float("inf") else f"{value:g}" if isinstance(value, float) else str(value)

    return ", ".join(
        f"{name.replace('_', ' ')} {text(value)}" for name, value in values.items() if value is not None
    )
