"""Whatever attnlaw wrote into a directory, checked by the declaration of its verb before anything is drawn.

| directory | holds |
|---|---|
| a command with `--out` | `attnlaw.json` (verb, version), `rows.parquet`, `TABLE.parquet` with `case` |
| a study | `rows/rows.parquet` (of several verbs), `tables/TABLE/TASK.parquet` |
| an audit | `summary.json`, `matrices.parquet`, `spectra.parquet`, `layers.parquet`, and of fits as below |
| fits | `fits.parquet`, `curves.parquet` |
| a monitored training run | `steps.parquet` |
| a lens of version 0.1 | `lens.json` |

A declared column that is missing, as in rows of an older version, is null; one of another kind is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.auditing.findings.rules import LEVELS
from attnlaw.auditing.remarks import findings_told, not_random, proxy_entries, remarks
from attnlaw.base.declare import Verb, columns
from attnlaw.base.errors import InputError, printable
from attnlaw.base.files import read_bounded
from attnlaw.base.settings import declared
from attnlaw.base.tables import Schema, frame, read_table, require_columns, schema_of, without_nan
from attnlaw.report.audited import (
    ALWAYS,
    AUDIT,
    HEADLINE,
    KINDS,
    SCHEMAS,
    AuditRows,
    proxies_row,
    summary_of_row,
)
from attnlaw.report.marks import Figure
from attnlaw.report.source import Source
from attnlaw.report.step_charts import step_figures
from attnlaw.report.summary import NUMBERS
from attnlaw.training.quantities import read_steps
from attnlaw.verbs import verb

MARK = "attnlaw.json"
ROWS = "rows.parquet"
STUDY = Path("rows", ROWS)
STORE = "store.sqlite"  # of a study that runs
EXPORT = "write it again with: attnlaw study export FILE --out DIR"
MONITOR = "write it again with attnlaw.training.SpectralMonitor"
MOST_SUMMARY = 64  # megabytes of summary.json or lens.json
SUMMARY = (
    *("model", "family", "layers", "hidden_size", "heads", "matrices", "proxies", "per_application"),
    *("value_of_adaptivity", "rank_count", "extensions", "warnings", "meaning"),
)
LENS = ("family", "layers", "hidden_size", "reconstruction_error", "offset_share")
# More audited models than this are compared by their proxies alone.
MOST_MODELS = 12


@dataclass(frozen=True, eq=False)
class Saved:
    """What one directory holds: audited models, or rows with what figures are drawn from.

    `listed` is what a page lists, where that is not the rows: one case is told by its table.
    """

    name: str
    title: str
    rows: pl.DataFrame | None = None
    listed: pl.DataFrame | None = None
    sources: tuple[Source, ...] = ()
    audit: AuditRows | None = None
    figures: tuple[Figure, ...] = ()

    @property
    def found(self) -> list[tuple[Verb[Any, Any], pl.DataFrame]]:
        """The verbs whose rows it shows, those beside them too, each with its rows."""
        every = [one for source in self.sources for one in (source, source.beside) if one is not None]
        return [(one.verb, one.rows) for one in every]

    @property
    def verbs(self) -> list[Verb[Any, Any]]:
        return [verb for verb, _ in self.found]


def read_saved(folder: Path) -> Saved:
    """What the directory holds, by the name in `attnlaw.json` or, of older versions, by the files in it."""
    places = {"summary.json": _audit, str(STUDY): _study, "steps.parquet": _steps}
    places |= {"fits.parquet": _fits, "lens.json": _lens}
    try:
        if (folder / MARK).exists():
            return _marked(folder)
        found = next((read for name, read in places.items() if (folder / name).exists()), None)
        running = (folder / STORE).exists()
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be looked at ({error.strerror}); give a directory that attnlaw wrote"
        ) from error
    if found is not None:
        return found(folder)
    if running:
        raise InputError(
            f"{folder}: holds a study that is not exported yet; attnlaw study export FILE --out {folder}"
        )
    raise InputError(
        f"{folder}: found neither {MARK} nor {', '.join(places)}; give a directory that attnlaw wrote"
    )


def _marked(folder: Path) -> Saved:
    own: dict[str, Callable[[Path], Saved]] = {
        "audit": _audit,
        "fit": _fits,
        "monitor": _steps,
        "study": _study,
    }
    name = _json(folder / MARK, "write it again").get("verb")
    if not isinstance(name, str):
        raise InputError(f"{folder / MARK}: names no verb; write the directory again")
    return own[name](folder) if name in own else read_command(folder, name)


def _json(path: Path, remedy: str) -> dict[str, Any]:
    """The object in a file; half a surrogate pair, which cannot be written to a page, is refused too."""
    try:
        found = json.loads(read_bounded(path, MOST_SUMMARY, remedy), parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not what attnlaw wrote ({error}); {remedy}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: not what attnlaw wrote (no object); {remedy}")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"found {text}, which is no number")


# Rows of verbs


def read_command(folder: Path, name: str) -> Saved:
    """The cases of one verb: `case` is the place of a row."""
    remedy = f"write it again with: attnlaw {name} ... --out DIR"
    path = folder / ROWS
    _verb(name, str(folder / MARK))
    rows = read_table(path, remedy, {"verb": pl.String(), "status": pl.String()}).with_row_index("case")
    rows = rows.with_columns(pl.col("case").cast(pl.Int64))

    def read(owner: Verb[Any, Any], table: str) -> Iterator[pl.DataFrame]:
        place = folder / f"{table}.parquet"
        if place.exists():
            yield read_table(place, remedy, {"case": pl.Int64()})

    return _listed(_saved(folder, rows, "case", str(path), remedy, read))


def _listed(saved: Saved) -> Saved:
    """Of one case its first table is listed."""
    (source, *others) = saved.sources
    table = next(iter(source.tables.values()), pl.DataFrame())
    if source.rows.height > 1 or others or not table.height:
        return saved
    return replace(saved, listed=table.drop(source.key))


def _study(folder: Path) -> Saved:
    """The tasks of a study, which may be of several verbs."""
    path = folder / STUDY
    rows = read_table(path, EXPORT, dict.fromkeys(("verb", "status", "task"), pl.String()))
    strange = rows.filter(~pl.col("task").str.contains("^[0-9A-Za-z]{1,64}$"))["task"]
    if not rows.height:
        raise InputError(f"{path}: no task is finished yet; go on with: attnlaw study resume FILE --out DIR")
    if strange.len():
        raise InputError(f"{path}: found a task {strange[0][:64]!r}; {EXPORT}")

    def read(owner: Verb[Any, Any], table: str) -> Iterator[pl.DataFrame]:
        for task in rows.filter(pl.col("verb") == owner.name)["task"]:
            place = folder / "tables" / table / f"{task}.parquet"
            if place.exists():
                yield read_table(place, EXPORT).with_columns(task=pl.lit(task))

    return _saved(folder, rows, "task", str(path), EXPORT, read)


Read = Callable[[Verb[Any, Any], str], Iterator[pl.DataFrame]]


def _saved(folder: Path, rows: pl.DataFrame, key: str, where: str, remedy: str, read: Read) -> Saved:
    """Rows of one or several verbs, each checked by its declaration, with the tables beside them."""
    for name in ("verb", "status", key):
        if rows[name].null_count():
            raise InputError(f"{where}: found a row without {name}; {remedy}")
    verbs = [_verb(name, where) for name in dict.fromkeys(rows["verb"])]
    infinite = {name for one in verbs for name, of in declared(one.settings).items() if of.rule.infinite}
    paths = [f"{table.name}_part" for one in verbs for table in one.tables]  # of tables, in a study's store
    rows = without_nan(rows.drop(paths, strict=False), *infinite)
    sources: dict[str, Source] = {}
    for one in verbs:
        own = rows.filter(pl.col("verb") == one.name, pl.col("status") != "failed")
        checked = _conformed(own, schema_of(one.schema), where, remedy)
        _require_possible(one, checked, where, remedy)
        needed = {table.name: schema_of(columns(table.columns)) for table in one.tables}
        tables = _Tables(one, needed, key, read, f"{folder}", remedy)
        kept = own.select(name for name in own.columns if name not in checked.columns)
        sources[one.name] = Source(one, checked.hstack(kept), tables, key)
    audit = _audited(sources.get("audit"), folder, rows)
    drawn = [_beside(source, sources) for name, source in sources.items() if name != "audit" or audit is None]
    shown = [source for source in drawn if source.rows.height and not _is_beside(source, sources)]
    title = " · ".join(dict.fromkeys(one.title for one in verbs if "." not in one.name)) or verbs[0].title
    return Saved(printable(folder.name), title, rows, sources=tuple(shown), audit=audit)


def _verb(name: str, where: str) -> Verb[Any, Any]:
    try:
        return verb(name)
    except InputError as error:
        raise InputError(f"{where}: {error}; or read it with the version of attnlaw that wrote it") from error


def _beside(source: Source, sources: Mapping[str, Source]) -> Source:
    """The source with that of the verb beside it, where its rows are there, too."""
    beside = source.verb.beside
    if beside is None or beside.name not in sources:
        return source
    return Source(source.verb, source.rows, source.tables, source.key, sources[beside.name])


def _is_beside(source: Source, sources: Mapping[str, Source]) -> bool:
    """Whether its rows are drawn over those of another verb."""
    owners = [one.verb for one in sources.values() if one.rows.height]
    return any(one.beside is not None and one.beside.name == source.verb.name for one in owners)


class _Tables(Mapping[str, pl.DataFrame]):
    """The tables of a verb's rows, each read and checked when it is first asked for."""

    def __init__(
        self,
        owner: Verb[Any, Any],
        needed: Mapping[str, Schema],
        key: str,
        read: Read,
        where: str,
        remedy: str,
    ) -> None:
        self.owner, self.needed, self.key = owner, needed, key
        self.read, self.where, self.remedy = read, where, remedy
        self.known: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self.known:
            schema = {self.key: pl.Int64() if self.key == "case" else pl.String(), **self.needed[name]}
            where = f"{self.where}: table {name}"
            parts = [_conformed(part, schema, where, self.remedy) for part in self.read(self.owner, name)]
            self.known[name] = without_nan(pl.concat(parts)) if parts else pl.DataFrame(schema=schema)
        return self.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.needed)

    def __len__(self) -> int:
        return len(self.needed)


def _conformed(table: pl.DataFrame, schema: Schema, where: str, remedy: str) -> pl.DataFrame:
    """The table with the columns of the schema: null where one is missing, refused if it is another kind."""
    known = [name for name in table.columns if table[name].count()]
    present = {name: dtype for name, dtype in schema.items() if name in known}
    told = require_columns(table, present, where, remedy).select(list(present))
    missing = {name: pl.lit(None, dtype=dtype) for name, dtype in schema.items() if name not in present}
    return told.with_columns(**missing).select(list(schema))


def _require_possible(one: Verb[Any, Any], rows: pl.DataFrame, where: str, remedy: str) -> None:
    """An `InputError` where rows tell nothing that the verb finds, or a setting lies outside its bounds."""
    if rows.height and not any(rows[quantity.name].count() for quantity in one.quantities):
        names = ", ".join(quantity.name for quantity in one.quantities[:3])
        raise InputError(f"{where}: found rows of {one.name} without any of {names}, ...; {remedy}")
    for name, known in declared(one.settings).items():
        rule = known.rule
        if name in rows.columns and rows[name].dtype.is_numeric():
            outside = rows.filter(
                (pl.col(name) <= rule.above) if rule.above is not None else False,
            ).height + (rows.filter(pl.col(name) < rule.least).height if rule.least is not None else 0)
            if outside:
                raise InputError(f"{where}: found a {name} that is not {known.expected}; {remedy}")


# Audits


def _audit(folder: Path) -> Saved:
    return Saved(printable(folder.name), AUDIT.title, audit=read_audit(folder))


def read_audit(folder: Path) -> AuditRows:
    """The audit saved in a directory; an `InputError` where its files do not fit together."""
    again = f"write them with: attnlaw audit MODEL --out {folder}"
    data = read_bounded(folder / "summary.json", MOST_SUMMARY, again)
    try:
        found = json.loads(data, parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair cannot be written to a page
        summaries = tuple(_checked(summary) for summary in (found if isinstance(found, list) else [found]))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{folder}: not the rows of an audit ({error}); {again}") from error
    if not summaries:
        raise InputError(f"{folder}: found no model; {again}, an empty directory")
    places = {name: folder / f"{name}.parquet" for name in SCHEMAS}
    tables = {
        name: _table(path, name, again) for name, path in places.items() if name in ALWAYS or path.exists()
    }
    return _fitting(AuditRows(summaries, tables), folder, again)


def _table(path: Path, name: str, remedy: str) -> pl.DataFrame:
    """One table of an audit; what is no number in it is null."""
    return without_nan(_conformed(read_table(path, remedy), SCHEMAS[name], str(path), remedy))


def _fitting(audit: AuditRows, folder: Path, remedy: str) -> AuditRows:
    """The audit itself; an `InputError` where its tables tell of other models, or of what no matrix has."""
    for name, table in audit.tables.items():
        # The law of random matrices of one shape belongs to no model.
        owned = table.filter(pl.col("curve") != "null") if name == "curves" else table
        strangers = [model for model in owned["model"].unique() if model not in audit.names]
        if strangers:
            named = f"rows of {strangers[0]}, which summary.json does not name"
            raise InputError(f"{folder}: found {named}; {remedy}, an empty directory")
        known = {*KINDS, None} if name == "findings" else KINDS.keys()
        kinds = set(owned["kind"]) - known if "kind" in owned.columns else set()
        if kinds:
            raise InputError(f"{folder}: found a matrix of kind {kinds.pop()!r} in {name}; {remedy}")
    levels = set(audit.tables["findings"]["level"]) - {*LEVELS} if "findings" in audit.tables else set()
    if levels:
        raise InputError(f"{folder}: found a finding of level {levels.pop()!r}; {remedy}")
    value = pl.element()
    spectra = audit.tables["spectra"]
    bad = spectra.filter(pl.col("singular_values").list.eval(value.is_null() | (value < 0)).list.any())
    if bad.height:
        raise InputError(f"{folder}: found singular values below 0 or missing from a spectrum; {remedy}")
    return audit


def _checked(summary: Any) -> dict[str, Any]:
    """A summary that can be shown; a `ValueError` where it cannot."""
    try:
        missing = [name for name in SUMMARY if name not in summary]
        if missing or not isinstance(summary["model"], str):
            raise ValueError(f"summary.json has no {missing[0] if missing else 'name of a model'}")
        remarks(summary)
        not_random(summary), findings_told(summary)
        if not all(isinstance(summary.get(name), int | float | None) for name in NUMBERS):
            raise ValueError("summary.json has numbers of a model that are no numbers")
        for name in ("proxies", "per_application"):
            for _, *numbers in proxy_entries(summary[name]) if summary[name] else ():
                if not all(number is None or isinstance(number, int | float) for number in numbers):
                    raise ValueError(f"summary.json has {name} that are no numbers")
        known = proxies_row(summary)
        unknown = [name for name in HEADLINE if summary["proxies"] and name not in known]
        if unknown:
            raise ValueError(f"summary.json has no proxy {unknown[0].removeprefix('log10_')}")
        if not all(isinstance(text, str) for text in [*summary["warnings"], summary["meaning"] or ""]):
            raise ValueError("summary.json has warnings or a meaning that are no texts")
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"summary.json is no summary: {error}") from error
    return dict(summary)


def _audited(source: Source | None, folder: Path, rows: pl.DataFrame) -> AuditRows | None:
    """The models that a study audited, from its rows and the tables beside them; None without tables.

    Fits of the same study, of the same models, stand beside them.
    """
    if source is None or source.key != "task" or not 0 < source.rows.height <= MOST_MODELS:
        return None
    places = {
        name: [(task, folder / "tables" / name / f"{task}.parquet") for task in rows["task"]]
        for name in SCHEMAS
    }
    parts = {name: [place for place in own if place[1].exists()] for name, own in places.items()}
    if not all(parts[name] for name in ALWAYS):
        return None
    tables = {
        name: pl.concat([_table(path, name, EXPORT).with_columns(task=pl.lit(task)) for task, path in own])
        for name, own in parts.items()
        if own
    }
    names = dict(tables["matrices"].select("task", "model").unique().iter_rows())
    summaries = tuple(
        summary_of_row(row, names[row["task"]])
        for row in source.rows.iter_rows(named=True)
        if row["task"] in names
    )
    audit = AuditRows(summaries, {name: table.drop("task") for name, table in tables.items()})
    return _fitting(audit, folder, EXPORT)


# What is no verb's rows


def _fits(folder: Path) -> Saved:
    """The laws of the matrices of some models: a row each."""
    remedy = f"write it again with: attnlaw fit MODEL --out {folder}"
    one = verb("fit")
    table = _table(folder / "fits.parquet", "fits", remedy).filter(pl.col("kind").is_in(list(KINDS)))
    if not table.height:
        raise InputError(f"{folder}: found no fitted matrix; {remedy}")
    rows = table.select(pl.col("model").unique(maintain_order=True))
    return Saved(
        printable(folder.name), one.title, table, sources=(Source(one, rows, {"fits": table}, "model"),)
    )


def _steps(folder: Path) -> Saved:
    path = folder / "steps.parquet"
    rows = read_steps(path, MONITOR)
    if not rows.height:
        raise InputError(f"{path}: found no rows; {MONITOR}")
    return Saved(printable(folder.name), "Training run", rows, figures=tuple(step_figures(rows)))


def _lens(folder: Path) -> Saved:
    """The map of a forward pass as version 0.1 wrote it."""
    path, remedy = folder / "lens.json", "write it again with: attnlaw lens MODEL --ids ... --out DIR"
    one, found = verb("lens"), _json(folder / "lens.json", remedy)
    try:
        ids, norms, errors = found["ids"], found["token_map"]["norms"], found["token_map"]["errors"]
        pairs = [(i, j) for i in range(len(ids)) for j in range(len(ids))]
        cells = [
            {"case": 0, "output": i, "output_id": ids[i], "input": j, "input_id": ids[j]}
            | {"norm": norms[i][j], "norm_error": errors[i][j], "rollout": found["rollout"][i][j]}
            | {"share": norms[i][j] / sum(norms[i]) if sum(norms[i]) else 0.0}
            for i, j in pairs
        ]
        told = {"case": 0, "verb": one.name, "status": "done", "model": found["model"], "ids": ids}
        told |= {"tokens": len(ids), "singular_values": found["singular_values"]["values"]}
        told |= {name: found[name] for name in LENS}
        rows = frame([told], {"case": pl.Int64(), **schema_of(one.schema)})
        table = frame(cells, {"case": pl.Int64(), **schema_of(columns(one.tables[0].columns))})
    except (LookupError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: not the map of a lens ({error}); {remedy}") from error
    source = Source(one, rows, {one.tables[0].name: table}, "case")
    return _listed(Saved(printable(folder.name), one.title, rows, sources=(source,)))
