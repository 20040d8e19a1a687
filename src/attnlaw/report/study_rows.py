"""The rows of a study and the tables beside them, checked before figures are drawn from them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from attnlaw.base.errors import InputError
from attnlaw.base.tables import Schema, read_table, require_columns, without_nan

ROWS = Path("rows", "rows.parquet")
EXPORT = "write it again with: attnlaw study export FILE --out DIR"
EVERY: Schema = {"verb": pl.String(), "status": pl.String(), "task": pl.String()}
# What every finished row of a verb tells: what it was asked, and what it found.
ASKED: dict[str, Schema] = {
    "audit": {"model": pl.String()},
    "learn": {
        **dict.fromkeys(("alpha", "target_rank", "noise", "weight_decay"), pl.Float64()),
        "student": pl.String(),
    },
    "learn.simulate": {"alpha": pl.Float64(), "student": pl.String(), "simulate": pl.Int64()},
    "limit": {"heads": pl.Int64(), "width": pl.Float64()},
}
# Settings that are null where the target or the student has none.
UNUSED = ("target_rank", "weight_decay")
DISTANCES = ("kl_to_limit", "kl_to_limit_error", "w1_to_limit", "w1_to_limit_error")
FOUND: dict[str, Schema] = {
    "audit": {"log10_spectrum_adaptive": pl.Float64()},
    "learn": {"estimation_error": pl.Float64(), "relative_error": pl.Float64()},
    "learn.simulate": {"estimation_error": pl.Float64()},
    "limit": dict.fromkeys(DISTANCES, pl.Float64()),
}
# What rows of targets that fall as a power tell beyond these.
POWERS: Schema = {
    **dict.fromkeys(("target_exponent", "target_dimension", "tokens"), pl.Float64()),
    **dict.fromkeys(("leading_error", "predicted_exponent"), pl.Float64()),
    "output": pl.String(),
}
# What rows that follow tokens along the depth tell beyond these, a list of one length in each row.
PATHS: Schema = {
    f"path_{name}{end}": pl.List(pl.Float64)
    for name in ("squared_length", "cosine")
    for end in ("", "_error")
}
# Settings that stand on logarithmic axes.
ABOVE_ZERO = {"limit": ("heads", "width")}
# Settings that may be infinite; a result that is not finite is none.
INFINITE = ("width", "beta")
# Beginnings of the names of columns that hold numbers.
NUMBERS = (
    "log10_",
    "threshold_",
    "kl_",
    "kernel_kl",
    "head_",
    "target_",
    "tokens",
    "beta",
    "atom_",
    "outlier",
)
TEXTS = ("output", "other_scaling", "scaling", "activation", "mask")


def read_rows(folder: Path) -> pl.DataFrame:
    """The rows that a study exported to a directory; an `InputError` where they are not such rows."""
    path = folder / ROWS
    rows = without_nan(read_table(path, EXPORT, EVERY), *INFINITE)
    where = str(path)
    _require_told(rows, EVERY, where)
    strange = rows.filter(~pl.col("task").str.contains("^[0-9A-Za-z]{1,64}$"))["task"]
    if not rows.height:
        raise InputError(f"{where}: no task is finished yet; go on with: attnlaw study resume FILE --out DIR")
    if strange.len():
        raise InputError(f"{where}: found a task {strange[0][:64]!r}; {EXPORT}")
    done = rows.filter(pl.col("status") != "failed")
    for verb, asked in ASKED.items():
        own = done.filter(pl.col("verb") == verb)
        if own.height:
            rows = require_columns(rows, asked | FOUND[verb], where, EXPORT)
            _require_told(own, [name for name in asked if name not in UNUSED], where)
            for name in ABOVE_ZERO.get(verb, ()):
                if (own[name] <= 0).any():
                    raise InputError(f"{where}: found a {name} that is not above 0; {EXPORT}")
    if "target_exponent" in rows.columns and rows["target_exponent"].count():
        rows = require_columns(rows, POWERS, where, EXPORT)
    if any(name in rows.columns and rows[name].count() for name in PATHS):
        rows = require_columns(rows, PATHS, where, EXPORT)
        lengths = rows.select(pl.col(name).list.len() for name in PATHS)
        if any(lengths[name].to_list() != lengths.to_series(0).to_list() for name in PATHS):
            raise InputError(f"{where}: found paths along the depth of several lengths in a row; {EXPORT}")
    _require_kinds(rows, where)
    return rows


def _require_kinds(rows: pl.DataFrame, where: str) -> None:
    """An `InputError` for a column that not every study has, where its values are of another kind."""
    for name, dtype in rows.schema.items():
        if rows[name].count() and not _is_right(name, dtype):
            raise InputError(f"{where}: {name} is a column of {dtype}; {EXPORT}")


def _is_right(name: str, dtype: pl.DataType) -> bool:
    if name in TEXTS:
        return dtype == pl.String
    return dtype.is_numeric() or not name.startswith(NUMBERS)


def _require_told(rows: pl.DataFrame, names: Iterable[str], where: str) -> None:
    for name in names:
        if rows[name].null_count():
            raise InputError(f"{where}: found a row without {name}; {EXPORT}")


def table_beside(folder: Path, name: str, task: str, needed: Schema) -> pl.DataFrame | None:
    """The table of a task, of the columns that are needed; None where there is none."""
    path = folder / "tables" / name / f"{task}.parquet"
    if not path.exists():
        return None
    return without_nan(read_table(path, EXPORT, needed)).select(list(needed))
