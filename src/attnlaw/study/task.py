"""A task: a module-level function, frozen arguments and a seed; what it returns, and what becomes of it.

A task's key is a hash of (function, arguments, seed, version), so that its row depends on nothing else.
Workers call `perform_batch`: they write large tables themselves and send back rows as short JSON text.
"""

from __future__ import annotations

import dis
import faulthandler
import hashlib
import importlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw import __version__
from attnlaw.base.errors import InputError, printable
from attnlaw.base.files import parquet

if TYPE_CHECKING:
    import polars as pl

Plain = str | int | float | bool | None
QUICK = 3.0  # seconds; a quicker first task is measured a second time, when its modules are loaded
LONGEST_ERROR = 500
ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Result:
    """What a task function returns: plain values for its row, and tables too large for a row."""

    row: Mapping[str, Any]
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """One row to be: `function(**arguments)`, with `seed` where the verb draws.

    >>> task = Task("square", abs, (("x", -2.0),), None)
    >>> task.key == Task("square", abs, (("x", -2.0),), None).key, task.key == Task("square", abs, (), 1).key
    (True, False)
    """

    verb: str
    function: Callable[..., Result]
    arguments: tuple[tuple[str, Plain], ...]
    seed: int | None

    @cached_property
    def key(self) -> str:
        """128 bits of SHA-256 over function, arguments, seed and version."""
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        identity = [name, dict(self.arguments), self.seed, __version__]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]

    def __reduce__(self) -> tuple[Any, ...]:
        """Without its key: a worker names the task by its own version, so that another one is noticed."""
        return Task, (self.verb, self.function, self.arguments, self.seed)

    @property
    def columns(self) -> dict[str, Plain]:
        """The arguments, and the seed of a task that draws, under their option names."""
        return dict(self.arguments) | ({} if self.seed is None else {"seed": self.seed})

    def call(self) -> Result:
        return self.function(**self.columns)


@dataclass(frozen=True)
class Outcome:
    """A finished task: a row (JSON text) and the parts beside it, or an error.

    `permanent` marks an error that another attempt would meet again.
    """

    key: str
    seconds: float
    row: str | None = None
    parts: tuple[tuple[str, str], ...] = ()
    error: str | None = None
    permanent: bool = False
    attempts: int = 1


@cache
def load(function: Callable[..., Result]) -> None:
    """Import, once, what a task function imports within itself: its time limit is for computing alone."""
    for step in dis.get_instructions(function):
        if step.opname == "IMPORT_NAME":
            with suppress(Exception):  # the task meets it again, and tells it
                importlib.import_module(step.argval)


def perform(task: Task, folder: Path) -> Outcome:
    """Compute one task and write its tables; whatever it raises becomes the error of its row."""
    start = time.perf_counter()
    try:
        result = task.call()
        row = json.dumps(dict(result.row), allow_nan=False, ensure_ascii=False)
        parts = tuple(
            (name, write_part(table, name, task.key, folder)) for name, table in result.tables.items()
        )
    except (Exception, SystemExit) as error:  # the answer to any error of a task is a row that tells it
        seconds = time.perf_counter() - start
        return Outcome(task.key, seconds, error=told(error), permanent=isinstance(error, InputError))
    return Outcome(task.key, time.perf_counter() - start, row, parts)


def perform_batch(
    tasks: Sequence[Task], folder: Path, time_limit: float | None, again: bool = False
) -> list[Outcome]:
    """Compute tasks one after the other in a worker process, with one BLAS thread; other threads wait.

    With `again`, a quick task runs a second time, for the time that it takes when its modules are loaded.
    """
    from threadpoolctl import threadpool_limits

    outcomes = []
    with ONE_AT_A_TIME, threadpool_limits(limits=1, user_api="blas"):
        for task in tasks:
            outcome = _watched(task, folder, time_limit)
            if again and is_quick(outcome):
                outcome = retimed(outcome, _watched(task, folder, time_limit))
            outcomes.append(outcome)
    return outcomes


def is_quick(outcome: Outcome) -> bool:
    """Whether a first task is worth a second run: imports may be most of its time."""
    return outcome.error is None and outcome.seconds < QUICK


def retimed(outcome: Outcome, again: Outcome | None) -> Outcome:
    """The outcome with the time of its second run; with its own where that failed or was interrupted.

    >>> retimed(Outcome("k", 2.0, "{}"), Outcome("k", 0.5, "{}")).seconds
    0.5
    >>> retimed(Outcome("k", 2.0, "{}"), Outcome("k", 0.5, error="failed"))
    Outcome(key='k', seconds=2.0, row='{}', parts=(), error=None, permanent=False, attempts=1)
    """
    return outcome if again is None or again.error is not None else replace(outcome, seconds=again.seconds)


def write_part(table: pl.DataFrame, name: str, key: str, folder: Path) -> str:
    """Write a table as `parts/NAME/KEY-DIGEST.parquet`, first under a temporary name; its path in `folder`.

    A column `task` with the key ties its lines to their row. The digest is of the file: a table that differs
    stands beside an earlier one until a row names it. Drafts lie in a folder of their own, so that `parts`
    never holds anything but whole files.
    """
    import polars as pl

    data = parquet(table.with_columns(task=pl.lit(key)))
    place = Path("parts", name, f"{key}-{hashlib.sha256(data).hexdigest()[:16]}.parquet")
    draft = folder / "drafts" / f"{key}-{name}-{os.uname().nodename}-{os.getpid()}.parquet"
    draft.parent.mkdir(parents=True, exist_ok=True)
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(data)
    draft.replace(folder / place)
    return str(place)


def marker(key: str, folder: Path) -> Path:
    """The file that exists while a worker computes the task."""
    return folder / "running" / key


def death(key: str, folder: Path, time_limit: float | None) -> str | None:
    """Why a worker died with this task, read from its marker, which is removed; None if it had not begun."""
    path = marker(key, folder)
    try:
        told = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    path.unlink(missing_ok=True)
    if time_limit is None or not told:
        return "the worker process died while computing it (exit, signal or out of memory)"
    place = next((line.strip() for line in told if line.lstrip().startswith("File ")), "unknown place")
    return f"exceeded its time limit of {time_limit:g} s at {printable(place)}"


def _watched(task: Task, folder: Path, time_limit: float | None) -> Outcome:
    """Compute a task, marked as running. Past its time limit the process writes where it is, and exits.

    The watchdog is a thread of the interpreter's own that needs no lock: it also ends a task that hangs in
    compiled code. The cluster starts a new process in its place.
    """
    path = marker(task.key, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        load(task.function)
        if time_limit is not None:
            faulthandler.dump_traceback_later(time_limit, exit=True, file=file)
        try:
            outcome = perform(task, folder)
        finally:
            faulthandler.cancel_dump_traceback_later()
    path.unlink(missing_ok=True)
    return outcome


def told(error: BaseException) -> str:
    """The error in one line."""
    text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST_ERROR else line[: LONGEST_ERROR - 4] + " ..."
