"""Finished rows as parquet: `rows/rows.parquet`, one row per task, and the tables beside it.

A row has the verb, every argument under its option name (null where the verb's own row says that it was not
used), `seed` (null where nothing is drawn), the results,
`status` (the verb's own, else "done"; "failed" where `error` says why), the version, and the key `task`,
which also stands in every line of the tables. `tables/NAME/` holds one file for each task in the study now.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw import __version__
from attnlaw.base.errors import InputError
from attnlaw.base.files import parquet, replacing
from attnlaw.study.file import Study
from attnlaw.study.store import KEY, Store
from attnlaw.study.task import Outcome, Task
from attnlaw.study.verb import Arguments, Verb

ROWS = Path("rows", "rows.parquet")
LAST = ("status", "error", "attnlaw_version", "task")
TYPES = {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64(), str: pl.String()}


def export(study: Study, store: Store) -> Path:
    """Write the rows of all finished tasks in the study's order, and the tables; the path of the rows.

    An `InputError` where the store holds only rows of another study: they would be emptied.
    """
    if is_of_another(study, store):
        raise another_study(store)
    outcomes = store.outcomes()
    finished = [(task, outcomes[task.key]) for task in study.tasks if task.key in outcomes]
    parts = {
        f"tables/{name}/{task.key}.parquet": path
        for task, outcome in finished
        for name, path in outcome.parts
    }
    lost = store.lost()
    for task in study.tasks:
        if task.key in lost:
            raise InputError(
                f"{lost[task.key]}: no table is there; compute it anew with: attnlaw study resume FILE"
            )
    target = store.folder / ROWS
    with replacing(target) as draft:
        draft.write_bytes(parquet(_rows(finished, store)))
    _link_tables(store.folder, parts)
    return target


def is_of_another(study: Study, store: Store) -> bool:
    """Whether a store holds rows, and none of them is of this study."""
    keys = {key for key, _, _ in store.ends()}
    return bool(keys) and keys.isdisjoint(task.key for task in study.tasks)


def another_study(store: Store) -> InputError:
    """What to say of such a store."""
    return InputError(
        f"{store.folder}: holds rows of another study (or of another version of attnlaw, or of models that "
        "have moved: a row belongs to their absolute path) and none of this file; name the file of that "
        "study, move the models back, or begin this one with: attnlaw study run FILE --out DIR"
    )


def _rows(finished: list[tuple[Task, Outcome]], store: Store) -> pl.DataFrame:
    """One row per task: arguments, results, status, error, version, key."""
    arguments: dict[str, None] = {"verb": None}
    results: dict[str, None] = {}
    rows = []
    for task, outcome in finished:
        values = store.values(outcome) if outcome.error is None else {"status": "failed"}
        values |= {f"{name}_part": path for name, path in outcome.parts}
        arguments |= dict.fromkeys(task.columns)
        results |= dict.fromkeys(values)
        unused = {name: None for name in task.columns if name in values and values[name] is None}
        ends = {"error": outcome.error, "attnlaw_version": __version__, "task": task.key}
        rows.append({"status": "done", **values, "verb": task.verb, **task.columns, **unused, **ends})
    arguments = {name: None for name in arguments if name != "seed"} | {"seed": None}
    names = [*arguments, *(name for name in results if name not in arguments and name not in LAST), *LAST]
    functions = {task.function for task, _ in finished}
    texts = {"verb", *LAST} | {
        name
        for function in functions
        for name, kinds in Arguments(Verb(function)).types.items()
        if str in kinds
    }
    columns = {}
    for name in names:
        try:
            columns[name] = _column(name, [row.get(name) for row in rows], texts)
        except TypeError:
            store.refuse(f"the values of {name} in its rows are of several types")
    return pl.DataFrame(columns)


def _column(name: str, values: list[Any], texts: Collection[str]) -> pl.Series:
    """A column of one type: numbers of both kinds are floats; without a value, text or float by its name."""
    text = name in texts or name.endswith("_part")
    empty = pl.String() if text else pl.Int64() if name == "seed" else pl.Float64()
    return pl.Series(name, values, dtype=_type(values) or empty, strict=False)


def _type(values: Iterable[Any]) -> pl.DataType | None:
    """The type that all values have, None where there is no value; a `TypeError` where there are several.

    >>> _type([[1], None, [0.5]]), _type([True, 0.5])
    (List(Float64), Float64)
    """
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    if kinds == {list}:
        return pl.List(_type(one for value in known for one in value) or pl.Null())
    if len(kinds) > 1 and kinds <= {bool, int, float}:  # a switch of one verb, a number of another
        return pl.Float64()
    if len(kinds) > 1:
        raise TypeError
    return TYPES[kinds.pop()] if kinds else None


def _link_tables(folder: Path, wanted: Mapping[str, str]) -> None:
    """Make `tables/NAME/` hold the parts of the finished tasks, and of no others: hard links, else copies."""
    for old in (folder / "tables").glob("*/*"):
        ours = re.fullmatch(rf"{KEY}\.parquet", old.name) and old.is_file()
        if ours and str(old.relative_to(folder)) not in wanted:
            old.unlink()
    for place, part in wanted.items():
        source, target = folder / part, folder / place
        if target.exists() and target.samefile(source):
            continue
        with replacing(target) as draft:
            draft.unlink()
            try:
                os.link(source, draft)
            except OSError:
                shutil.copyfile(source, draft)
