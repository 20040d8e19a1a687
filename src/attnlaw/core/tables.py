"""Make, read and check polars tables. `KINDS` are the kinds of their columns."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.core.errors import InputError, as_input_error, printable, require_some
from attnlaw.core.files import require_regular_file, write_all
from attnlaw.core.quantity import Quantity, column_kinds, to_cells
from attnlaw.core.version import VERSION_COLUMN, require_readable_version

Schema = dict[str, pl.DataType]
SURROGATES = re.compile("[\ud800-\udfff]")

# What `Quantity.kind` may say.
KINDS: Schema = {"float": pl.Float64(), "int": pl.Int64(), "text": pl.String()}
KINDS |= {f"{kind}s": pl.List(dtype) for kind, dtype in KINDS.items()}
KINDS |= {"small": pl.Int32(), "bool": pl.Boolean(), "bytes": pl.Binary()}


def to_schema(columns: Mapping[str, str]) -> Schema:
    """Return the polars types of columns, given the kind of each column."""
    return {name: KINDS[kind] for name, kind in columns.items()}


def to_frame(rows: Iterable[Mapping[str, Any]], schema: Schema) -> pl.DataFrame:
    """Return a table with exactly the columns of the schema. Cells that a row does not have become null."""
    rows = list(rows)
    columns = {name: [row.get(name) for row in rows] for name in schema}
    try:
        return pl.DataFrame(columns, schema=schema, strict=False)
    except UnicodeEncodeError:  # the path of a model need not be valid Unicode
        return pl.DataFrame(_with_valid_texts(columns), schema=schema, strict=False)


def _with_valid_texts(value: Any) -> Any:
    """Write out the characters that stand for bytes of a path that are no UTF-8, in all texts of a value."""
    if isinstance(value, dict):
        return {name: _with_valid_texts(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with_valid_texts(part) for part in value]
    return SURROGATES.sub(lambda char: printable(char[0]), value) if isinstance(value, str) else value


def quantity_frame(quantities: Iterable[Quantity], rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a table of quantities, with columns for the errors and the ends of intervals."""
    columns = tuple(quantities)
    return to_frame((to_cells(columns, row) for row in rows), to_schema(column_kinds(columns)))


def read_table(path: Path, remedy: str, needed: Schema | None = None) -> pl.DataFrame:
    """Read a table with at least the `needed` columns from a parquet file.

    Python reads the bytes, and then polars parses them. Polars itself would read `run[1]/rows.parquet` as a
    pattern, could not open names that are not valid Unicode, and could mix two files if one replaces the
    other meanwhile.
    """
    damage = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
    with as_input_error(f"{path}: cannot be read", remedy, *damage):
        table = pl.read_parquet(io.BytesIO(require_regular_file(path).read_bytes()))
    strange = [name for name, dtype in table.schema.items() if not _is_plain(dtype)]
    if strange:
        raise InputError(f"{path}: {strange[0]} is a column of type {table.schema[strange[0]]}; {remedy}")
    for written in table[VERSION_COLUMN].unique() if table.schema.get(VERSION_COLUMN) == pl.String else ():
        require_readable_version(written, str(path), remedy)
    return require_columns(table, needed or {}, str(path), remedy)


def require_columns(table: pl.DataFrame, needed: Schema, where: str, remedy: str) -> pl.DataFrame:
    """Return the table with the needed columns in their types. Numbers are converted to the needed type."""
    schema = table.schema  # polars builds it again at each access
    for name, dtype in needed.items():
        require_some(name in schema, where, f"column {name}", remedy)
        actual_dtype = schema[name]
        # A column without any value has no type of its own.
        empty = actual_dtype == pl.Null or (actual_dtype == pl.List(pl.Null) and isinstance(dtype, pl.List))
        if actual_dtype != dtype and not empty and not (actual_dtype.is_numeric() and dtype.is_numeric()):
            raise InputError(
                f"{where}: {name} is a column of type {actual_dtype}, expected {dtype}; {remedy}"
            )
    return table.with_columns(pl.col(name).cast(dtype, strict=False) for name, dtype in needed.items())


def conform(table: pl.DataFrame, schema: Schema, where: str, remedy: str) -> pl.DataFrame:
    """Return the table with the columns of the schema first. Missing columns become null."""
    present = {name: schema[name] for name in table.columns if name in schema and table[name].count()}
    missing = {name: pl.lit(None, dtype=dtype) for name, dtype in schema.items() if name not in present}
    checked = require_columns(table, present, where, remedy).with_columns(**missing)
    return checked.select(*schema, pl.exclude(*schema))


def _is_plain(dtype: pl.DataType) -> bool:
    inner = dtype.inner if isinstance(dtype, pl.List) else dtype
    return inner in (pl.String, pl.Boolean, pl.Null) or (inner.is_numeric() and not inner.is_decimal())


def nan_to_null(table: pl.DataFrame, *keep_infinite: str) -> pl.DataFrame:
    """Return the table with null for NaN and infinity. Infinity stays in the columns `keep_infinite`."""
    types = table.schema.items()
    floats = [name for name, dtype in types if dtype.is_float()]
    finite = pl.col(name for name in floats if name not in keep_infinite)
    lists = [name for name, dtype in types if isinstance(dtype, pl.List) and dtype.inner.is_float()]
    element = pl.element()
    return table.with_columns(
        pl.col(name for name in floats if name in keep_infinite).fill_nan(None),
        pl.when(finite.is_finite()).then(finite),
        pl.col(lists).list.eval(pl.when(element.is_finite()).then(element)),
    )


def unique_names(names: Iterable[str]) -> list[str]:
    """Return the names. A number is added to a name that occurs again.

    >>> unique_names(["a", "b", "b"])
    ['a', 'b', 'b (2)']
    """
    chosen: list[str] = []
    for name in names:
        numbered = (f"{name} ({number})" for number in count(2))
        chosen.append(next(free for free in chain([name], numbered) if free not in chosen))
    return chosen


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return the last part of each path, or the whole paths if the last parts are not unique.

    >>> short_names(["a/bert", "a/gpt"]), short_names(["a/x", "b/x"])
    ({'a/bert': 'bert', 'a/gpt': 'gpt'}, {'a/x': 'a/x', 'b/x': 'b/x'})
    """
    every = list(names)
    ends = {name: name.rstrip("/").rpartition("/")[2] or name for name in every}
    return ends if len(set(ends.values())) == len(every) else {name: name for name in every}


def unique_short_names(names: Iterable[str]) -> list[str]:
    """Return a short name for each path. A path that occurs again gets a number, as in `bert (2)`."""
    every = list(names)
    short = short_names(dict.fromkeys(every))
    return unique_names(short[name] for name in every)


def write_csv(table: pl.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write a table as CSV, and return the path. The file leaves out columns that hold lists.

    A text that begins with =, +, - or @ gets an apostrophe, because a spreadsheet would otherwise read it as
    a formula.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_csv(pl.DataFrame({"name": ["=1+1"], "norm": [2.5]}), f"{folder}/norms.csv").read_text()
    "name,norm\\n'=1+1,2.5\\n"
    """
    plain = table.select(name for name, dtype in table.schema.items() if dtype != pl.List)
    safe = plain.with_columns(pl.col(pl.String).str.replace(r"^([=+\-@\t\r])", "'$1"))
    write_all({Path(path): safe.write_csv().encode()})
    return Path(path)
