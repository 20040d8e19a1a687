"""Finished rows as parquet: `rows/rows.parquet`, one row per task, and the tables beside it.

A row has the verb, every setting (null where it plays no part), every quantity that a verb of the study
declares, `status` ("failed" where `error` says why), the version, and the key `task`, which also stands in
every line of the tables. `tables/NAME/` holds one file for each task in the study now.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw import __version__
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.files import to_parquet, write_atomically
from attnlaw.core.quantity import column_kinds
from attnlaw.core.result_files import STUDY_ROWS
from attnlaw.core.settings import setting_fields
from attnlaw.study.file import Study
from attnlaw.study.store import Store
from attnlaw.study.task import Task, TaskResult

if TYPE_CHECKING:
    import polars as pl

KEY = "[0-9a-f]{32}"  # as it stands in the names of files
END_COLUMNS = dict.fromkeys(("status", "remark", "error", "attnlaw_version", "task"), "text")


def export(study: Study, store: Store) -> Path:
    """Write the rows of all finished tasks in the study's order, and the tables; the path of the rows.

    An `InputError` where the store holds only rows of another study: they would be emptied.
    """
    if holds_other_study(study, store):
        raise other_study_error(store)
    lost, endings = store.missing_tables(), store.task_results()
    finished = [(task, endings[task.key]) for task in study.tasks if task.key in endings]
    for task, _ in finished:
        if task.key in lost:
            raise InputError(
                f"{lost[task.key]}: no table is there; compute it anew with: attnlaw study resume FILE"
            )
    parts = {
        f"tables/{name}/{task.key}.parquet": path for task, ending in finished for name, path in ending.parts
    }
    target = store.folder / STUDY_ROWS
    with write_atomically(target) as draft:
        draft.write_bytes(to_parquet(_rows(study, finished, store)))
    _link_tables(store.folder, parts)
    return target


def holds_other_study(study: Study, store: Store) -> bool:
    """Whether a store holds rows, and none of them is of this study."""
    keys = {key for key, _, _ in store.outcomes()}
    return bool(keys) and keys.isdisjoint(task.key for task in study.tasks)


def other_study_error(store: Store) -> InputError:
    """What to say of such a store."""
    return InputError(
        f"{store.folder}: holds rows of another study (or of another version of attnlaw, or of models that "
        "have moved: a row belongs to their absolute path) and none of this file; name the file of that "
        "study, move the models back, or begin this one with: attnlaw study run FILE --out DIR"
    )


def _rows(study: Study, finished: list[tuple[Task, TaskResult]], store: Store) -> pl.DataFrame:
    """A row for each task: settings of all verbs, what they find, paths of tables, how it ended.

    A column that verbs declare of two kinds is of the kind that holds both.
    """
    import polars as pl

    from attnlaw.core.tables import to_frame, to_schema

    order: list[dict[str, str]] = [{"verb": "text"}, {}, {}, END_COLUMNS]
    tables = []
    for verb in study.verbs.values():
        fields = setting_fields(verb.settings)
        parts = [
            {"verb": "text"} | {name: kind for name, kind in verb.schema.items() if name in fields},
            column_kinds(verb.quantities),
            {f"{table.name}_part": "text" for table in verb.tables},
            END_COLUMNS,
        ]
        order = [before | now for before, now in zip(order, parts, strict=True)]
        schema = {name: kind for part in parts for name, kind in part.items()}
        rows = (_row(task, ending, store) for task, ending in finished if task.verb.name == verb.name)
        tables.append(to_frame(rows, to_schema(schema)))
    return pl.concat(tables, how="diagonal_relaxed").select(*dict.fromkeys(chain(*order)))


def _row(task: Task, ending: TaskResult, store: Store) -> dict[str, Any]:
    cells = store.values(ending) if ending.error is None else {"status": str(Outcome.FAILED)}
    parts = {f"{name}_part": path for name, path in ending.parts}
    ends = {"error": ending.error, "attnlaw_version": __version__, "task": task.key}
    return {"verb": task.verb.name, **task.case.to_row(), **cells, **parts, **ends}


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
        with write_atomically(target) as draft:
            draft.unlink()
            try:
                os.link(source, draft)
            except OSError:
                shutil.copyfile(source, draft)
