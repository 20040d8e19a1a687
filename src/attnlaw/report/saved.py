"""What one directory holds, as pages and figures take it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.core.errors import printable
from attnlaw.core.verb import Verb
from attnlaw.render.charts.data import ChartData
from attnlaw.render.charts.figure import Figure
from attnlaw.verbs.audit.frames import AuditRows


@dataclass(frozen=True, eq=False)
class SavedResults:
    """Audited models, or rows with what figures are drawn from.

    `listed_rows` is what a page lists, where that is not the rows: one case is told by its table. `run_name`
    is what a page of several calls it.
    """

    folder: Path
    title: str
    rows: pl.DataFrame | None = None
    listed_rows: pl.DataFrame | None = None
    sources: tuple[ChartData, ...] = ()
    audit: AuditRows | None = None
    figures: tuple[Figure, ...] = ()
    run_name: str = ""

    @property
    def name(self) -> str:
        return printable(self.run_name or self.folder.name)

    @property
    def rows_by_verb(self) -> list[tuple[Verb[Any, Any], pl.DataFrame]]:
        """The verbs whose rows it shows, those beside them too, each with its rows."""
        every = [
            data for source in self.sources for data in (source, source.simulation_data) if data is not None
        ]
        return [(data.verb, data.rows) for data in every]

    @property
    def verbs(self) -> list[Verb[Any, Any]]:
        return [verb for verb, _ in self.rows_by_verb]
