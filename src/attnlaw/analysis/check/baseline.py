"""A baseline: a directory of `audit --out` (or `diff --out`), its rows old and its findings known."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.check.locations import KEYS, PLACE, place_of, row_place_text
from attnlaw.analysis.check.rules import GateRule
from attnlaw.core.errors import InputError, as_input_error, require_some
from attnlaw.core.files import read_bounded
from attnlaw.core.quantity import Quantity, column_kinds
from attnlaw.core.tables import nan_to_null, read_table, require_columns, to_frame, to_schema

REMEDY = "write it again with attnlaw audit --out, or attnlaw diff --out"
MOST_SUMMARY = 64  # megabytes of summary.json
SHAPE = ("rows", "cols", "inner")
Identity = tuple[str, tuple[tuple[str, Any], ...]]


def identity(rule: str, place: dict[str, Any]) -> Identity:
    """What a finding is known by: its rule and its place, never its value."""
    return rule, tuple((name, place[name]) for name in PLACE if name in place)


@dataclass(frozen=True)
class Baseline:
    """What was saved of one model."""

    folder: Path

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: no such directory; give one that attnlaw audit --out wrote")

    def rows(self, rule: GateRule, quantities: Iterable[Quantity], now: pl.DataFrame) -> pl.DataFrame:
        """The old rows of a rule's table; an `InputError` where they are of another model's shapes."""
        needed = {name: kind for name, kind in column_kinds(quantities).items() if name in _used(rule)}
        if rule.of == "summary":
            return to_frame([self._summary()], to_schema(needed))
        old = self._table(rule.of, needed)
        _require_same_shapes(old, now, rule.of, self.folder)
        return old

    def known_identities(self) -> set[Identity]:
        """The findings that are there; a diff has none, an audit that found nothing a table without rows."""
        path, of_diff = self.folder / "findings.parquet", (self.folder / "diff.parquet").exists()
        if not path.exists():
            require_some(of_diff, self.folder, path.name, "give a directory that attnlaw audit --out wrote")
            return set()
        rows = self._table("findings", {"rule": "text"})
        return {identity(row["rule"], place_of(row)) for row in rows.iter_rows(named=True)}

    def _table(self, name: str, needed: dict[str, str]) -> pl.DataFrame:
        path = self.folder / f"{name}.parquet"
        require_some(path.exists(), self.folder, path.name, REMEDY)
        rows = require_columns(read_table(path, REMEDY), to_schema(needed), str(path), REMEDY)
        for column in ("model", "case"):
            if column in rows.columns and rows[column].n_unique() > 1:
                raise InputError(f"{path}: holds several models; give a baseline of one")
        return nan_to_null(rows)

    def _summary(self) -> dict[str, Any]:
        path = self.folder / "summary.json"
        damage = (ValueError, RecursionError, KeyError, TypeError, AttributeError)
        with as_input_error(f"{path}: no summary of one model", REMEDY, *damage, with_reason=False):
            summary = json.loads(read_bounded(path, MOST_SUMMARY, "give a directory of attnlaw audit --out"))
            quantities = summary["quantities"]
            values = {
                name: quantity["value"] if isinstance(quantity, dict) else quantity
                for name, quantity in quantities.items()
            }
        return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}


def _used(rule: GateRule) -> set[str]:
    return {rule.column.name, *rule.where, *KEYS[rule.of]}


def _require_same_shapes(old: pl.DataFrame, now: pl.DataFrame, table: str, folder: Path) -> None:
    """An `InputError` for a matrix of another shape: changes of its numbers would mean nothing."""
    both = [name for name in SHAPE if name in old.columns and name in now.columns]
    keys = [name for name in KEYS[table] if name in old.columns and name in now.columns]
    if not both or not keys:
        return
    joined = now.join(old, on=keys, how="inner", nulls_equal=True, suffix="_old", maintain_order="left")
    other = joined.filter(pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_old")) for name in both))
    for row in other.head(1).iter_rows(named=True):
        theirs, ours = (
            " x ".join(str(row[f"{name}{end}"]) for name in both if row[f"{name}{end}"] is not None)
            for end in ("_old", "")
        )
        raise InputError(
            f"{folder}: {row_place_text(place_of(row))} is {theirs} there and {ours} here; "
            "give a baseline of the same architecture"
        )
