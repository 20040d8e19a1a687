"""Finished rows as parquet: `rows/rows.parquet`, one row per task, and the tables beside it.

A row has the verb, every argument under its option name, `seed` (null where nothing is drawn), the results,
`status` (the verb's own, else "done"; "failed" where `error` says why), the version, and the key `task`,
which also stands in every line of the tables. `tables/NAME/` holds one file for each task in the study now.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw import __version__
from attnlaw.records.files import parquet, replacing
from attnlaw.study.file import Study
from attnlaw.study.store import Store
from attnlaw.study.task import Outcome, Task

LAST = ("status", "error", "attnlaw_version", "task")
TYPES = {bool: pl.Boolean, int: pl.Int64, float: pl.Float64, str: pl.String}


def export(study: Study, store: Store) -> Path:
    """Write the rows of all finished tasks in the study's order, and the tables; the path of the rows."""
    outcomes = store.outcomes()
    finished = [(task, outcomes[task.key]) for task in study.tasks if task.key in outcomes]
    target = store.folder / "rows" / "rows.parquet"
    with replacing(target) as draft:
        draft.write_bytes(parquet(rows_frame(finished)))
    _link_tables(store.folder, [dict(outcome.parts) for _, outcome in finished])
    return target


def rows_frame(finished: list[tuple[Task, Outcome]]) -> pl.DataFrame:
    """One row per task: arguments, results, status, error, version, key."""
    arguments: dict[str, None] = {"verb": None}
    results: dict[str, None] = {}
    rows = []
    for task, outcome in finished:
        values: dict[str, Any] = json.loads(outcome.row) if outcome.row is not None else {"status": "failed"}
        values |= {f"{name}_part": path for name, path in outcome.parts}
        arguments |= dict.fromkeys(task.columns)
        results |= dict.fromkeys(values)
        ends = {"error": outcome.error, "attnlaw_version": __version__, "task": task.key}
        rows.append({"verb": task.verb, **task.columns, "status": "done", **values, **ends})
    arguments = {name: None for name in arguments if name != "seed"} | {"seed": None}
    names = [*arguments, *(name for name in results if name not in arguments and name not in LAST), *LAST]
    return pl.DataFrame({name: _column(name, [row.get(name) for row in rows]) for name in names})


def _column(name: str, values: list[Any]) -> pl.Series:
    """A column of one type: numbers of both kinds are floats; without a value, text or float by its name."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and len(kinds) == 2:
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    if not kinds:
        text = name in LAST or name.endswith("_part")
        return pl.Series(
            name, values, dtype=pl.String if text else pl.Int64 if name == "seed" else pl.Float64
        )
    kind = TYPES.get(kinds.pop())
    return pl.Series(name, values, dtype=kind) if kind is not None else pl.Series(name, values)


def _link_tables(folder: Path, parts: list[dict[str, str]]) -> None:
    """Make `tables/NAME/` hold exactly the parts of the finished tasks: hard links, copies where none are."""
    wanted = {f"tables/{name}/{Path(path).name}": path for each in parts for name, path in each.items()}
    for old in (folder / "tables").glob("*/*"):
        if str(old.relative_to(folder)) not in wanted:
            old.unlink()
    for place, part in wanted.items():
        source, target = folder / part, folder / place
        if target.exists() and target.samefile(source):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as draft:
            draft.unlink()
            try:
                os.link(source, draft)
            except OSError:
                shutil.copyfile(source, draft)
