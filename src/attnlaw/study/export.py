"""Turn finished tasks into results, in the layout that `attnlaw.load` reads: that of the first verb in DIR,
with simulation.parquet, and of each further verb in DIR/VERB. Rows have the order of the study, the key of
their task in the column `task`, and the status "failed" with the error as remark if the task failed."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw import __version__
from attnlaw.core.errors import InputError
from attnlaw.core.result import Result
from attnlaw.core.verb import Verb
from attnlaw.study.store import Store
from attnlaw.study.study_file import Study
from attnlaw.study.task import Ending, Task
from attnlaw.verbs import STUDY_VERBS, VERBS
from attnlaw.verbs.views import STORE, load, replace_files, written_files

if TYPE_CHECKING:
    import polars as pl

GIGABYTE = 2**30
MOST_GIGABYTES = 4.0  # the largest table that is joined in memory


def collect_results(study: Study, store: Store) -> list[Result]:
    """Return a result for each verb with finished tasks, each with its simulation."""
    endings = store.endings()
    results: dict[str, Result] = {}
    for name, verb in study.verbs.items():
        tasks = [task for task in study.tasks if task.verb.name == name and task.key in endings]
        if tasks:
            results[name] = _collect(verb, [(task, endings[task.key]) for task in tasks], store)
    for name, verb in study.verbs.items():
        if name in results and verb.simulation is not None:
            results[name] = replace(results[name], simulation=results.pop(verb.simulation.name, None))
    return list(results.values())


def _collect(verb: Verb[Any, Any], finished: list[tuple[Task, Ending]], store: Store) -> Result:
    import polars as pl

    from attnlaw.core.tables import to_frame, to_schema

    same = {"verb": verb.name, "attnlaw_version": __version__}
    rows = (
        same | verb.setting_cells(task.case) | store.cells(ending) | {"task": task.key}
        for task, ending in finished
    )
    sizes: Counter[str] = Counter()
    for name, part in (table for _, ending in finished for table in ending.parts):
        with suppress(OSError):  # the file is lost
            sizes[name] += (store.folder / part).stat().st_size
    too_large = {name: size / GIGABYTE for name, size in sizes.items() if size > MOST_GIGABYTES * GIGABYTE}
    for name, size in too_large.items():
        message = "%s: the rows are too large for a single table (%.0f GB); read the files in this directory"
        logging.getLogger("attnlaw").info(message, store.folder / "parts" / name, size)
    frames: dict[str, list[pl.DataFrame]] = {}
    for case, (_, ending) in enumerate(finished):
        for name, table in store.tables(ending, exclude=too_large).items():
            frames.setdefault(name, []).append(table.with_columns(case=pl.lit(case, pl.Int64)))
    tables = {spec.name: pl.concat(frames[spec.name]) for spec in verb.tables if spec.name in frames}
    return Result(verb, to_frame(rows, to_schema(verb.schema | {"task": "text"})), tables)


def export(study: Study, store: Store) -> list[Path]:
    """Write the results of all finished tasks, and return their directories."""
    require_same_study(study, store)
    results = collect_results(study, store)
    folders = [store.folder, *(store.folder / result.verb.name for result in results[1:])][: len(results)]
    for folder, result in zip(folders, results, strict=True):
        replace_files(folder, {folder / name: data for name, data in result.files().items()})
    others = {store.folder / name for name in VERBS | STUDY_VERBS} - {*folders}
    for folder in others:  # results of verbs that are no longer in the study
        with suppress(InputError, OSError):
            if not (folder / STORE).exists() and "task" in load(folder).rows.columns:
                for path in written_files(folder):
                    path.unlink(missing_ok=True)
                folder.rmdir()
    return folders


def require_same_study(study: Study, store: Store) -> None:
    """Raise an `InputError` if a store has rows, but none of this study."""
    keys = store.endings(rows=False).keys()
    if keys and keys.isdisjoint(task.key for task in study.tasks):
        raise InputError(
            f"{store.folder}: no row in this directory belongs to this study. The rows come from another "
            "study file, from another version of attnlaw, or from models that have moved. Give the file of "
            "that study, or another directory: attnlaw study run FILE --out DIR"
        )
