"""The store of a study: one SQLite file of finished rows, and a lock that lets one run at a time write to it.

DIR/store.sqlite   rows by key (WAL: readers and a killed writer do no harm)
DIR/lock           held by the run at work; freed by the system when that process ends, however it ends
DIR/parts/         large tables, each named by its task's key and a digest of its content

A store may come from somebody else: whatever is read from it is checked, and shown only if it is printable.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from attnlaw.base.errors import InputError, printable
from attnlaw.base.files import usable_directory
from attnlaw.study.task import Outcome

STORE = "store.sqlite"
TABLE = """
CREATE TABLE IF NOT EXISTS outcomes (
    key TEXT PRIMARY KEY, row TEXT, parts TEXT NOT NULL, error TEXT,
    seconds REAL NOT NULL, attempts INTEGER NOT NULL
) WITHOUT ROWID
"""
# A key as it stands in the names of files.
KEY = "[0-9a-f]{32}"
# What stands between the key of a part and its ending; nothing in stores of the first version.
DIGEST = "(-[0-9a-f]{16})?"
ENDING = rf"{DIGEST}\.parquet"
# What a lock says while it is held.
HOLDER = re.compile(r"(process \d+ on \S+)?")
LONGEST_HOLDER = 400
LOOK = 1.0  # seconds: far longer than a look at the lock takes


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

    def outdate(self, keys: Iterable[str]) -> None:
        """Mark outcomes to be computed anew, by 0 attempts: each stays until another takes its place."""
        with self.connection:
            self.connection.executemany(
                "UPDATE outcomes SET attempts = 0 WHERE key = ?", [(key,) for key in keys]
            )

    def outdated(self) -> set[str]:
        """The keys of outcomes that are to be computed anew."""
        return {key for (key,) in self.connection.execute("SELECT key FROM outcomes WHERE attempts = 0")}

    def outcomes(self) -> dict[str, Outcome]:
        """All that was kept, by key."""
        found = {}
        query = "SELECT row, parts, attempts, key, seconds, error FROM outcomes"
        for row, parts, attempts, *ends in self.connection.execute(query):
            key, seconds, error = self._ends(*ends)
            if not (row is None or isinstance(row, str)) or not isinstance(attempts, int):
                self.refuse(f"the row or the attempts of task {key} are of another type")
            found[key] = Outcome(key, seconds, row, self._parts(key, parts), error, attempts=attempts)
        return found

    def ends(self) -> Iterator[tuple[str, float, str | None]]:
        """Key, seconds and error (None: it is done) of every task that was kept, without its row."""
        for row in self.connection.execute("SELECT key, seconds, error FROM outcomes"):
            yield self._ends(*row)

    def parts(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Names and paths of the tables of every task, by its key."""
        return {
            key: self._parts(key, parts)
            for key, parts in self.connection.execute("SELECT key, parts FROM outcomes")
        }

    def lost(self) -> dict[str, Path]:
        """A table that should be a plain file and is not, by the key of its task."""
        paths = ((key, self.folder / path) for key, parts in self.parts().items() for _, path in parts)
        # These never raise, whatever a key of somebody else's store makes of the path.
        return {key: p for key, p in paths if os.path.islink(p) or not os.path.isfile(p)}  # noqa: PTH113, PTH114

    def values(self, outcome: Outcome) -> dict[str, Any]:
        """The row of a finished task: numbers, texts, and lists of them, by name."""
        try:
            row = json.loads(outcome.row or "", parse_constant=float)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not all(_is_plain(value) for value in row.values()):
            self.refuse(f"the row of task {outcome.key} is no JSON object of plain values")
        return row

    def _ends(self, key: Any, seconds: Any, error: Any) -> tuple[str, float, str | None]:
        if not isinstance(key, str) or not (error is None or isinstance(error, str)):
            self.refuse(f"the key or the error of task {key!r} is no text")
        if not isinstance(seconds, float) or not 0.0 <= seconds < math.inf:
            self.refuse(f"task {key} took {seconds!r} seconds")
        return key, seconds, None if error is None else printable(error)

    def _parts(self, key: str, text: Any) -> tuple[tuple[str, str], ...]:
        """Names and paths of the tables of a task; a path is what `write_part` makes it, and nothing else."""
        if text == "[]":
            return ()
        try:
            pairs = tuple((name, path) for name, path in json.loads(text))
        except (TypeError, ValueError, RecursionError):
            pairs = ((None, None),)
        for name, path in pairs:
            start = f"parts/{name}/{key}"
            named = isinstance(name, str) and name.isidentifier() and isinstance(path, str)
            # One pattern for all tasks: one of each key's own would be compiled anew in every row.
            if not (named and path.startswith(start) and re.fullmatch(ENDING, path[len(start) :])):
                self.refuse(f"task {key} has a table that is not parts/NAME/{key}-DIGEST.parquet")
        return pairs

    def refuse(self, found: str) -> NoReturn:
        """An `InputError` that tells what the store should not hold."""
        raise InputError(
            f"{self.folder / STORE}: {found}; the store is damaged: run the study in another directory"
        )


def _is_plain(value: Any) -> bool:
    """Whether a value fits a cell of a table: a finite number of 64 bits, a text, null, or a list of them."""
    if isinstance(value, list):
        return all(not isinstance(one, list) and _is_plain(one) for one in value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value is None or isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


@contextmanager
def open_store(directory: str | os.PathLike[str], create: bool = False) -> Iterator[Store]:
    """The store in a directory; without `create`, an `InputError` where there is none."""
    folder = usable_directory(directory) if create else Path(directory)
    path = folder / STORE
    if not _is_file(path) and not create:
        raise InputError(f"{folder}: holds no study; start it with: attnlaw study run FILE --out {folder}")
    try:
        connection = sqlite3.connect(path, timeout=30.0)
        try:
            _require_own(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(TABLE)
            yield Store(folder.absolute(), connection)
        finally:
            connection.close()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: not a store that can be used ({printable(str(error))}); choose another directory"
        ) from error


def _require_own(connection: sqlite3.Connection, path: Path) -> None:
    """An `InputError` for a database of anything but our table: views and triggers compute what they like."""
    found = connection.execute("SELECT type, name, sql LIKE 'CREATE TABLE%' FROM sqlite_master").fetchall()
    strange = [name for kind, name, plain in found if (kind, name, plain) != ("table", "outcomes", 1)]
    if strange:
        raise InputError(f"{path}: not a study's store (it has {strange[0]}); choose another directory")


def _is_file(path: Path) -> bool:
    """Whether a file is there; an `InputError` where something else is, or nobody can look."""
    try:
        there = path.exists()
        plain = path.is_file()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be looked at ({error.strerror}); choose another directory"
        ) from error
    if there and not plain:
        raise InputError(f"{path}: not a plain file; choose another directory")
    return plain


@contextmanager
def locked(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the directory's lock, or refuse with a line that names the run which has it."""
    path = usable_directory(directory) / "lock"
    _is_file(path)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a+", errors="replace"))
            _flock(file)
        except BlockingIOError as error:
            raise InputError(
                f"{path.parent}: another run of this study is at work ({_holder(file) or 'starting'}); "
                "wait for its end, look with attnlaw study status, or choose another directory"
            ) from error
        except OSError as error:
            raise InputError(
                f"{path}: cannot be locked ({error.strerror}); choose another directory"
            ) from error
        if not HOLDER.fullmatch(_holder(file)):
            raise InputError(f"{path}: a file of another program has this name; choose another directory")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        file.flush()
        yield
        file.truncate(0)


def _flock(file: IO[str]) -> None:
    """Take the lock; a `BlockingIOError` where it stays taken for longer than `is_locked` looks at it."""
    until = time.monotonic() + LOOK
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


def _holder(file: IO[str]) -> str:
    """What a run writes into the lock that it holds."""
    file.seek(0)
    return file.read(LONGEST_HOLDER).strip()


def is_locked(directory: str | os.PathLike[str]) -> bool:
    """Whether a run is at work in the directory."""
    path = Path(directory) / "lock"
    if not _is_file(path):
        return False
    with path.open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
