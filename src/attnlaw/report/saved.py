"""What one directory holds, as pages and figures take it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.base.declare import Verb
from attnlaw.base.errors import printable
from attnlaw.report.audited import AuditRows
from attnlaw.report.marks import Figure
from attnlaw.report.source import Source


@dataclass(frozen=True, eq=False)
class Saved:
    """Audited models, or rows with what figures are drawn from.

    `listed` is what a page lists, where that is not the rows: one case is told by its table. `run` is what a
    page of several calls it.
    """

    folder: Path
    title: str
    rows: pl.DataFrame | None = None
    listed: pl.DataFrame | None = None
    sources: tuple[Source, ...] = ()
    audit: AuditRows | None = None
    figures: tuple[Figure, ...] = ()
    run: str = ""

    @property
    def name(self) -> str:
        return printable(self.run or self.folder.name)

    @property
    def found(self) -> list[tuple[Verb[Any, Any], pl.DataFrame]]:
        """The verbs whose rows it shows, those beside them too, each with its rows."""
        every = [one for source in self.sources for one in (source, source.beside) if one is not None]
        return [(one.verb, one.rows) for one in every]

    @property
    def verbs(self) -> list[Verb[Any, Any]]:
        return [verb for verb, _ in self.found]
