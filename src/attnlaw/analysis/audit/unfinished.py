"""Keep the finished units of an audit in a file, so that an interrupted audit can go on.

A unit is one matrix, or QK or VO of all heads of a block (see `attnlaw.analysis.audit.units`). The file has
an entry for each finished unit: the length and the SHA-256 digest of its content, and then the content, which
is a hash of the unit and its packed spectra and notes. Entries are only appended. So a process that is killed
damages at most its last entry, and a damaged entry is measured again.

| file in DIR/unfinished | content |
|---|---|
| KEY.units | the finished units of a model whose audit goes on, or was interrupted |
| KEY.whole | all units of a model, until the results of the command are saved |
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any

from attnlaw import __version__
from attnlaw.analysis.audit.kept_units import FOLDER, UNITS, WHOLE, remove_if_empty
from attnlaw.analysis.audit.units import RECORDS, file_state, local_path, pack, unpack
from attnlaw.analysis.findings.observer import Note, Observer, TensorIndex
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import InputError
from attnlaw.core.files import as_write_error, writable_directory
from attnlaw.spectra.measure import Unit, UnitMeasurer, unit_spectra
from attnlaw.spectra.spectrum import Spectrum

HEADER = struct.Struct(">Q32s")  # length and digest of an entry's content
DIGEST = 32


class UnfinishedAudit:
    """The finished units of one audit, in a file that is open and locked."""

    def __init__(self, file: FileIO, state: str) -> None:
        self._file, self._state, self._lock = file, state, Lock()
        self._entries = _read_entries(file)  # offset and length of the content of each unit
        self._is_writable = True

    def __contains__(self, unit: Unit) -> bool:
        return self._key(unit) in self._entries

    def _key(self, unit: Unit) -> bytes:
        """Return a hash of everything that the spectra of a unit depend on."""
        how = (unit.approximate, unit.rounding, unit.exact)
        place = (unit.first, unit.members, unit.location, unit.product.tensors)
        return hashlib.sha256(repr((__version__, self._state, place, how)).encode()).digest()

    def measurer(self, model: Model, take: Callable[[Note], None]) -> UnitMeasurer:
        """Return a function that measures and keeps a unit, or reads it back. `take` receives the notes."""
        index = TensorIndex.of(model)

        def measure_unit(_: Model, unit: Unit) -> list[Spectrum]:
            records = self._read(unit)
            if records is None:
                notes: list[Note] = []
                spectra = unit_spectra(Observer(model, notes.append, index).model, unit)
                records = (*spectra, *notes)
                self._append(unit, records)
            for record in records:
                if not isinstance(record, Spectrum):
                    take(record)
            return [record for record in records if isinstance(record, Spectrum)]

        return measure_unit

    def _read(self, unit: Unit) -> tuple[Any, ...] | None:
        """Return the spectra and notes of a unit; None if it was not kept, or if its entry is damaged."""
        place = self._entries.get(self._key(unit))
        if place is None:
            return None
        start, length = place
        with self._lock:
            self._file.seek(start - HEADER.size)
            header = self._file.read(HEADER.size)
            content = self._file.read(length)
        if HEADER.pack(length, hashlib.sha256(content).digest()) != header:
            return None
        with suppress(Exception):  # whatever is wrong with an entry, the unit can be measured again
            records = unpack(content[DIGEST:], RECORDS)
            spectra = [record for record in records if isinstance(record, Spectrum)]
            if len(spectra) == unit.members and all(isinstance(record, RECORDS) for record in records):
                return tuple(records)
        return None

    def _append(self, unit: Unit, records: tuple[Any, ...]) -> None:
        key = self._key(unit)
        content = key + pack(records)
        with self._lock:
            if not self._is_writable:
                return
            try:
                start = self._file.seek(0, os.SEEK_END) + HEADER.size
                entry = HEADER.pack(len(content), hashlib.sha256(content).digest()) + content
                if self._file.write(entry) < len(entry):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:  # the disk is full, so the space is left to the results
                self._is_writable = False
                self._entries.clear()
                self._file.truncate(0)
            else:
                self._entries[key] = start, len(content)


@contextmanager
def keep_units(directory: str | os.PathLike[str], settings: ModelSettings) -> Iterator[UnfinishedAudit]:
    """Yield the finished units of an audit whose results go to `directory`.

    An `InputError` removes them, because the same command would fail again, unless the system caused it.
    """
    names = (settings.model, settings.map, settings.adapter)
    paths = [None if name is None else local_path(name) for name in names]
    key = hashlib.sha256(json.dumps([*paths, settings.heads]).encode()).hexdigest()[:32]
    path = writable_directory(directory) / FOLDER / f"{key}{UNITS}"
    if path.parent.is_symlink():
        raise InputError(
            f"{path.parent}: is a link to another directory; remove the link, or choose another --out"
        )
    with suppress(OSError):
        path.with_suffix(WHOLE).rename(path)
    with _open_locked(path) as file:
        try:
            yield UnfinishedAudit(file, file_state(*paths))
        except BaseException as error:
            fails_again = isinstance(error, InputError) and not isinstance(
                error.__cause__, OSError | MemoryError
            )
            if fails_again or os.fstat(file.fileno()).st_size == 0:
                path.unlink(missing_ok=True)
                remove_if_empty(path.parent)
            raise
        if os.fstat(file.fileno()).st_size == 0:
            path.unlink(missing_ok=True)
            remove_if_empty(path.parent)
        with suppress(OSError):
            path.rename(path.with_suffix(WHOLE))


@contextmanager
def _open_locked(path: Path) -> Iterator[FileIO]:
    with as_write_error(path):
        path.parent.mkdir(exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        file = FileIO(os.open(path, flags, 0o666), "r+")  # without a buffer, so that closing writes nothing
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            where = path.parent.parent
            raise InputError(
                f"{where}: another audit of this model uses this directory; wait until it ends, or choose "
                "another directory"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield file


def _read_entries(file: FileIO) -> dict[bytes, tuple[int, int]]:
    """Return the offset and the length of each entry's content by its key. Cut off an incomplete end."""
    entries, size, end = {}, file.seek(0, os.SEEK_END), 0
    while end + HEADER.size + DIGEST <= size:
        file.seek(end)
        length, _ = HEADER.unpack(file.read(HEADER.size))
        start = end + HEADER.size
        if length < DIGEST or start + length > size:
            break
        entries[file.read(DIGEST)] = start, length
        end = start + length
    file.truncate(end)
    return entries
