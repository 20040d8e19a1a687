"""Audited models and fitted laws that were saved, by a command or by a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.auditing.findings.rules import LEVELS
from attnlaw.base.errors import InputError, require_found
from attnlaw.base.files import read_json
from attnlaw.base.tables import conformed, read_table, without_nan
from attnlaw.report.audited import ALWAYS, AUDIT, KINDS, SCHEMAS, AuditRows, proxies_rows, summary_of_row
from attnlaw.report.saved import Saved
from attnlaw.report.source import Source
from attnlaw.report.summary import proxies_html, summary_html
from attnlaw.verbs import verb

# More audited models than this are compared by their proxies alone.
MOST_MODELS = 12


def read_audited(folder: Path) -> Saved:
    return Saved(folder, AUDIT.title, audit=read_audit(folder))


def read_audit(folder: Path) -> AuditRows:
    """The audit saved in a directory; an `InputError` where its files do not fit together."""
    again = f"write them with: attnlaw audit MODEL --out {folder}"
    path = folder / "summary.json"
    found = read_json(path, again)
    summaries = tuple(found) if isinstance(found, list) else (found,)
    require_found(summaries, folder, "model", f"{again}, an empty directory")
    _require_shown(summaries, path, again)
    places = {name: folder / f"{name}.parquet" for name in SCHEMAS}
    tables = {
        name: _table(path, name, again) for name, path in places.items() if name in ALWAYS or path.exists()
    }
    return _fitting(AuditRows(summaries, tables), folder, again)


def _require_shown(summaries: tuple[dict[str, Any], ...], path: Path, remedy: str) -> None:
    """An `InputError` for summaries that are none: those of which no head of a page can be made."""
    told = AuditRows(summaries, {})
    try:
        summary_html(told)
        proxies_html(told, None)
        proxies_rows(told)
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


def _table(path: Path, name: str, remedy: str) -> pl.DataFrame:
    """One table of an audit; what is no number in it is null."""
    return without_nan(conformed(read_table(path, remedy), SCHEMAS[name], str(path), remedy))


def _fitting(audit: AuditRows, folder: Path, remedy: str) -> AuditRows:
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


def audited_by_study(sources: Mapping[str, Source], folder: Path, remedy: str) -> AuditRows | None:
    """The models that a study audited, from its rows and the tables beside them; None without tables.

    Fits of the same study, of the same models, stand beside them.
    """
    source = sources.get("audit")
    if source is None or not 0 < source.rows.height <= MOST_MODELS:
        return None
    owners = [sources[name] for name in ("audit", "fit") if name in sources]
    every = {name: pl.concat([one.tables[name] for one in owners if name in one.tables]) for name in SCHEMAS}
    tables = {name: table for name, table in every.items() if table.height}
    if not all(name in tables for name in ALWAYS):
        return None
    names = dict(tables["matrices"].select(source.key, "model").unique().iter_rows())
    summaries = tuple(
        summary_of_row(row, names[row[source.key]])
        for row in source.rows.iter_rows(named=True)
        if row[source.key] in names
    )
    audit = AuditRows(summaries, {name: table.drop(source.key) for name, table in tables.items()})
    return _fitting(audit, folder, remedy)


def read_fits(folder: Path) -> Saved:
    """The laws of the matrices of some models: a row each."""
    remedy = f"write it again with: attnlaw fit MODEL --out {folder}"
    one = verb("fit")
    table = _table(folder / "fits.parquet", "fits", remedy).filter(pl.col("kind").is_in(list(KINDS)))
    require_found(table.height, folder, "fitted matrix", remedy)
    rows = table.select(pl.col("model").unique(maintain_order=True))
    return Saved(folder, one.title, table, sources=(Source(one, rows, {"fits": table}, "model"),))
