"""Rows and arrays in the form that the script of a page reads."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl

from attnlaw.render.charts.style import finite_or_none


def plain_columns(table: pl.DataFrame) -> dict[str, list[Any]]:
    """Column by column, as values that JSON can hold."""
    return {name: [finite_or_none(value) for value in table[name].to_list()] for name in table.columns}


def infinite_places(table: pl.DataFrame) -> dict[str, list[int]]:
    """The rows in which a column is infinite: JSON has no such number, the page puts it back.

    >>> infinite_places(pl.DataFrame({"width": [16.0, float("inf"), None], "heads": [1, 2, 3]}))
    {'width': [1]}
    """
    places = {
        name: (table[name] == math.inf).arg_true().to_list()
        for name, dtype in table.schema.items()
        if dtype.is_float()
    }
    return {name: rows for name, rows in places.items() if rows}


def pack_arrays(arrays: Iterable[Sequence[float] | None]) -> dict[str, Any]:
    """Arrays of any lengths as `{"lengths": [...], "values": base64}`; a missing array has length null.

    >>> pack_arrays([[1.0, 2.0], None])
    {'lengths': [2, None], 'values': 'AACAPwAAAEA='}
    """
    every = list(arrays)
    parts = [np.asarray(array, dtype="<f4") for array in every if array is not None]
    joined = np.concatenate(parts) if parts else np.zeros(0, dtype="<f4")
    lengths = [None if array is None else len(array) for array in every]
    return {"lengths": lengths, "values": base64.b64encode(joined.tobytes()).decode("ascii")}
