"""Audited models and fitted laws that were saved, by a command or by a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.findings.rules import LEVELS
from attnlaw.core.errors import InputError, require_some
from attnlaw.core.files import read_json
from attnlaw.core.tables import conform, nan_to_null, read_table
from attnlaw.render.charts.data import ChartData
from attnlaw.report.saved import SavedResults
from attnlaw.verbs import find_verb
from attnlaw.verbs.audit.frames import (
    AUDIT,
    KINDS,
    REQUIRED_TABLES,
    SCHEMAS,
    AuditRows,
    proxies_rows,
    summary_of_row,
)
from attnlaw.verbs.audit.page import proxies_html, summary_html

# More audited models than this are compared by their proxies alone.
MOST_MODELS = 12


def read_saved_audit(folder: Path) -> SavedResults:
    return SavedResults(folder, AUDIT.title, audit=read_audit(folder))


def read_audit(folder: Path) -> AuditRows:
    """The audit saved in a directory; an `InputError` where its files do not fit together."""
    again = f"write them with: attnlaw audit MODEL --out {folder}"
    path = folder / "summary.json"
    document = read_json(path, again)
    summaries = tuple(document) if isinstance(document, list) else (document,)
    require_some(summaries, folder, "model", f"{again}, an empty directory")
    _require_summaries(summaries, path, again)
    places = {name: folder / f"{name}.parquet" for name in SCHEMAS}
    tables = {
        name: _read_audit_table(path, name, again)
        for name, path in places.items()
        if name in REQUIRED_TABLES or path.exists()
    }
    return _require_consistent(AuditRows(summaries, tables), folder, again)


def _require_summaries(summaries: tuple[dict[str, Any], ...], path: Path, remedy: str) -> None:
    """An `InputError` for summaries that are none: those of which no head of a page can be made."""
    audit = AuditRows(summaries, {})
    try:
        summary_html(audit)
        proxies_html(audit, None)
        proxies_rows(audit)
    except (
        pl.exceptions.PolarsError,
        AttributeError,
        LookupError,
        OverflowError,
        TypeError,
        ValueError,
    ) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: not what attnlaw wrote ({reason}); {remedy}") from error


def _read_audit_table(path: Path, name: str, remedy: str) -> pl.DataFrame:
    """One table of an audit; what is no number in it is null."""
    return nan_to_null(conform(read_table(path, remedy), SCHEMAS[name], str(path), remedy))


def _require_consistent(audit: AuditRows, folder: Path, remedy: str) -> AuditRows:
    """The audit itself; an `InputError` where its tables tell of other models, or of what no matrix has."""
    for name, table in audit.tables.items():
        # The law of random matrices of one shape belongs to no model.
        owned = table.filter(pl.col("curve") != "null") if name == "curves" else table
        strangers = [model for model in owned["model"].unique() if model not in audit.names]
        if strangers:
            named = f"rows of {strangers[0]}, which summary.json does not name"
            raise InputError(f"{folder}: found {named}; {remedy}, an empty directory")
        known = {*KINDS, None} if name == "findings" else KINDS.keys()
        kinds = set(owned["kind"]) - known if "kind" in owned.columns else set()
        if kinds:
            raise InputError(f"{folder}: found a matrix of kind {kinds.pop()!r} in {name}; {remedy}")
    levels = set(audit.tables["findings"]["level"]) - {*LEVELS} if "findings" in audit.tables else set()
    if levels:
        raise InputError(f"{folder}: found a finding of level {levels.pop()!r}; {remedy}")
    value = pl.element()
    spectra = audit.tables["spectra"]
    bad = spectra.filter(pl.col("singular_values").list.eval(value.is_null() | (value < 0)).list.any())
    if bad.height:
        raise InputError(f"{folder}: found singular values below 0 or missing from a spectrum; {remedy}")
    return audit


def audit_of_study(sources: Mapping[str, ChartData], folder: Path, remedy: str) -> AuditRows | None:
    """The models that a study audited, from its rows and the tables beside them; None without tables.

    Fits of the same study, of the same models, stand beside them.
    """
    source = sources.get("audit")
    if source is None or not 0 < source.rows.height <= MOST_MODELS:
        return None
    owners = [sources[name] for name in ("audit", "fit") if name in sources]
    every = {
        name: pl.concat([owner.tables[name] for owner in owners if name in owner.tables]) for name in SCHEMAS
    }
    tables = {name: table for name, table in every.items() if table.height}
    if not all(name in tables for name in REQUIRED_TABLES):
        return None
    names = dict(tables["matrices"].select(source.key, "model").unique().iter_rows())
    summaries = tuple(
        summary_of_row(row, names[row[source.key]])
        for row in source.rows.iter_rows(named=True)
        if row[source.key] in names
    )
    audit = AuditRows(summaries, {name: table.drop(source.key) for name, table in tables.items()})
    return _require_consistent(audit, folder, remedy)


def read_fits(folder: Path) -> SavedResults:
    """The laws of the matrices of some models: a row each."""
    remedy = f"write it again with: attnlaw fit MODEL --out {folder}"
    verb = find_verb("fit")
    table = _read_audit_table(folder / "fits.parquet", "fits", remedy).filter(
        pl.col("kind").is_in(list(KINDS))
    )
    require_some(table.height, folder, "fitted matrix", remedy)
    rows = table.select(pl.col("model").unique(maintain_order=True))
    return SavedResults(folder, verb.title, table, sources=(ChartData(verb, rows, {"fits": table}, "model"),))
