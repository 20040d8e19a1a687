"""The store of a study: one SQLite file of finished rows, and a lock that lets one run at a time write to it.

DIR/store.sqlite   rows by key (WAL: readers and a killed writer do no harm)
DIR/lock           held by the run at work; freed by the system when that process ends, however it ends
DIR/parts/         large tables, each named by its task's key
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attnlaw.errors import InputError
from attnlaw.records.files import usable_directory
from attnlaw.study.task import Outcome

NAME = "store.sqlite"
TABLE = """
CREATE TABLE IF NOT EXISTS outcomes (
    key TEXT PRIMARY KEY, row TEXT, parts TEXT NOT NULL, error TEXT,
    seconds REAL NOT NULL, attempts INTEGER NOT NULL
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Store:
    """Finished tasks under their keys. Every `add` is one transaction: after it the rows survive a kill."""

    folder: Path
    connection: sqlite3.Connection

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Keep outcomes, each in place of an earlier one of the same key."""
        values = [(o.key, o.row, json.dumps(o.parts), o.error, o.seconds, o.attempts) for o in outcomes]
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?, ?, ?)", values)

    def drop(self, keys: Iterable[str]) -> None:
        """Forget outcomes."""
        with self.connection:
            self.connection.executemany("DELETE FROM outcomes WHERE key = ?", [(key,) for key in keys])

    def outcomes(self) -> dict[str, Outcome]:
        """All that was kept, by key."""
        rows = self.connection.execute("SELECT key, row, parts, error, seconds, attempts FROM outcomes")
        return {
            key: Outcome(key, seconds, row, _pairs(parts), error, attempts=attempts)
            for key, row, parts, error, seconds, attempts in rows
        }

    def failures(self) -> dict[str, bool]:
        """For every kept key, whether the task failed."""
        return {
            key: bool(failed)
            for key, failed in self.connection.execute("SELECT key, error NOTNULL FROM outcomes")
        }


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return () if text == "[]" else tuple((name, path) for name, path in json.loads(text))


@contextmanager
def open_store(directory: str | os.PathLike[str], create: bool = False) -> Iterator[Store]:
    """The store in a directory; without `create`, an `InputError` where there is none."""
    folder = usable_directory(directory) if create else Path(directory)
    path = folder / NAME
    if not create and not path.is_file():
        raise InputError(f"{folder}: holds no study; start it with: attnlaw study run FILE --out {folder}")
    try:
        connection = sqlite3.connect(path, timeout=30.0)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(TABLE)
            yield Store(folder.absolute(), connection)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{path}: not a store that can be used ({error}); choose another directory"
        ) from error


@contextmanager
def locked(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the directory's lock, or refuse with a line that names the run which has it."""
    path = usable_directory(directory) / "lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise InputError(
                f"{path.parent}: another run of this study is at work ({file.read().strip() or 'starting'}); "
                "wait for its end, look with attnlaw study status, or choose another directory"
            ) from error
        except OSError as error:
            raise InputError(
                f"{path}: cannot be locked ({error.strerror}); choose another directory"
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        file.flush()
        yield
        file.truncate(0)


def is_locked(directory: str | os.PathLike[str]) -> bool:
    """Whether a run is at work in the directory."""
    path = Path(directory) / "lock"
    if not path.exists():
        return False
    with path.open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
