"""Rows of verbs with the tables beside them, of a command or a study, checked by what the verbs declare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.quantity import column_kinds
from attnlaw.core.result_files import MANIFEST_FILE, ROWS, STUDY_ROWS
from attnlaw.core.settings import setting_fields
from attnlaw.core.tables import Schema, conform, nan_to_null, read_table, to_schema
from attnlaw.core.verb import Verb
from attnlaw.render.charts.data import ChartData
from attnlaw.report.read_audit import audit_of_study
from attnlaw.report.saved import SavedResults
from attnlaw.verbs import find_verb

EXPORT_REMEDY = "write it again with: attnlaw study export FILE --out DIR"
TEXT_COLUMNS: Schema = {"verb": pl.String(), "status": pl.String()}
TASK_PATTERN = "^[0-9A-Za-z]{1,64}$"  # a part of a path


@dataclass(frozen=True)
class _RowsFile:
    """A file of rows: the column that tells them apart, the tables of some of them, how to write it again."""

    path: Path
    key: str
    tables: Callable[[str, pl.DataFrame], Iterator[pl.DataFrame]]
    remedy: str

    def input_error(self, problem: str) -> InputError:
        return InputError(f"{self.path}: {problem}; {self.remedy}")


def read_command(folder: Path, name: str) -> SavedResults:
    """The cases of one verb: `case` is the place of a row. Of one case its first table is listed."""
    remedy = f"write it again with: attnlaw {name} ... --out DIR"
    _require_verb(name, folder / MANIFEST_FILE)

    def tables(table: str, verb_rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        place = folder / f"{table}.parquet"
        if place.exists():
            yield read_table(place, remedy, {"case": pl.Int64()})

    path = folder / ROWS
    rows = _with_case_numbers(read_table(path, remedy, TEXT_COLUMNS))
    saved = _check_rows(folder, rows, _RowsFile(path, "case", tables, remedy))
    first = next((table for source in saved.sources for table in source.tables.values()), None)
    if rows.height > 1 or first is None or not first.height:
        return saved
    return replace(saved, listed_rows=first.drop("case"))


def _with_case_numbers(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with their places, by which tables know them."""
    return rows.with_columns(case=pl.int_range(pl.len(), dtype=pl.Int64))


def read_study(folder: Path) -> SavedResults:
    """The tasks of a study, which may be of several verbs; the models that it audited stand as an audit."""

    def tables(table: str, verb_rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        for task in verb_rows["task"]:
            place = folder / "tables" / table / f"{task}.parquet"
            if place.exists():
                yield read_table(place, EXPORT_REMEDY).with_columns(task=pl.lit(task))

    path = folder / STUDY_ROWS
    written = _RowsFile(path, "task", tables, EXPORT_REMEDY)
    rows = read_table(path, EXPORT_REMEDY, TEXT_COLUMNS | {"task": pl.String()})
    if not rows.height:
        raise InputError(f"{path}: no task is finished yet; go on with: attnlaw study resume FILE --out DIR")
    strange = rows.filter(~pl.col("task").str.contains(TASK_PATTERN))["task"]
    if strange.len():
        raise written.input_error(f"found a task {strange[0][:64]!r}")
    saved = _check_rows(folder, rows, written)
    audit = audit_of_study({source.verb.name: source for source in saved.sources}, folder, EXPORT_REMEDY)
    if audit is None:
        return saved
    return replace(
        saved, audit=audit, sources=tuple(source for source in saved.sources if source.verb.name != "audit")
    )


def _check_rows(folder: Path, rows: pl.DataFrame, written: _RowsFile) -> SavedResults:
    """Rows of one or several verbs, each checked by its declaration, with the tables beside them."""
    if not rows.height:
        raise written.input_error("found no rows")
    for name in (*TEXT_COLUMNS, written.key):
        if rows[name].null_count():
            raise written.input_error(f"found a row without {name}")
    verbs = [_require_verb(name, written.path) for name in dict.fromkeys(rows["verb"])]
    infinite = {
        name for verb in verbs for name, of in setting_fields(verb.settings).items() if of.rule.allow_infinite
    }
    paths = [f"{table.name}_part" for verb in verbs for table in verb.tables]  # of tables, in a study's store
    rows = nan_to_null(rows.drop(paths, strict=False), *infinite)
    sources = {verb.name: _read_chart_data(verb, rows, written) for verb in verbs}
    title = " · ".join(dict.fromkeys(verb.title for verb in verbs if "." not in verb.name)) or verbs[0].title
    return SavedResults(folder, title, rows, sources=tuple(pair_with_simulations(sources)))


def _require_verb(name: str, where: Path) -> Verb[Any, Any]:
    try:
        return find_verb(name)
    except InputError as error:
        raise InputError(f"{where}: {error}; or read it with the version of attnlaw that wrote it") from error


def _read_chart_data(verb: Verb[Any, Any], rows: pl.DataFrame, written: _RowsFile) -> ChartData:
    """The finished rows of a verb, with their tables."""
    verb_rows = rows.filter(pl.col("verb") == verb.name, pl.col("status") != "failed")
    checked = conform(verb_rows, to_schema(verb.schema), str(written.path), written.remedy)
    _require_possible(verb, checked, written)
    kept = verb_rows.select(name for name in verb_rows.columns if name not in checked.columns)
    key = {written.key: verb_rows.schema[written.key]}
    schemas = {table.name: key | to_schema(column_kinds(table.columns)) for table in verb.tables}

    def table(name: str) -> pl.DataFrame:
        where = f"{written.path}: table {name}"
        parts = [
            conform(part, schemas[name], where, written.remedy) for part in written.tables(name, verb_rows)
        ]
        return nan_to_null(pl.concat(parts)) if parts else pl.DataFrame(schema=schemas[name])

    return ChartData(verb, checked.hstack(kept), _LazyTables(list(schemas), table), written.key)


class _LazyTables(Mapping[str, pl.DataFrame]):
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


def _require_possible(verb: Verb[Any, Any], rows: pl.DataFrame, written: _RowsFile) -> None:
    """An `InputError` where rows tell nothing that the verb finds, or a setting lies below its bounds."""
    if rows.height and not any(rows[quantity.name].count() for quantity in verb.quantities):
        names = ", ".join(quantity.name for quantity in verb.quantities[:3])
        raise written.input_error(f"found rows of {verb.name} without any of {names}, ...")
    for name, known in setting_fields(verb.settings).items():
        if name in rows.columns and rows[name].dtype.is_numeric() and rows[name].count():
            try:
                known.validate(rows[name].min())
            except BadSetting as error:
                raise written.input_error(str(error)) from error


def pair_with_simulations(sources: Mapping[str, ChartData]) -> list[ChartData]:
    """The sources with rows, by the names of their verbs, each with that of the verb beside it."""
    shown = [source for source in sources.values() if source.rows.height]
    below = {source.verb.simulation.name for source in shown if source.verb.simulation is not None}
    return [_with_simulation(source, sources) for source in shown if source.verb.name not in below]


def _with_simulation(source: ChartData, sources: Mapping[str, ChartData]) -> ChartData:
    beside = source.verb.simulation
    return source if beside is None else replace(source, simulation_data=sources.get(beside.name))
