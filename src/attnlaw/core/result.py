"""The result of a verb: the only form in which attnlaw shows, saves and loads numbers.

    verb.run(cases) -> records --Result.collect--> Result -> terminal | JSON | notebook | page | files

A `Result` has one row for each case, and tables whose column `case` is the number of the row that they belong
to. Its files are `attnlaw.json`, `rows.parquet`, `TABLE.parquet` for each table, and `simulation.parquet` for
the rows of a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, chain
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from attnlaw.core.errors import BadSetting, InputError, UnavailableError, require_some
from attnlaw.core.estimate import Outcome, format_value
from attnlaw.core.files import to_json, to_parquet
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.quantity import Quantity, cells_to_json, cells_to_values, column_kinds
from attnlaw.core.settings import infinity_as_text, setting_fields
from attnlaw.core.version import version

if TYPE_CHECKING:
    import os

    import polars as pl

    from attnlaw.core.verb import Verb

MANIFEST = "attnlaw.json"  # names the verb and the version that wrote a directory
ROWS, SIMULATION = "rows.parquet", "simulation.parquet"
SUMMARY = "summary.json"


def _no_views() -> ModuleType:
    raise NotImplementedError


# Imports `attnlaw.verbs.views`, which shows results. `attnlaw.verbs` sets it: this room cannot import it.
load_views: Callable[[], ModuleType] = _no_views


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result of a verb, with one row for each case and with tables.

    Every table is an attribute (`result.matrices`). If there is only one case, every quantity is also an
    attribute (`result.estimation_error`), as are `status` and `remark`. `result[0]` is the result of the
    first case, and `a + b` has the cases of both.

    Args:
        verb: The declaration of settings, quantities, tables and charts.
        rows: One row for each case, with the columns of `verb.schema`, and in a study also others. A failed
            case has the status "failed", and its error as the remark.
        tables: The tables, keyed by name. Each has its declared columns and a column `case`.
        records: The Python objects that the verb computed, such as a `Prediction`, one for each case. They
            are never saved to disk.
        simulation: The result of the simulation verb, or None.
    """

    verb: Verb[Any, Any]
    rows: pl.DataFrame
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    records: tuple[Any, ...] = ()
    simulation: Result | None = None

    @classmethod
    def collect(
        cls, verb: Verb[Any, Any], pairs: Iterable[tuple[Any, Any]], simulation: Result | None = None
    ) -> Self:
        """Return the result of pairs (case, record). The record of a failed case is its `InputError`."""
        from attnlaw.core.tables import to_frame, to_schema

        pairs = list(pairs)
        records = tuple(record for _, record in pairs)
        rows = to_frame((verb.row(*pair) for pair in pairs), to_schema(verb.schema))
        return cls(verb, rows, collect_tables(verb, records), records, simulation)

    def __len__(self) -> int:
        return self.rows.height

    def __getitem__(self, case: int | slice) -> Self:
        """Return the result of one case or of a slice of cases, without the simulation."""
        import polars as pl

        if isinstance(case, slice):
            return self.concat([self.collect(self.verb, []), *(self[i] for i in range(len(self))[case])])
        case = range(len(self))[case]
        tables = {name: table.filter(pl.col("case") == case) for name, table in self.tables.items()}
        return self._case(case, tables)

    def __iter__(self) -> Iterator[Self]:
        parts = {name: table.partition_by("case", as_dict=True) for name, table in self.tables.items()}
        for case in range(len(self)):
            tables = {name: parts[name].get((case,), table.clear()) for name, table in self.tables.items()}
            yield self._case(case, tables)

    def _case(self, case: int, tables: Mapping[str, pl.DataFrame]) -> Self:
        import polars as pl

        optional = {spec.name for spec in self.verb.tables if spec.optional}
        kept = {name: table for name, table in tables.items() if table.height or name not in optional}
        numbered = {name: table.with_columns(case=pl.lit(0, pl.Int64)) for name, table in kept.items()}
        return type(self)(self.verb, self.rows[case : case + 1], numbered, self.records[case : case + 1])

    def __add__(self, other: Self) -> Self:
        return self.concat([self, other]) if isinstance(other, Result) else NotImplemented

    @classmethod
    def concat(cls, results: Sequence[Result]) -> Self:
        """Return one result with the cases of several results of the same verb."""
        import polars as pl

        verb = results[0].verb
        for result in results:
            if result.verb.name != verb.name:
                raise InputError(
                    f"cannot add results of {verb.name} and {result.verb.name}; show them separately"
                )
        starts = accumulate((len(result) for result in results), initial=0)
        frames: dict[str, list[pl.DataFrame]] = {}
        for start, result in zip(starts, results, strict=False):
            for name, table in result.tables.items():
                frames.setdefault(name, []).append(table.with_columns(pl.col("case") + start))
        # A case that was loaded has no record.
        records = [result.records or (None,) * len(result) for result in results]
        simulations = [result.simulation for result in results if result.simulation is not None]
        return cls(
            verb,
            pl.concat([result.rows for result in results], how="diagonal_relaxed"),
            {name: pl.concat(parts, how="diagonal_relaxed") for name, parts in frames.items()},
            tuple(chain.from_iterable(records)),
            cls.concat(simulations) if simulations else None,
        )

    @property
    def record(self) -> Any:
        """The object that the verb computed for the only case. A loaded result does not have this object."""
        if len(self) == 1 and self.records and self.records[0] is not None:
            return self.records[0]
        raise self._unavailable("record")

    def _unavailable(self, name: str) -> UnavailableError:
        message = f"this object is not stored in files; compute it again with attnlaw.{self.verb.name}"
        if len(self) != 1:
            message = f"the result has {len(self)} cases; choose one, such as result[0].{name}"
        return UnavailableError(message)

    if not TYPE_CHECKING:  # type checkers know the attributes of each verb's result by its stub

        def __getattr__(self, name: str) -> Any:
            # copy, pickle and hasattr ask for names before the fields exist.
            if name.startswith("_") or "tables" not in self.__dict__:
                raise AttributeError(name)
            # Python also asks here after a property has raised an `AttributeError`.
            if name in ("record", "summary"):
                raise self._unavailable(name)
            if name in self.tables:
                return self.tables[name].drop("case") if len(self) == 1 else self.tables[name]
            if name in self._value_names:
                if len(self) == 1:
                    return (self.row() | self.values())[name]
                raise AttributeError(
                    f"the result has {len(self)} cases: use result[0].{name} or result.rows[{name!r}]"
                )
            raise AttributeError(f"a result of {self.verb.name} has no {name!r}")

    @property
    def _value_names(self) -> list[str]:
        return [*(quantity.name for quantity in self.verb.quantities), "status", "remark"]

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *self.tables, *(self._value_names if len(self) == 1 else ())}
        return sorted(names - {name for name in ("record", "summary") if not hasattr(self, name)})

    def row(self, case: int = 0) -> dict[str, Any]:
        """Return the row of a case as a dict."""
        return self.rows.row(case, named=True)

    def values(self, case: int = 0) -> dict[str, Any]:
        """Return the quantities of a case by name: numbers, `Estimate`s, `Range`s, texts and lists."""
        return cells_to_values(self.verb.quantities, self.row(case))

    def settings(self, case: int = 0) -> dict[str, Any]:
        """Return the settings of a case by name. A setting that has no effect in this case is None."""
        row = self.row(case)
        return {name: row[column] for name, column in self.verb.setting_columns.items()}

    @cached_property
    def plain_rows(self) -> pl.DataFrame:
        """All rows with the column `case`. NaN is null, and so is infinity unless a setting allows it."""
        import polars as pl

        from attnlaw.core.tables import nan_to_null

        known = setting_fields(self.verb.settings).items()
        infinite = [name for name, setting in known if setting.rule.allow_infinite]
        return nan_to_null(self.rows, *infinite).with_columns(case=pl.int_range(pl.len(), dtype=pl.Int64))

    @cached_property
    def finished_rows(self) -> pl.DataFrame:
        """The rows of the cases that did not fail, as in `plain_rows`."""
        return self.plain_rows.filter(self.plain_rows["status"] != str(Outcome.FAILED))

    def finished_table(self, name: str) -> pl.DataFrame:
        """Return a table without failed cases, and with null for NaN. A missing table is empty."""
        import polars as pl

        from attnlaw.core.tables import nan_to_null, to_schema

        columns = next(spec.columns for spec in self.verb.tables if spec.name == name)
        empty = pl.DataFrame(schema=to_schema(column_kinds(columns)) | {"case": pl.Int64()})
        table = self.tables.get(name, empty)
        return nan_to_null(table.filter(table["case"].is_in(self.finished_rows["case"].implode())))

    def to_json(self) -> list[dict[str, Any]]:
        """Return a dict of plain values for each case, followed by those of the simulation."""
        objects = [case.summary for case in self]
        if self.verb.joint_summary is not None and len(self) > 1:
            joint = self.verb.joint_summary(self)
            objects = [summary | joint for summary in objects]
        return objects + ([] if self.simulation is None else self.simulation.to_json())

    @property
    def summary(self) -> dict[str, Any]:
        """The dict of plain values for the only case."""
        if len(self) != 1:
            raise self._unavailable("summary")
        row = self.row()
        tables: dict[str, Any] = {spec.name: None for spec in self.verb.tables if spec.json}
        for spec in self.verb.tables:
            if spec.json and spec.name in self.tables:
                lines = self.tables[spec.name].iter_rows(named=True)
                tables[spec.name] = [cells_to_json(spec.columns, line) for line in lines]
        more = {} if self.verb.summary is None or row["status"] == Outcome.FAILED else self.verb.summary(self)
        return {
            "verb": self.verb.name,
            "settings": {name: infinity_as_text(value) for name, value in self.settings().items()},
            "quantities": cells_to_json(self.verb.quantities, row),
            "status": row["status"],
            "remark": row["remark"],
            **({"tables": tables} if tables else {}),
            "version": row["attnlaw_version"],
            **more,
        }

    def for_saving(self, progress: Progress = no_progress) -> Result:
        """Return the result with the tables that are only made when it is saved.

        A single case also gets the tables for its charts, so that a loaded result can be drawn too.
        """
        specs = self.verb.tables
        makers = {spec.name: spec.on_save and partial(spec.on_save, progress=progress) for spec in specs}
        return self.for_plotting()._with_tables(makers)

    def for_plotting(self) -> Result:
        """Return the result with the tables that only charts need, if there is exactly one case."""
        makers = {spec.name: spec.on_plot for spec in self.verb.tables}
        return self._with_tables(makers) if len(self) == 1 else self

    def _with_tables(self, makers: Mapping[str, Callable[[Any], Any] | None]) -> Result:
        """Return the result with further tables.

        `makers` are called for each case that has a record and does not have this table yet.
        """
        import polars as pl

        tables = dict(self.tables)
        for name, make in makers.items():
            there = set(tables[name]["case"]) if name in tables else set()
            records = [None if case in there else record for case, record in enumerate(self.records)]
            made = {} if make is None else collect_tables(self.verb, records, {name: make})
            if name in made:
                parts = [tables[name], made[name]] if name in tables else [made[name]]
                tables[name] = pl.concat(parts).sort("case", maintain_order=True)
        return replace(self, tables=tables)

    @property
    def frames(self) -> dict[str, pl.DataFrame]:
        """The rows and tables, keyed by file name, including those of the simulation."""
        frames = {ROWS: self.rows} | {f"{name}.parquet": table for name, table in self.tables.items()}
        more = {} if self.simulation is None else self.simulation.frames
        return frames | {SIMULATION if name == ROWS else name: frame for name, frame in more.items()}

    def files(self) -> dict[str, bytes]:
        """Return the contents of the files that `attnlaw.load` reads, keyed by file name."""
        lines = {name: frame.height for name, frame in self.frames.items()}
        manifest = {"verb": self.verb.name, "version": version(), "lines": lines}
        contents = {MANIFEST: f"{to_json(manifest)}\n".encode()}
        contents |= {name: to_parquet(frame) for name, frame in self.frames.items()}
        if self.verb.summary is not None:
            objects = self.to_json()
            contents[SUMMARY] = f"{to_json(objects if len(objects) > 1 else objects[0])}\n".encode()
        return contents

    @classmethod
    def open(cls, folder: Path, verb: Verb[Any, Any], remedy: str) -> Result:
        """Read the result of a verb from a directory, and check that every column has its declared type."""
        result = _open_rows(folder, ROWS, verb, remedy)
        if verb.simulation is not None and (folder / SIMULATION).exists():
            return replace(result, simulation=_open_rows(folder, SIMULATION, verb.simulation, remedy))
        return result

    def save(
        self, directory: str | os.PathLike[str], figures: str | None = None, progress: Progress = no_progress
    ) -> Path:
        """Save the result and report.html to a directory, as the option `--out` does.

        Args:
            directory: The directory to write, which is created if needed.
            figures: "pdf", "svg" or "png" also writes every chart into `figures/`. None writes no charts.
                All charts, including those in report.html, need the optional packages of attnlaw[charts].
            progress: A function that receives the progress while tables are made.

        Returns:
            The directory.
        """
        folder: Path = load_views().save(self, directory, figures, progress)
        return folder

    def plot(self, name: str | None = None) -> Any:
        """Return the chart of this name, or the first chart, as an Altair chart.

        A notebook can show the chart without a network. Charts need the optional packages of attnlaw[charts].
        """
        return load_views().plot(self, name)

    def show(self, details: bool = False) -> None:
        """Print the result as the command does.

        Args:
            details: Whether to show every number, as the option `--details` does.
        """
        load_views().show(self, details=details)

    def _repr_html_(self) -> str:
        return str(load_views().notebook_html(self))

    def __repr__(self) -> str:
        answer = load_views().answer_of(self) if len(self) else None
        known = [line for line in answer.lines if line.status or line.is_main] if answer else []
        known = known or list(answer.lines[:1] if answer else ())
        if len(self) != 1:
            first = f": {known[0].text}" if known else ""
            return f"<{self.verb.name}: {len(self)} cases{first}>"
        lines = [f"{line.status} {line.text}" if line.status else line.text for line in known]
        if lines:
            return f"<{self.verb.name}: {' '.join(lines)}>"
        values = self.values()
        parts = [
            f"{quantity.symbol or quantity.label} {text}"
            for quantity in self.verb.quantities
            if quantity.in_summary and (text := format_value(values[quantity.name]))
        ]
        return f"<{self.verb.name}: {', '.join([*parts, *self.status_texts()])}>"

    def status_texts(self, case: int = 0) -> list[str]:
        """Return the status of a case if it is not "done", and the remark if there is one."""
        row = self.row(case)
        return [text for text in (row["status"], row["remark"]) if text and text != Outcome.DONE]


def collect_tables(
    verb: Verb[Any, Any], records: Sequence[Any], makers: Mapping[str, Callable[[Any], Any]] | None = None
) -> dict[str, pl.DataFrame]:
    """Return the tables that are made from records, keyed by name as in `Result.tables`.

    `makers` maps tables to functions of a record, by default `TableSpec.rows`. A case without a record (None,
    or an `InputError`) adds no lines.
    """
    if not verb.tables:  # polars is not needed
        return {}
    import polars as pl

    from attnlaw.core.tables import quantity_frame, require_columns, to_schema

    tables = {}
    for spec in verb.tables:
        if makers is not None:
            make = makers.get(spec.name)
        else:
            make = spec.rows or (attrgetter(spec.name) if spec.on_save is None else None)
        schema, frames = to_schema(column_kinds(spec.columns)), []
        for case, record in enumerate(records):
            lines = None if make is None or record is None or isinstance(record, InputError) else make(record)
            if lines is not None:
                table = lines if isinstance(lines, pl.DataFrame) else quantity_frame(spec.columns, lines)
                table = require_columns(
                    table, schema, spec.name, "list these columns in the declaration of the verb"
                )
                frames.append(table.select(*schema).with_columns(case=pl.lit(case, pl.Int64)))
        if frames:
            tables[spec.name] = pl.concat(frames)
    return tables


def _open_rows(folder: Path, name: str, verb: Verb[Any, Any], remedy: str) -> Result:
    import polars as pl

    from attnlaw.core.tables import conform, read_table, to_schema

    path = folder / name
    needed: dict[str, pl.DataType] = {"verb": pl.String(), "status": pl.String()}
    rows = conform(read_table(path, remedy, needed), to_schema(verb.schema), str(path), remedy)
    require_some(rows.height, path, "rows", remedy)
    for column in needed:
        if rows[column].null_count():
            raise InputError(f"{path}: found a row without {column}; {remedy}")
    others = [other for other in rows["verb"].unique() if other != verb.name]
    if others:
        raise InputError(f"{path}: found rows of {others[0]}, expected {verb.name}; {remedy}")
    _require_possible(verb, rows, path, remedy)
    tables = {}
    for spec in verb.tables:
        place = folder / f"{spec.name}.parquet"
        if not place.exists():
            continue
        schema = to_schema(column_kinds(spec.columns)) | {"case": pl.Int64()}
        written = read_table(place, remedy, {"case": pl.Int64()})
        table = conform(written, schema, str(place), remedy).select(*schema)
        strange = table.filter(~pl.col("case").is_between(0, rows.height - 1).fill_null(False))
        if strange.height:
            raise InputError(f"{place}: found rows of case {strange['case'][0]} of {rows.height}; {remedy}")
        _require_choices(spec.columns, table, place, remedy)
        tables[spec.name] = table
    return Result(verb, rows, tables)


def _require_possible(verb: Verb[Any, Any], rows: pl.DataFrame, path: Path, remedy: str) -> None:
    finished = rows.filter(rows["status"] != str(Outcome.FAILED))
    if finished.height and not any(finished[quantity.name].count() for quantity in verb.quantities):
        names = ", ".join(quantity.name for quantity in verb.quantities[:3])
        raise InputError(f"{path}: found rows of {verb.name} without any of {names}, ...; {remedy}")
    for name, known in setting_fields(verb.settings).items():
        if name in rows.columns and rows[name].dtype.is_numeric() and rows[name].count():
            try:
                known.validate(rows[name].min())
            except BadSetting as error:
                raise InputError(f"{path}: {error}; {remedy}") from error
    _require_choices(verb.quantities, rows, path, remedy)


def _require_choices(quantities: Iterable[Quantity], table: pl.DataFrame, path: Path, remedy: str) -> None:
    for quantity in quantities:
        if quantity.choices and quantity.kind in ("text", "texts"):
            values = table[quantity.name].explode() if quantity.kind == "texts" else table[quantity.name]
            strange = [value for value in values.unique().drop_nulls() if value not in quantity.choices]
            if strange:
                raise InputError(f"{path}: found {quantity.name} {strange[0]!r}; {remedy}")
