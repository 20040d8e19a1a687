"""The stored tensors of a model as a table, from what its audit noted of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlaw.analysis.columns import PLACE
from attnlaw.core.errors import printable
from attnlaw.core.quantity import Quantity, column_kinds

if TYPE_CHECKING:
    import polars as pl

    from attnlaw.analysis.audit.record import Audit

TENSORS = (
    *(column for column in PLACE if column.name != "head"),
    Quantity("tensor", "its name, of a stack of matrices with the number of one", kind="text"),
    Quantity("role", "map, embedding, gain, vector (a bias) or other", kind="text"),
    Quantity("dtype", "as the file says", kind="text"),
    Quantity("quantised", "whether the file's own code rounds it", kind="bool"),
    Quantity("not_finite", "entries that are NaN or infinite", kind="int"),
    Quantity("peak", "the largest magnitude; null where entries are not finite"),
    Quantity("constant", "whether all entries are one value", kind="bool"),
    Quantity("zero_rows", "rows that are 0", kind="int"),
    Quantity("zero_columns", "columns that are 0", kind="int"),
    Quantity("distinct", "different values in the median block of 32 along its rows"),
    Quantity("decibels", "signal over the rounding of its code, where it is known"),
    Quantity("twin", "the first tensor with the same bits", kind="text"),
)


def tensor_table(audit: Audit) -> pl.DataFrame:
    """A row for each tensor that was looked at."""
    from attnlaw.core.tables import to_frame, to_schema

    rows = []
    for tensor in audit.subject.evidence.tensors:
        row = {**vars(tensor), **vars(tensor.spot), "model": audit.name}
        names = {name: printable(row[name]) for name in ("tensor", "twin") if row[name] is not None}
        rows.append(row | names)
    return to_frame(rows, to_schema(column_kinds(TENSORS)))
