"""Rows of verbs with the tables beside them, of a command or a study, checked by what the verbs declare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.base.declare import Verb
from attnlaw.base.errors import BadSetting, InputError
from attnlaw.base.quantity import columns
from attnlaw.base.results import ROWS, STUDY_ROWS, WRITTEN
from attnlaw.base.settings import declared
from attnlaw.base.tables import Schema, conformed, read_table, schema_of, without_nan
from attnlaw.report.read_audit import audited_by_study
from attnlaw.report.saved import Saved
from attnlaw.report.source import Source
from attnlaw.verbs import verb

EXPORT = "write it again with: attnlaw study export FILE --out DIR"
TEXTS: Schema = {"verb": pl.String(), "status": pl.String()}
TASK = "^[0-9A-Za-z]{1,64}$"  # a part of a path


@dataclass(frozen=True)
class _Written:
    """A file of rows: the column that tells them apart, the tables of some of them, how to write it again."""

    path: Path
    key: str
    tables: Callable[[str, pl.DataFrame], Iterator[pl.DataFrame]]
    remedy: str

    def bad(self, found: str) -> InputError:
        return InputError(f"{self.path}: {found}; {self.remedy}")


def read_command(folder: Path, name: str) -> Saved:
    """The cases of one verb: `case` is the place of a row. Of one case its first table is listed."""
    remedy = f"write it again with: attnlaw {name} ... --out DIR"
    _verb(name, folder / WRITTEN)

    def tables(table: str, own: pl.DataFrame) -> Iterator[pl.DataFrame]:
        place = folder / f"{table}.parquet"
        if place.exists():
            yield read_table(place, remedy, {"case": pl.Int64()})

    path = folder / ROWS
    rows = _placed(read_table(path, remedy, TEXTS))
    saved = _checked(folder, rows, _Written(path, "case", tables, remedy))
    first = next((table for source in saved.sources for table in source.tables.values()), None)
    if rows.height > 1 or first is None or not first.height:
        return saved
    return replace(saved, listed=first.drop("case"))


def _placed(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with their places, by which tables know them."""
    return rows.with_columns(case=pl.int_range(pl.len(), dtype=pl.Int64))


def read_study(folder: Path) -> Saved:
    """The tasks of a study, which may be of several verbs; the models that it audited stand as an audit."""

    def tables(table: str, own: pl.DataFrame) -> Iterator[pl.DataFrame]:
        for task in own["task"]:
            place = folder / "tables" / table / f"{task}.parquet"
            if place.exists():
                yield read_table(place, EXPORT).with_columns(task=pl.lit(task))

    path = folder / STUDY_ROWS
    written = _Written(path, "task", tables, EXPORT)
    rows = read_table(path, EXPORT, TEXTS | {"task": pl.String()})
    if not rows.height:
        raise InputError(f"{path}: no task is finished yet; go on with: attnlaw study resume FILE --out DIR")
    strange = rows.filter(~pl.col("task").str.contains(TASK))["task"]
    if strange.len():
        raise written.bad(f"found a task {strange[0][:64]!r}")
    saved = _checked(folder, rows, written)
    audit = audited_by_study({source.verb.name: source for source in saved.sources}, folder, EXPORT)
    if audit is None:
        return saved
    return replace(
        saved, audit=audit, sources=tuple(one for one in saved.sources if one.verb.name != "audit")
    )


def _checked(folder: Path, rows: pl.DataFrame, written: _Written) -> Saved:
    """Rows of one or several verbs, each checked by its declaration, with the tables beside them."""
    if not rows.height:
        raise written.bad("found no rows")
    for name in (*TEXTS, written.key):
        if rows[name].null_count():
            raise written.bad(f"found a row without {name}")
    verbs = [_verb(name, written.path) for name in dict.fromkeys(rows["verb"])]
    infinite = {name for one in verbs for name, of in declared(one.settings).items() if of.rule.infinite}
    paths = [f"{table.name}_part" for one in verbs for table in one.tables]  # of tables, in a study's store
    rows = without_nan(rows.drop(paths, strict=False), *infinite)
    sources = {one.name: _source(one, rows, written) for one in verbs}
    title = " · ".join(dict.fromkeys(one.title for one in verbs if "." not in one.name)) or verbs[0].title
    return Saved(folder, title, rows, sources=tuple(side_by_side(sources)))


def _verb(name: str, where: Path) -> Verb[Any, Any]:
    try:
        return verb(name)
    except InputError as error:
        raise InputError(f"{where}: {error}; or read it with the version of attnlaw that wrote it") from error


def _source(one: Verb[Any, Any], rows: pl.DataFrame, written: _Written) -> Source:
    """The finished rows of a verb, with their tables."""
    own = rows.filter(pl.col("verb") == one.name, pl.col("status") != "failed")
    checked = conformed(own, schema_of(one.schema), str(written.path), written.remedy)
    _require_possible(one, checked, written)
    kept = own.select(name for name in own.columns if name not in checked.columns)
    key = {written.key: own.schema[written.key]}
    schemas = {table.name: key | schema_of(columns(table.columns)) for table in one.tables}

    def table(name: str) -> pl.DataFrame:
        where = f"{written.path}: table {name}"
        parts = [conformed(part, schemas[name], where, written.remedy) for part in written.tables(name, own)]
        return without_nan(pl.concat(parts)) if parts else pl.DataFrame(schema=schemas[name])

    return Source(one, checked.hstack(kept), _Tables(list(schemas), table), written.key)


class _Tables(Mapping[str, pl.DataFrame]):
    """Tables by name, each read and checked when it is first asked for."""

    def __init__(self, names: list[str], read: Callable[[str], pl.DataFrame]) -> None:
        self.names, self.read = names, cache(read)

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self.names:
            raise KeyError(name)
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _require_possible(one: Verb[Any, Any], rows: pl.DataFrame, written: _Written) -> None:
    """An `InputError` where rows tell nothing that the verb finds, or a setting lies below its bounds."""
    if rows.height and not any(rows[quantity.name].count() for quantity in one.quantities):
        names = ", ".join(quantity.name for quantity in one.quantities[:3])
        raise written.bad(f"found rows of {one.name} without any of {names}, ...")
    for name, known in declared(one.settings).items():
        if name in rows.columns and rows[name].dtype.is_numeric() and rows[name].count():
            try:
                known.checked(rows[name].min())
            except BadSetting as error:
                raise written.bad(str(error)) from error


def side_by_side(sources: Mapping[str, Source]) -> list[Source]:
    """The sources with rows, by the names of their verbs, each with that of the verb beside it."""
    shown = [source for source in sources.values() if source.rows.height]
    below = {source.verb.beside.name for source in shown if source.verb.beside is not None}
    return [_with_beside(source, sources) for source in shown if source.verb.name not in below]


def _with_beside(source: Source, sources: Mapping[str, Source]) -> Source:
    beside = source.verb.beside
    return source if beside is None else replace(source, beside=sources.get(beside.name))
