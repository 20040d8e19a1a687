"""Saved tables read back: exactly the file that is named, checked before anything is drawn from it."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl

from attnlaw.base.errors import InputError
from attnlaw.base.plain_files import require_plain
from attnlaw.base.schema import Schema
from attnlaw.base.steps_schema import STEP_MATRICES, STEPS


def read_table(path: Path, remedy: str, needed: Schema | None = None) -> pl.DataFrame:
    """The table in a parquet file; an `InputError` where it cannot be read or lacks a `needed` column.

    Its bytes are read once. Polars by itself takes `run[1]/rows.parquet` for a pattern, cannot open a name
    that is no Unicode, and mixes two files where one is replaced by another while it reads.
    """
    try:
        table = pl.read_parquet(io.BytesIO(require_plain(path).read_bytes()))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{path}: cannot be read ({reason}); {remedy}") from error
    strange = [name for name, dtype in table.schema.items() if not _is_plain(dtype)]
    if strange:
        raise InputError(f"{path}: {strange[0]} is a column of {table.schema[strange[0]]}; {remedy}")
    return require_columns(table, needed or {}, str(path), remedy)


def read_steps(path: Path, remedy: str) -> pl.DataFrame:
    """The rows of a monitored training run: those of a step and model, its quantities numbers or null."""
    told: Schema = {"step": pl.Int64(), "model": pl.String()}
    rows = read_table(path, remedy, told)
    known = {name: dtype for name, dtype in (STEPS | STEP_MATRICES).items() if name in rows.columns}
    rows = without_nan(require_columns(rows, known, str(path), remedy))
    for name in told:
        if rows[name].null_count():
            raise InputError(f"{path}: found a row without its {name}; {remedy}")
    return rows


def require_columns(table: pl.DataFrame, needed: Schema, where: str, remedy: str) -> pl.DataFrame:
    """The table with the needed columns in their types; an `InputError` for one missing or of another kind.

    >>> require_columns(pl.DataFrame({"x": [1]}), {"x": pl.Float64()}, "rows", "write them again")["x"][0]
    1.0
    """
    for name, dtype in needed.items():
        found = table.schema.get(name)
        if found is None:
            raise InputError(f"{where}: found no column {name}; {remedy}")
        if found not in (dtype, pl.Null) and not (found.is_numeric() and dtype.is_numeric()):
            raise InputError(f"{where}: {name} is a column of {found}, expected {dtype}; {remedy}")
    return table.with_columns(pl.col(name).cast(dtype, strict=False) for name, dtype in needed.items())


def _is_plain(dtype: pl.DataType) -> bool:
    """Whether its values are numbers, texts, truth values or lists of them."""
    inner = dtype.inner if isinstance(dtype, pl.List) else dtype
    return inner in (pl.String, pl.Boolean, pl.Null) or (inner.is_numeric() and not inner.is_decimal())


def without_nan(table: pl.DataFrame, *infinite: str) -> pl.DataFrame:
    """The table with null for what is no number; infinity stays in the columns that are named.

    >>> infinity = float("inf")
    >>> without_nan(pl.DataFrame({"x": [infinity, 1.0], "width": [infinity, 2.0]}), "width").rows()
    [(None, inf), (1.0, 2.0)]
    """
    columns = []
    for name, dtype in table.schema.items():
        column, element = pl.col(name), pl.element()
        if name in infinite and dtype.is_float():
            columns.append(column.fill_nan(None))
        elif dtype.is_float():
            columns.append(pl.when(column.is_finite()).then(column).alias(name))
        elif isinstance(dtype, pl.List) and dtype.inner.is_float():
            columns.append(column.list.eval(pl.when(element.is_finite()).then(element)))
    return table.with_columns(columns)
