"""Audited models as a report reads them: tables of several models in one, with a summary for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from attnlaw.auditing.rows import with_sizes
from attnlaw.auditing.summary import summary_of
from attnlaw.base.estimate import Estimate
from attnlaw.base.quantity import Quantity, columns
from attnlaw.base.tables import Schema, distinct_names, schema_of, stacked
from attnlaw.report.charts import figures
from attnlaw.report.marks import Figure
from attnlaw.report.source import VERSION, Source
from attnlaw.verbs import verb

AUDIT = verb("audit")
SCHEMAS: dict[str, Schema] = {one.name: schema_of(columns(one.columns)) for one in AUDIT.tables}
# Tables that are there without fitted laws, too.
ALWAYS = ("matrices", "spectra", "layers")
# What the columns of its tables are; a name that several have is that of the first.
KNOWN: dict[str, Quantity] = {one.name: one for table in reversed(AUDIT.tables) for one in table.columns}
KINDS, LAWS = (KNOWN[name].choices or {} for name in ("kind", "law"))
PLACE = ("model", "layer", "stack", "head", "expert", "kind")


@dataclass(frozen=True, eq=False)
class AuditRows:
    """The tables of one or several models, by name, with a summary (a dict of plain values) for each.

    A summary has the keys of summary.json. `fits` and `curves` are there where laws were fitted.
    """

    summaries: tuple[dict[str, Any], ...]
    tables: dict[str, pl.DataFrame]

    @property
    def names(self) -> list[str]:
        return [summary["model"] for summary in self.summaries]

    @property
    def matrices(self) -> pl.DataFrame:
        return self.tables["matrices"]

    @property
    def applied(self) -> bool:
        """Whether norms are shown as applied: where one model has none, all are shown as stored."""
        return all(summary.get("norms") == "applied" for summary in self.summaries)

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The summaries, saying which norms are shown: those of 0.1.0 say nothing."""
        stored = {} if self.applied else {"norms": "stored"}
        return [one | stored if "norms" in one else one for one in self.summaries]

    def __add__(self, other: AuditRows) -> AuditRows:
        """Both in one: rows of the first, then rows of the second; a name met again gets a number."""
        names = distinct_names(self.names, other.names)
        renamed = tuple({**summary, "model": names[summary["model"]]} for summary in other.summaries)
        mine, theirs = self.tables, other.tables
        return AuditRows(
            self.summaries + renamed,
            {
                name: stacked(mine.get(name), theirs.get(name), names)
                for name in SCHEMAS
                if name in mine or name in theirs
            },
        )


def audit_figures(audit: AuditRows) -> list[Figure]:
    """Whatever the rows allow: a figure without data is left out."""
    rows = proxies_rows(audit)
    tables = audit.tables | {"matrices": with_sizes(audit.matrices, audit.applied)}
    drawn = figures(Source(AUDIT, rows, tables, "model"))
    return [one for one in drawn if one.name != "shares" or not constant_shares(audit.tables["layers"])]


def constant_shares(layers: pl.DataFrame) -> bool:
    """Whether all layers of all models divide their contributions alike, to a tenth of a percent."""
    parts = layers.select(name for name in layers.columns if name.startswith("share_"))
    spread = parts.select(pl.all().max() - pl.all().min()).row(0) if layers.height > 1 else ()
    known = [value for value in spread if value is not None]
    return bool(known) and max(known) <= 1e-3


def proxies_rows(audit: AuditRows) -> pl.DataFrame:
    """The proxies of all models, a row each."""
    return pl.DataFrame([proxies_row(summary) for summary in audit.summaries], infer_schema_length=None)


def proxies_row(summary: dict[str, Any]) -> dict[str, Any]:
    """The proxies of a summary under the names of the quantities."""
    told = summary["proxies"] or {}
    entries = told | {f"fixed_p_{p}": entry for p, entry in told.get("fixed_p", {}).items()}
    values = {f"log10_{name}": entry["log10"] for name, entry in entries.items() if "log10" in entry}
    return {"model": summary["model"], VERSION: summary.get(VERSION), **values}


def summary_of_row(row: dict[str, Any], model: str) -> dict[str, Any]:
    """The summary of a model that a study audited, from the quantities in its row."""
    values: dict[str, Any] = {}
    for one in AUDIT.quantities:
        value = row.get(one.name)
        if not one.error:
            values[one.name] = value
        elif value is not None:
            values[one.name] = Estimate(value, row.get(f"{one.name}_error"))
    values |= {name: values[name] or [] for name in ("extensions", "warnings", "norms_unknown")}
    summary = summary_of(model, values, None, None)
    over = values.get("proxy_over_sqrt_samples_log10")
    if over is None:
        return summary
    error = {} if over.error is None else {"error": over.error}
    return summary | {
        "samples": row["samples"],
        "proxy_over_sqrt_samples": {"log10": over.value, **error},
    }
