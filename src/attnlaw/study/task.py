"""A task of a study: a verb with one record of settings, including its seed. Its key is a hash of verb,
settings and version, because its row depends on nothing else. Workers call `run_batch` and write large
tables."""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw import __version__
from attnlaw.core.errors import InputError, printable
from attnlaw.core.files import to_parquet
from attnlaw.core.progress import no_progress
from attnlaw.core.result import collect_tables
from attnlaw.core.settings import Settings
from attnlaw.core.verb import Verb

if TYPE_CHECKING:
    import polars as pl

QUICK = 3.0  # seconds; a quicker first task is measured again after its modules are loaded
LONGEST_ERROR = 500
TASK_LOCK = threading.Lock()


@dataclass(frozen=True)
class Task:
    """A task of a study: one row to compute, given by a verb and a case."""

    verb: Verb[Any, Any]
    case: Settings
    count: int = 1  # units of work in it, such as matrices; progress counts them
    work: float = 1.0  # its cost relative to other tasks

    @cached_property
    def key(self) -> str:
        """128 bits of a SHA-256 hash of the verb, the settings with an effect, and the version."""
        identity = [self.verb.name, self.case.to_row(), __version__]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]

    @cached_property
    def group(self) -> Hashable | None:
        """The key of the group with which this task is computed, or None if it is computed alone."""
        value = None if self.verb.batch_key is None else self.verb.batch_key(self.case)
        return None if value is None else (self.verb.name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the cached key out of the pickle. A worker computes it with its own version of attnlaw."""
        return Task, (self.verb, self.case)


@dataclass(frozen=True)
class Ending:
    """How a task ended: an error, or a row (its cells as JSON text) and tables (names and paths).

    `permanent` says that the error would occur again in another attempt.
    """

    key: str
    seconds: float
    row: str | None = None
    parts: tuple[tuple[str, str], ...] = ()
    error: str | None = None
    permanent: bool = False
    attempts: int = 1


def run_task(task: Task, folder: Path) -> Ending:
    """Compute one task and write its tables. If there is an exception, the ending has it as its error."""
    start = time.perf_counter()
    try:
        (record,) = task.verb.run([task.case], no_progress)
        row, parts = _write_record(task, record, folder)
    except (Exception, SystemExit) as error:  # any error of a task becomes a row
        return failed_ending(task.key, error, time.perf_counter() - start)
    return Ending(task.key, time.perf_counter() - start, row, parts)


def failed_ending(key: str, error: BaseException, seconds: float = 0.0) -> Ending:
    return Ending(key, seconds, error=error_line(error), permanent=isinstance(error, InputError))


def run_tasks_together(tasks: Sequence[Task], folder: Path) -> list[Ending]:
    """Compute the tasks of one group together. Return how each task ended, for those that succeeded.

    The time is divided equally among the tasks. Tasks with an error, and all tasks after an error of `run`,
    are missing in the list. The caller must compute missing tasks alone.
    """
    start = time.perf_counter()
    written = []
    with suppress(Exception, SystemExit):  # each task then runs alone, which reports its error
        records = tasks[0].verb.run([task.case for task in tasks], no_progress)
        for task, record in zip(tasks, records, strict=False):
            with suppress(Exception):  # only this record fails
                written.append((task.key, *_write_record(task, record, folder)))
    share = (time.perf_counter() - start) / max(1, len(written))
    return [Ending(key, share, row, parts) for key, row, parts in written]


def _write_record(task: Task, record: Any, folder: Path) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Write the tables of a record. Return the cells of its row as JSON, which is faster than polars."""
    if isinstance(record, InputError):
        raise record
    cells = json.dumps(task.verb.cells(record), allow_nan=False, ensure_ascii=False)
    tables = collect_tables(task.verb, [record])
    return cells, tuple((name, write_table(table, name, task.key, folder)) for name, table in tables.items())


def run_batch(
    tasks: Sequence[Task], folder: Path, time_limit: float | None, time_twice: bool = False
) -> list[Ending]:
    """Compute tasks in a worker process with one BLAS thread: groups together, other tasks one by one.

    Calls from other threads of the process wait. With `time_twice`, a quick task runs twice, so that the time
    of imports is not measured.
    """
    from threadpoolctl import threadpool_limits

    endings: dict[str, Ending] = {}
    with TASK_LOCK, threadpool_limits(limits=1, user_api="blas"):
        for group in group_tasks(tasks):
            if len(group) > 1:
                with _exit_after(time_limit, os.devnull):
                    endings |= {ending.key: ending for ending in run_tasks_together(group, folder)}
        for task in tasks:
            if task.key in endings:
                continue
            ending = _run_with_marker(task, folder, time_limit)
            if time_twice:
                ending = time_again(ending, partial(_run_with_marker, task, folder, time_limit))
            endings[task.key] = ending
    return [endings[task.key] for task in tasks]


def group_tasks(tasks: Iterable[Task]) -> list[list[Task]]:
    """Split tasks into lists, in order: one for each group, and one for each task without a group."""
    tasks_by_group: dict[Hashable, list[Task]] = {}
    for task in tasks:
        tasks_by_group.setdefault(task.key if task.group is None else task.group, []).append(task)
    return list(tasks_by_group.values())


def time_again(ending: Ending, run_again: Callable[[], Ending | None]) -> Ending:
    """Run a quick task again, and return its ending with the time of the second run.

    Imports may take most of the time of the first run. The ending keeps the first time if that run was not
    quick, or if either run failed.

    >>> time_again(Ending("k", 2.0, "{}"), lambda: Ending("k", 0.5, "{}")).seconds
    0.5
    >>> time_again(Ending("k", 2.0, "{}"), lambda: Ending("k", 0.5, error="failed")).seconds
    2.0
    """
    if ending.error is not None or ending.seconds >= QUICK:
        return ending
    again = run_again()  # None if it was interrupted
    return ending if again is None or again.error is not None else replace(ending, seconds=again.seconds)


def write_table(table: pl.DataFrame, name: str, key: str, folder: Path) -> str:
    """Write a table as `parts/NAME/KEY-DIGEST.parquet`, and return this path.

    The name contains a digest (hash) of the content. Therefore a changed table does not replace the old one,
    to which a row may still refer. The table is first written to another folder, so that `parts` contains
    only complete files.
    """
    data = to_parquet(table)
    place = Path("parts", name, f"{key}-{hashlib.sha256(data).hexdigest()[:16]}.parquet")
    draft = folder / "drafts" / f"{key}-{name}-{os.uname().nodename}-{os.getpid()}.parquet"
    draft.parent.mkdir(parents=True, exist_ok=True)
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(data)
    draft.replace(folder / place)
    return str(place)


def cause_of_death(key: str, folder: Path, time_limit: float | None) -> str | None:
    """Return why the worker of a task died, or None if the task had not begun. Remove its marker file."""
    path = folder / "running" / key
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    path.unlink(missing_ok=True)
    if time_limit is None or not lines:
        return "the worker process died during this task (it exited, got a signal or ran out of memory)"
    place = next((line.strip() for line in lines if line.lstrip().startswith("File ")), "unknown place")
    return f"exceeded its time limit of {time_limit:g} s at {printable(place)}"


def _run_with_marker(task: Task, folder: Path, time_limit: float | None) -> Ending:
    """Compute a task while a marker file shows that it runs. If the process exits, the marker is left."""
    path = folder / "running" / task.key
    path.parent.mkdir(parents=True, exist_ok=True)
    with _exit_after(time_limit, path):
        ending = run_task(task, folder)
    path.unlink(missing_ok=True)
    return ending


@contextmanager
def _exit_after(time_limit: float | None, path: str | Path) -> Iterator[None]:
    """Exit the process at the time limit, even in compiled code, and write the traceback to a file."""
    with Path(path).open("w") as file:
        if time_limit is not None:
            faulthandler.dump_traceback_later(time_limit, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def error_line(error: BaseException) -> str:
    text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST_ERROR else line[: LONGEST_ERROR - 4] + " ..."
