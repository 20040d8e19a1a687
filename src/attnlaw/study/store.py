"""The store of a study: DIR/store.sqlite has the finished rows by key, in WAL mode, so that readers and a
killed writer do no harm; DIR/parts/ has large tables, by key and digest; and DIR/lock, which the system frees
with its process, lets one run write at a time. Code that adds to a store must hold it (`hold_lock`)."""

from __future__ import annotations

import fcntl
import io
import json
import os
import sqlite3
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from attnlaw.core.errors import InputError, as_input_error
from attnlaw.core.estimate import Outcome
from attnlaw.core.files import writable_directory
from attnlaw.study.task import Ending
from attnlaw.verbs.views import STORE

if TYPE_CHECKING:
    import polars as pl

TABLES = """
CREATE TABLE IF NOT EXISTS outcomes (
    key TEXT PRIMARY KEY, row TEXT, parts TEXT NOT NULL, error TEXT,
    seconds REAL NOT NULL, attempts INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS anew (key TEXT PRIMARY KEY) WITHOUT ROWID;
"""
LOCK_WAIT = 1.0  # seconds, far longer than `is_locked` holds the lock


@dataclass(frozen=True)
class Store:
    """A store of how tasks ended, by key. Each `add` is one transaction, which survives a kill."""

    folder: Path
    connection: sqlite3.Connection

    def add(self, endings: Iterable[Ending]) -> None:
        """Store how tasks ended. They replace earlier endings with the same keys."""
        values = [(e.key, e.row, json.dumps(e.parts), e.error, e.seconds, e.attempts) for e in endings]
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?, ?, ?)", values)
            self.connection.executemany("DELETE FROM anew WHERE key = ?", [(key,) for key, *_ in values])

    def mark_stale(self, keys: Iterable[str]) -> None:
        """Mark tasks that must be computed again. Their old endings stay until then."""
        with self.connection:
            self.connection.executemany("INSERT OR IGNORE INTO anew VALUES (?)", [(key,) for key in keys])

    def stale_keys(self) -> set[str]:
        """Return the keys of tasks that must be computed again."""
        return {key for (key,) in self.connection.execute("SELECT key FROM anew")}

    def endings(self, rows: bool = True) -> dict[str, Ending]:
        """Return all stored endings by key, including stale ones.

        If `rows` is false, the texts of the rows are left out to save memory. The method `cells` needs these
        texts.
        """
        row = "row" if rows else "NULL"
        query = f"SELECT key, seconds, {row}, parts, error, attempts FROM outcomes"
        return {
            key: Ending(key, seconds, row, self._parts(key, parts), error, attempts=attempts)
            for key, seconds, row, parts, error, attempts in self.connection.execute(query)
        }

    def finished(self) -> dict[str, Ending]:
        """Return the endings, also failures, that are not stale and have all tables, without rows."""
        stale = self.stale_keys()
        endings = self.endings(rows=False).items()
        return {key: ending for key, ending in endings if key not in stale and self.has_tables(ending)}

    def has_tables(self, ending: Ending) -> bool:
        """Return whether all tables of an ending still exist as files."""
        return all((self.folder / path).is_file() for _, path in ending.parts)

    def cells(self, ending: Ending) -> dict[str, Any]:
        """Return the cells that a task adds to its row, or only `status` and `remark` if it failed."""
        if ending.error is not None:
            return {"status": str(Outcome.FAILED), "remark": ending.error}
        with self._as_damage(ending.key):
            return {**json.loads(ending.row)}  # type: ignore[arg-type]  # NULL is damage, too

    def tables(self, ending: Ending, exclude: Container[str] = ()) -> dict[str, pl.DataFrame]:
        """Read the tables of a finished task, keyed by name. A missing or damaged file is an error."""
        import polars as pl

        damage = (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
        remedy = "delete the file if it exists, and the next run computes it again"
        tables = {}
        for name, path in ((name, self.folder / part) for name, part in ending.parts if name not in exclude):
            with as_input_error(f"{path}: cannot be read", remedy, *damage):
                tables[name] = pl.read_parquet(io.BytesIO(path.read_bytes()))
        return tables

    def _parts(self, key: str, text: str) -> tuple[tuple[str, str], ...]:
        if text == "[]":  # true for most tasks
            return ()
        with self._as_damage(key):
            return tuple((name, path) for name, path in json.loads(text))

    def _as_damage(self, key: str) -> AbstractContextManager[None]:
        what = f"{self.folder / STORE}: its row for task {key} cannot be read"
        remedy = "the store is damaged; use another directory"
        return as_input_error(what, remedy, TypeError, ValueError, with_reason=False)


@contextmanager
def open_store(directory: str | os.PathLike[str], create: bool = False) -> Iterator[Store]:
    """Yield the store of a directory. If `create` is true, a missing store is created.

    Raise an `InputError` if there is no store and `create` is False, or if the store is damaged. SQLite
    errors inside the `with` block also become an `InputError`.
    """
    folder = writable_directory(directory) if create else Path(directory)
    path = folder / STORE
    if not create and not os.path.isfile(path):  # noqa: PTH113 (this never raises)
        raise InputError(
            f"{folder}: this directory has no study; start one with: attnlaw study run FILE --out {folder}"
        )
    damage = (sqlite3.DatabaseError, UnicodeDecodeError)
    with (
        as_input_error(f"{path}: this file is not a store of a study", "choose another directory", *damage),
        closing(sqlite3.connect(path, timeout=30.0)) as connection,
    ):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(TABLES)
        yield Store(folder.absolute(), connection)


def has_endings(directory: str | os.PathLike[str]) -> bool:
    """Return whether the store of a directory contains the ending of any task."""
    with open_store(directory) as store:
        return store.connection.execute("SELECT 1 FROM outcomes").fetchone() is not None


@contextmanager
def hold_lock(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a directory during the block. If another run has the lock, raise an error."""
    path = writable_directory(directory) / "lock"
    with ExitStack() as stack:
        with as_input_error(f"{path}: cannot be locked", "choose another directory"):
            file = stack.enter_context(path.open("a+"))
            try:
                _flock(file)
            except BlockingIOError as error:
                file.seek(0)
                raise InputError(
                    f"{path.parent}: another run is using this directory "
                    f"({file.read().strip() or 'starting'}); wait until it ends, or choose another directory"
                ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        file.flush()
        yield
        file.truncate(0)


def _flock(file: IO[str]) -> None:
    """Take the lock, or raise `BlockingIOError`. `is_locked` may hold it for a moment."""
    until = time.monotonic() + LOCK_WAIT
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


def is_locked(directory: str | os.PathLike[str]) -> bool:
    """Return whether a run is using the directory. To find out, the function briefly takes a shared lock."""
    path = Path(directory) / "lock"
    if not path.is_file():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
