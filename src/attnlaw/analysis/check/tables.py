"""The tables that rules look at: those of a checkpoint, and those of a baseline.

Tables of a checkpoint are measured only if a rule asks for them. A baseline is a directory that `audit --out`
or `diff --out` wrote. Its rows are the old values, and its findings count as known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.analysis.audit import AuditOptions
from attnlaw.analysis.audit.audit import Audit, audit
from attnlaw.analysis.check.columns import TENSORS
from attnlaw.analysis.check.locations import KEYS, LOCATION, location_of, row_location_text
from attnlaw.analysis.check.rules import GateRule, Tables
from attnlaw.analysis.findings.detectors import Detector
from attnlaw.checkpoints.settings import Arithmetic, ModelSettings
from attnlaw.core.errors import InputError, printable, require_some
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.quantity import Quantity, column_kinds
from attnlaw.core.result import Result
from attnlaw.core.tables import nan_to_null, quantity_frame, to_frame, to_schema

if TYPE_CHECKING:
    from attnlaw.analysis.diff.diff import Diff


@dataclass(eq=False)
class RuleTables:
    """The tables of one model, which is measured and compared with its base at most once."""

    settings: ModelSettings
    base: Any
    tables: Tables
    thresholds: Mapping[str, float]
    approximate: bool = False
    progress: Progress = no_progress

    def rows(self, table: str) -> pl.DataFrame:
        return SOURCES[table](self)

    @cached_property
    def audit(self) -> Audit:
        """The audit of the model. It reports tensors with NaN or infinity as findings and does not stop."""
        return audit(
            self.settings,
            AuditOptions(tolerant=True, thresholds=self.thresholds),
            Arithmetic(approximate=self.approximate),
            self.progress,
        )

    @cached_property
    def base_diff(self) -> Diff:
        from attnlaw.analysis.diff.diff import diff  # 14 modules, which a gate without a base does not need

        return diff(self.base, self.settings, progress=self.progress)

    @property
    def findings(self) -> pl.DataFrame | None:
        return self.audit.findings

    def can_look(self, detector: Detector) -> bool:
        """Return whether the parts of the model that a detector needs were measured."""
        return self.audit.subject.allows(detector.needs)


def tensor_table(audit: Audit) -> pl.DataFrame:
    """Return a table with a row for each stored tensor that the audit looked at."""
    rows = []
    for tensor in audit.subject.evidence.tensors:
        row = {**vars(tensor), **vars(tensor.location), "model": audit.name}
        names = {name: printable(row[name]) for name in ("tensor", "twin") if row[name] is not None}
        rows.append(row | names)
    return to_frame(rows, to_schema(column_kinds(TENSORS)))


SOURCES: dict[str, Callable[[RuleTables], pl.DataFrame]] = {
    "matrices": lambda model: model.audit.matrices,
    "layers": lambda model: model.audit.layers,
    "fits": lambda model: model.audit.fits(model.progress).matrices,
    "summary": lambda model: quantity_frame(tuple(model.tables["summary"]), [model.audit.quantities]),
    "tensors": lambda model: tensor_table(model.audit),
    "diff": lambda model: model.base_diff.maps,
    "diff_tensors": lambda model: model.base_diff.tensors,
}


REMEDY = "give a directory that attnlaw audit --out or attnlaw diff --out wrote"
SHAPE = ("rows", "cols", "inner")
Identity = tuple[str, tuple[tuple[str, Any], ...]]


def identity(rule: str, location: dict[str, Any]) -> Identity:
    """Return the rule and the location of a finding, which identify the finding even if its value changes."""
    return rule, tuple((name, location[name]) for name in LOCATION if name in location)


@dataclass(frozen=True)
class Baseline:
    """The saved result of one model, with the directory that it was read from."""

    folder: str
    result: Result

    def __post_init__(self) -> None:
        if len(self.result) != 1:
            raise InputError(
                f"{self.folder}: this baseline holds several models; give one that holds a single model"
            )

    def rows(self, rule: GateRule, quantities: Iterable[Quantity], now: pl.DataFrame) -> pl.DataFrame:
        """Return the old rows of a rule's table, whose matrices must have the same shapes `now`."""
        if rule.of == "summary":
            used = {rule.column.name, *rule.where, *KEYS[rule.of]}
            needed = {name: kind for name, kind in column_kinds(quantities).items() if name in used}
            return to_frame([self.result.row()], to_schema(needed))
        old = nan_to_null(self._table(rule.of))
        _require_same_shapes(old, now, rule.of, self.folder)
        return old

    def known_identities(self) -> set[Identity]:
        """Return the identities of the findings of the baseline. A baseline from `diff` has no findings."""
        if "diff" in self.result.tables:
            return set()
        rows = self._table("findings").iter_rows(named=True)
        return {identity(row["rule"], location_of(row)) for row in rows}

    def _table(self, name: str) -> pl.DataFrame:
        require_some(name in self.result.tables, self.folder, f"{name}.parquet", REMEDY)
        return self.result.tables[name].drop("case")


def _require_same_shapes(old: pl.DataFrame, now: pl.DataFrame, table: str, folder: str) -> None:
    both = [name for name in SHAPE if name in old.columns and name in now.columns]
    keys = [name for name in KEYS[table] if name in old.columns and name in now.columns]
    if not both or not keys:
        return
    joined = now.join(old, on=keys, how="inner", nulls_equal=True, suffix="_old", maintain_order="left")
    other = joined.filter(pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_old")) for name in both))
    for row in other.head(1).iter_rows(named=True):
        old_shape, new_shape = (
            " x ".join(str(row[f"{name}{end}"]) for name in both if row[f"{name}{end}"] is not None)
            for end in ("_old", "")
        )
        raise InputError(
            f"{folder}: {row_location_text(location_of(row))} has the shape {old_shape} there and "
            f"{new_shape} here; give a baseline of the same architecture"
        )
