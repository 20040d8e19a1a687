"""The rows of audits as a report reads them: tables of several models in one, from memory or from files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import polars as pl

from attnlaw.auditing.quantities import CURVES, FITS, LAYERS, MATRICES, SPECTRA
from attnlaw.auditing.remarks import proxy_entries, remarks
from attnlaw.base.declare import columns
from attnlaw.base.errors import InputError
from attnlaw.base.files import read_bounded
from attnlaw.base.tables import Schema, distinct_names, read_table, schema_of, stacked, without_nan
from attnlaw.report.audit_charts import KIND_NAMES
from attnlaw.report.study_rows import EXPORT
from attnlaw.report.summary_row import COLUMNS, from_row

TABLES = ("matrices", "spectra", "layers")
# Written where laws were fitted to the spectra.
FIT_TABLES = ("fits", "curves")
KEPT = TABLES + FIT_TABLES
DECLARED = {"matrices": MATRICES, "spectra": SPECTRA, "layers": LAYERS, "fits": FITS, "curves": CURVES}
SCHEMAS = {name: schema_of(columns(quantities)) for name, quantities in DECLARED.items()}
MOST_SUMMARY = 64  # megabytes of summary.json
SUMMARY = (
    *("model", "family", "layers", "hidden_size", "heads", "matrices", "proxies", "per_application"),
    *("value_of_adaptivity", "rank_count", "extensions", "warnings", "meaning"),
)
# The proxies that head a page.
HEADLINE = {"spectrum_adaptive": "spectrum-adaptive proxy", "edelman": "norm-based (2,1)"}


@dataclass(frozen=True, eq=False)
class AuditRows:
    """The rows of one or several models, with a summary (a dict of plain values) for each.

    `matrices`, `spectra` and `layers` are polars tables whose columns `attnlaw.base.schema` lists; `fits`
    and `curves` are None where no laws were fitted.
    """

    summaries: tuple[dict[str, Any], ...]
    matrices: pl.DataFrame
    spectra: pl.DataFrame
    layers: pl.DataFrame
    fits: pl.DataFrame | None = None
    curves: pl.DataFrame | None = None

    @property
    def names(self) -> list[str]:
        return [summary["model"] for summary in self.summaries]

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables that are there, by name."""
        named = {name: getattr(self, name) for name in KEPT}
        return {name: table for name, table in named.items() if table is not None}

    def __add__(self, other: Self) -> Self:
        """Both in one: rows of the first, then rows of the second; a name met again gets a number."""
        names = distinct_names(self.names, other.names)
        renamed = tuple({**summary, "model": names[summary["model"]]} for summary in other.summaries)
        mine, theirs = self.tables(), other.tables()
        tables = {
            name: stacked(mine.get(name), theirs.get(name), names)
            for name in KEPT
            if name in mine or name in theirs
        }
        return type(self)(self.summaries + renamed, **tables)


def read_audit(folder: Path) -> AuditRows:
    """The audit saved in a directory; an `InputError` where its files do not fit together."""
    again = f"write them with: attnlaw audit MODEL --out {folder}"
    data = read_bounded(folder / "summary.json", MOST_SUMMARY, again)
    try:
        found = json.loads(data, parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair cannot be written to a page
        summaries = tuple(_checked(summary) for summary in (found if isinstance(found, list) else [found]))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{folder}: not the rows of an audit ({error}); {again}") from error
    if not summaries:
        raise InputError(f"{folder}: found no model; {again}, an empty directory")
    places = {name: folder / f"{name}.parquet" for name in KEPT}
    tables = {
        name: _table(path, name, again) for name, path in places.items() if name in TABLES or path.exists()
    }
    return _fitting(AuditRows(summaries, **tables), folder, again)


def _table(path: Path, name: str, remedy: str) -> pl.DataFrame:
    """One table of an audit; what is no number in it is null."""
    table = read_table(path, remedy)
    try:
        return without_nan(conformed(table, SCHEMAS[name]))
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not the rows of an audit ({reason}); {remedy}") from error


def _fitting(audit: AuditRows, folder: Path, remedy: str) -> AuditRows:
    """The audit itself; an `InputError` where its tables tell of other models, or of what no matrix has."""
    for name, table in audit.tables().items():
        # The law of random matrices of one shape belongs to no model.
        owned = table.filter(pl.col("curve") != "null") if name == "curves" else table
        strangers = [model for model in owned["model"].unique() if model not in audit.names]
        if strangers:
            named = f"rows of {strangers[0]}, which summary.json does not name"
            raise InputError(f"{folder}: found {named}; {remedy}, an empty directory")
        kinds = set(owned["kind"]) - KIND_NAMES.keys() if "kind" in owned.columns else set()
        if kinds:
            raise InputError(f"{folder}: found a matrix of kind {kinds.pop()!r} in {name}; {remedy}")
    value = pl.element()
    bad = audit.spectra.filter(pl.col("singular_values").list.eval(value.is_null() | (value < 0)).list.any())
    if bad.height:
        raise InputError(f"{folder}: found singular values below 0 or missing from a spectrum; {remedy}")
    return audit


def conformed(table: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """The table with exactly the columns and types of the schema; what an older version lacks is null."""
    present = [name for name in schema if name in table.columns]
    cast = table.select(pl.col(name).cast(schema[name]) for name in present)
    missing = {name: pl.lit(None, dtype=dtype) for name, dtype in schema.items() if name not in present}
    return cast.with_columns(**missing).select(list(schema))


def _checked(summary: Any) -> dict[str, Any]:
    """A summary that can be shown; a `ValueError` where it cannot."""
    try:
        missing = [name for name in SUMMARY if name not in summary]
        if missing or not isinstance(summary["model"], str):
            raise ValueError(f"summary.json has no {missing[0] if missing else 'name of a model'}")
        remarks(summary)
        for name in ("proxies", "per_application"):
            for _, *numbers in proxy_entries(summary[name]) if summary[name] else ():
                if not all(number is None or isinstance(number, int | float) for number in numbers):
                    raise ValueError(f"summary.json has {name} that are no numbers")
        unknown = [name for name in HEADLINE if summary["proxies"] and name not in summary["proxies"]]
        if unknown:
            raise ValueError(f"summary.json has no proxy {unknown[0]}")
        if not all(isinstance(text, str) for text in [*summary["warnings"], summary["meaning"] or ""]):
            raise ValueError("summary.json has warnings or a meaning that are no texts")
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"summary.json is no summary: {error}") from error
    return dict(summary)


def _no_number(text: str) -> float:
    raise ValueError(f"summary.json has {text}, which is no number")


def read_audit_study(rows: pl.DataFrame, folder: Path) -> AuditRows | None:
    """The models that a study audited, from its rows and the tables beside them; None without them.

    An `InputError` where the rows lack what a page must tell.
    """
    done = rows.filter((pl.col("verb") == "audit") & (pl.col("status") != "failed"))
    places = {
        name: [(task, folder / "tables" / name / f"{task}.parquet") for task in rows["task"]] for name in KEPT
    }
    parts = {name: [place for place in own if place[1].exists()] for name, own in places.items()}
    if not done.height or not all(parts[name] for name in TABLES):
        return None
    missing = [name for name in COLUMNS if name not in rows.columns]
    if missing:
        raise InputError(
            f"{folder}: the rows of audits have no {missing[0]}, as those of an older version; compute them "
            f"again with: attnlaw study run FILE --out {folder} --force"
        )
    tables = {
        name: pl.concat([_table(path, name, EXPORT).with_columns(task=pl.lit(task)) for task, path in own])
        for name, own in parts.items()
        if own
    }
    names = dict(tables["matrices"].select("task", "model").unique().iter_rows())
    summaries = tuple(
        from_row(row, names[row["task"]]) for row in done.iter_rows(named=True) if row["task"] in names
    )
    audit = AuditRows(summaries, **{name: table.drop("task") for name, table in tables.items()})
    return _fitting(audit, folder, EXPORT)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """The last part of every path, or the whole name where that would not tell models apart.

    >>> short_names(["a/bert", "a/gpt"]), short_names(["a/x", "b/x"])
    ({'a/bert': 'bert', 'a/gpt': 'gpt'}, {'a/x': 'a/x', 'b/x': 'b/x'})
    """
    every = list(names)
    ends = {name: name.rstrip("/").rpartition("/")[2] or name for name in every}
    return ends if len(set(ends.values())) == len(every) else {name: name for name in every}
