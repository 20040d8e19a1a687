"""Check how large and how deep the values in a pickle would become, before it is loaded.

`torch.load(weights_only=True)` runs no foreign code, but a few hundred bytes can still make it hang (the hash
of a tuple of ten tuples of ten tuples ...), end the process (a tuple a million deep) or fill the memory
(`bytearray(10**10)`, an archive that expands). The check walks through the opcodes and computes sizes instead
of values.
"""

from __future__ import annotations

import io
import mmap
import pickletools
import struct
import zipfile
from pathlib import Path
from typing import Any

MOST_VALUES = 10**8  # the most values inside one value, counting each reference
MOST_NESTED = 200
LEGACY_PICKLES = 5  # magic number, version, system, the weights' table, the storages' keys
ZIP = b"PK\x03\x04"
# Last records of an archive: end of directory, locator of the zip64 end, and the zip64 end itself.
END, LOCATOR, END64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")
TAIL = END.size + LOCATOR.size + END64.size
RESERVING = ("builtins bytearray", "__builtin__ bytearray")
PUTS, GETS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"GET", "BINGET", "LONG_BINGET"}
FILLING = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"}

Size = tuple[int, int]  # values, nesting
MARK: Size = (0, 0)  # compared by identity


class SuspiciousPickle(ValueError):
    """The error for a pickle or archive that would fill the memory or be read differently by two readers."""


def screen_file(path: Path) -> None:
    """Check all pickles that `torch.load` would read. Raise `ValueError` if one is damaged or suspicious."""
    with path.open("rb") as file:
        if file.read(len(ZIP)) == ZIP:
            _screen_archive(path)
            return
        file.seek(0)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for _ in range(LEGACY_PICKLES):
                if data.tell() < len(data):
                    screen(data)


def _screen_archive(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _require_torch_layout(path, entries)
            for entry in entries:
                with archive.open(entry) as record:  # fails if the record's header has another name
                    if entry.orig_filename.lower().endswith(".pkl"):
                        screen(io.BytesIO(record.read()))
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        raise ValueError("its archive is damaged") from error


def _require_torch_layout(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    """Raise `ValueError` unless the archive has the layout that `torch.save` writes.

    With another layout, `torch.load` could find other records than this check. Torch's reader ignores the
    case of names, handles an archive with two directories differently, and takes the bytes of a compressed
    record for weights if the file is mapped.
    """
    names = [entry.orig_filename.lower() for entry in entries]
    size, total = path.stat().st_size, sum(entry.file_size for entry in entries)
    if not _is_only_directory(path, size, len(entries)):
        raise SuspiciousPickle("its archive has bytes before, between or after its parts")
    if len(set(names)) != len(names):
        raise SuspiciousPickle("two records of its archive have one name")
    if not _in_one_folder(names):
        raise SuspiciousPickle("the records of its archive do not lie in one folder")
    if any(name.endswith("/constants.pkl") for name in names):
        raise ValueError("TorchScript")
    if any(entry.compress_type or entry.compress_size != entry.file_size for entry in entries):
        raise SuspiciousPickle("the records of its archive are compressed")
    if any(len(entry.extra) not in (0, _field(entry.extra)) for entry in entries):
        raise SuspiciousPickle("a record of its archive has more than one size")
    if total > size:
        raise SuspiciousPickle(f"the records of its archive claim {total} bytes, the file has {size}")


def _is_only_directory(path: Path, size: int, count: int) -> bool:
    """Return whether the archive ends with its only directory, which lists `count` records."""
    with path.open("rb") as file:
        file.seek(max(0, size - TAIL))
        tail = file.read()
    signature, *_, record_count, length, start, comment = END.unpack(tail[-END.size :])
    if signature != b"PK\5\6" or comment:
        return False
    end = size - END.size
    if len(tail) == TAIL and tail[END64.size :].startswith(b"PK\6\7"):
        end = size - TAIL
        _, _, offset, _ = LOCATOR.unpack(tail[END64.size : -END.size])
        signature, *_, record_count, length, start = END64.unpack(tail[: END64.size])
        if offset != end or signature != b"PK\6\6":
            return False
    return bool(record_count == count and start + length == end)


def _field(extra: bytes) -> int:
    """Return the length in bytes of the first extra field of a zip record, including its header.

    A large record (zip64) stores its sizes in this field.
    """
    return 4 + int.from_bytes(extra[2:4], "little")


def _in_one_folder(names: list[str]) -> bool:
    folders = {name.partition("/")[0] for name in names}
    parts = {part for name in names for part in name.split("/")}
    return len(folders) == 1 and not parts & {"", ".", ".."} and not {*"\\\0"} & {*"".join(names)}


def screen(pickled: Any) -> None:
    """Check one pickle of an open file. Raise `ValueError` if it is damaged or suspicious.

    >>> import pickle
    >>> screen(io.BytesIO(pickle.dumps({"weight": [1.0, 2.0]})))
    >>> screen(io.BytesIO(b"(" * 3 + b"K\\1" + b"\\x85" * 500 + b"."))
    Traceback (most recent call last):
    ...
    attnlaw.checkpoints.formats.pickle_screen.SuspiciousPickle: it nests values more than 200 deep
    """
    stack: list[Size] = []
    memo: dict[Any, Size] = {}
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name in PUTS:
                memo[len(memo) if argument is None else argument] = stack[-1]
            elif opcode.name in GETS:
                stack.append(memo[argument])
            elif opcode.name == "MARK":
                stack.append(MARK)
            elif argument in RESERVING:
                raise SuspiciousPickle("GLOBAL bytearray reserves memory")
            else:
                _apply(opcode, stack)
    except (LookupError, UnicodeError) as error:
        raise ValueError("it is damaged") from error


def _apply(opcode: pickletools.OpcodeInfo, stack: list[Size]) -> None:
    """Replace the values that an opcode takes from the stack by its results."""
    before = opcode.stack_before
    taken: list[Size] = []
    if pickletools.markobject in before:
        while (top := stack.pop()) is not MARK:
            taken.append(top)
        before = before[: before.index(pickletools.markobject)]
    taken += [stack.pop() for _ in before]
    values = 1 + sum(size for size, _ in taken)
    # A container was put on the stack before the values that fill it, so it is popped last.
    container_depth = taken.pop()[1] if opcode.name in FILLING else 0
    nested = max(container_depth, 1 + max((depth for _, depth in taken), default=0))
    if values > MOST_VALUES:
        raise SuspiciousPickle(f"it unfolds to more than {MOST_VALUES} values")
    if nested > MOST_NESTED:
        raise SuspiciousPickle(f"it nests values more than {MOST_NESTED} deep")
    stack.extend([(values, nested)] * len(opcode.stack_after))
