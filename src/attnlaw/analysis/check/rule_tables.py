"""The tables of a checkpoint, each measured when a rule asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import polars as pl

from attnlaw.analysis.audit.audit import AuditOptions, audit
from attnlaw.analysis.audit.record import Audit
from attnlaw.analysis.check.rules import Tables
from attnlaw.analysis.check.tensors import tensor_table
from attnlaw.analysis.diff.diff import Diff, diff
from attnlaw.checkpoints.settings import Arithmetic, ModelSettings
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.tables import quantity_frame


class RuleTables:
    """A model that is measured, and compared with its base, at most once."""

    def __init__(
        self,
        settings: ModelSettings,
        base: Any,
        tables: Tables,
        thresholds: Mapping[str, float],
        approximate: bool = False,
        progress: Progress = no_progress,
    ) -> None:
        self.settings, self.base, self.tables = settings, base, tables
        self.thresholds, self.approximate, self.progress = thresholds, approximate, progress

    def rows(self, table: str) -> pl.DataFrame:
        return SOURCES[table](self)

    @cached_property
    def audit(self) -> Audit:
        """NaN and infinity are findings: what does not need them is measured."""
        return audit(
            self.settings,
            AuditOptions(tolerant=True, thresholds=self.thresholds),
            Arithmetic(approximate=self.approximate),
            self.progress,
        )

    @cached_property
    def base_diff(self) -> Diff:
        return diff(self.base, self.settings, progress=self.progress)

    @property
    def summary(self) -> pl.DataFrame:
        columns = tuple(self.tables["summary"])
        return quantity_frame(columns, [self.audit.quantities])

    @property
    def findings(self) -> pl.DataFrame | None:
        return self.audit.findings


SOURCES: dict[str, Callable[[RuleTables], pl.DataFrame]] = {
    "matrices": lambda model: model.audit.matrices,
    "layers": lambda model: model.audit.layers,
    "fits": lambda model: model.audit.fits(model.progress).matrices,
    "summary": lambda model: model.summary,
    "tensors": lambda model: tensor_table(model.audit),
    "diff": lambda model: model.base_diff.maps,
    "diff_tensors": lambda model: model.base_diff.tensors,
}
