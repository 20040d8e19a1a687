"""Tables of several runs in one: models of one name get numbers, columns that one run lacks are null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl


def distinct_names(taken: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """Each name, with a number where it is taken.

    >>> distinct_names(["a", "b"], ["b", "c"])
    {'b': 'b (2)', 'c': 'c'}
    """
    used, chosen = set(taken), {}
    for name in names:
        number, free = 1, name
        while free in used:
            number += 1
            free = f"{name} ({number})"
        chosen[name] = free
        used.add(free)
    return chosen


def stacked(
    first: pl.DataFrame | None, second: pl.DataFrame | None, names: Mapping[str, str]
) -> pl.DataFrame:
    """One table over the other (either may be missing), the models of the second under their new `names`."""
    parts = [] if first is None else [first]
    if second is not None:
        parts.append(
            second.with_columns(pl.col("model").replace(names)) if "model" in second.columns else second
        )
    table = pl.concat(parts, how="diagonal_relaxed")
    if "curve" not in table.columns:
        return table
    # Models of one shape share a null.
    again = (pl.col("curve") == "null") & ~pl.struct("curve", "null_shape").is_first_distinct()
    return table.filter(~again)
