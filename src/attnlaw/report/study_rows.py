"""The rows of a study and the tables beside them, checked before figures are drawn from them."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from attnlaw.errors import InputError
from attnlaw.records.read import read_table, require_columns, without_nan
from attnlaw.records.schema import Schema

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
    "learn.simulate": {"alpha": pl.Float64(), "student": pl.String()},
    "limit": {"heads": pl.Int64(), "width": pl.Float64()},
}
DISTANCES = ("kl_to_limit", "kl_to_limit_error", "w1_to_limit", "w1_to_limit_error")
FOUND: dict[str, Schema] = {
    "audit": {"log10_spectrum_adaptive": pl.Float64()},
    "learn": {"estimation_error": pl.Float64()},
    "learn.simulate": {"estimation_error": pl.Float64()},
    "limit": dict.fromkeys(DISTANCES, pl.Float64()),
}
# Settings that may be infinite; a result that is not finite is none.
INFINITE = ("width", "beta")
NUMBERS = ("log10_", "threshold_", "kl_", "w1_", "kernel_", "path_", "relative_", "leading_", "predicted_exp")


def read_rows(folder: Path) -> pl.DataFrame:
    """The rows that a study exported to a directory; an `InputError` where they are not such rows."""
    path = folder / ROWS
    rows = without_nan(read_table(path, EXPORT, EVERY), *INFINITE)
    where = str(path)
    _require_told(rows, EVERY, where)
    strange = rows.filter(~pl.col("task").str.contains("^[0-9A-Za-z]+$"))["task"]
    if not rows.height or strange.len():
        found = f"a task {strange[0]!r}" if strange.len() else "no rows"
        raise InputError(f"{where}: found {found}; {EXPORT}")
    done = rows.filter(pl.col("status") != "failed")
    for verb, asked in ASKED.items():
        own = done.filter(pl.col("verb") == verb)
        if own.height:
            rows = require_columns(rows, asked | FOUND[verb], where, EXPORT)
            _require_told(own, asked, where)
    for name in rows.columns:
        numeric = rows.schema[name].is_numeric() or rows.schema[name] == pl.List(pl.Float64)
        if name.startswith(NUMBERS) and not name.endswith("_part") and not numeric:
            raise InputError(
                f"{where}: {name} is a column of {rows.schema[name]}, expected numbers; {EXPORT}"
            )
    return rows


def _require_told(rows: pl.DataFrame, schema: Schema, where: str) -> None:
    for name in schema:
        if rows[name].null_count():
            raise InputError(f"{where}: found a row without {name}; {EXPORT}")


def table_beside(folder: Path, name: str, task: str, needed: Schema) -> pl.DataFrame | None:
    """The table of a task, of the columns that are needed; None where there is none."""
    path = folder / "tables" / name / f"{task}.parquet"
    if not path.exists():
        return None
    return without_nan(read_table(path, EXPORT, needed)).select(list(needed))
