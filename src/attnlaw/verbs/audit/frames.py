"""Audited models as a report reads them: tables of several models in one, with a summary for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from attnlaw.analysis.audit.rows import fill_applied_sizes
from attnlaw.analysis.audit.summary import build_summary
from attnlaw.core.estimate import Estimate
from attnlaw.core.quantity import Quantity, column_kinds
from attnlaw.core.tables import Schema, stack_tables, to_schema, unique_names
from attnlaw.core.version import VERSION_COLUMN
from attnlaw.render.charts.data import ChartData
from attnlaw.render.charts.draw import draw_figures
from attnlaw.render.charts.figure import Figure
from attnlaw.verbs import find_verb

AUDIT = find_verb("audit")
SCHEMAS: dict[str, Schema] = {
    table_spec.name: to_schema(column_kinds(table_spec.columns)) for table_spec in AUDIT.tables
}
# Tables that are there without fitted laws, too.
REQUIRED_TABLES = ("matrices", "spectra", "layers")
# What the columns of its tables are; a name that several have is that of the first.
COLUMN_QUANTITIES: dict[str, Quantity] = {
    column.name: column for table in reversed(AUDIT.tables) for column in table.columns
}
KINDS, LAWS = (COLUMN_QUANTITIES[name].choices or {} for name in ("kind", "law"))
LOCATION_COLUMNS = ("model", "layer", "stack", "head", "expert", "kind")


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
    def norms_applied(self) -> bool:
        """Whether norms are shown as applied: where one model has none, all are shown as stored."""
        return all(summary["norms"] == "applied" for summary in self.summaries)

    @property
    def summaries_with_norms(self) -> list[dict[str, Any]]:
        """The summaries, with `norms` as the page shows them."""
        stored = {} if self.norms_applied else {"norms": "stored"}
        return [summary | stored for summary in self.summaries]

    def __add__(self, other: AuditRows) -> AuditRows:
        """Both in one: rows of the first, then rows of the second; a name met again gets a number."""
        names = unique_names(self.names, other.names)
        renamed = tuple({**summary, "model": names[summary["model"]]} for summary in other.summaries)
        mine, theirs = self.tables, other.tables
        return AuditRows(
            self.summaries + renamed,
            {
                name: stack_tables(mine.get(name), theirs.get(name), names)
                for name in SCHEMAS
                if name in mine or name in theirs
            },
        )


def audit_figures(audit: AuditRows) -> list[Figure]:
    """Whatever the rows allow: a figure without data is left out."""
    rows = proxies_rows(audit)
    tables = audit.tables | {"matrices": fill_applied_sizes(audit.matrices, audit.norms_applied)}
    drawn = draw_figures(ChartData(AUDIT, rows, tables, "model"))
    return [
        figure for figure in drawn if figure.name != "shares" or not constant_shares(audit.tables["layers"])
    ]


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
    proxies = summary["proxies"] or {}
    entries = proxies | {f"fixed_p_{p}": entry for p, entry in proxies.get("fixed_p", {}).items()}
    values = {f"log10_{name}": entry["log10"] for name, entry in entries.items() if "log10" in entry}
    return {"model": summary["model"], VERSION_COLUMN: summary[VERSION_COLUMN], **values}


def summary_of_row(row: dict[str, Any], model: str) -> dict[str, Any]:
    """The summary of a model that a study audited, from the quantities in its row."""
    values: dict[str, Any] = {}
    for quantity in AUDIT.quantities:
        value = row.get(quantity.name)
        if not quantity.error:
            values[quantity.name] = value
        elif value is not None:
            values[quantity.name] = Estimate(value, row.get(f"{quantity.name}_error"))
    values |= {name: values[name] or [] for name in ("extensions", "warnings", "norms_unknown")}
    summary = build_summary(model, values, None, None)
    over = values.get("proxy_over_sqrt_samples_log10")
    if over is None:
        return summary
    error = {} if over.error is None else {"error": over.error}
    return summary | {
        "samples": row["samples"],
        "proxy_over_sqrt_samples": {"log10": over.value, **error},
    }
