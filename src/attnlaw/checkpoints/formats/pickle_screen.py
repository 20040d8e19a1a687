"""Check how large and how deep the values in a pickle would become, before it is loaded.

`torch.load(weights_only=True)` runs no foreign code, but a few hundred bytes can still make it hang (the hash
of a tuple of ten tuples of ten tuples ...), end the process (a tuple a million deep) or fill the memory
(`bytearray(10**10)`, an archive that expands). The check walks through the opcodes and computes sizes instead
of values. It also makes sure that every number of a tensor is in the file: torch maps as many bytes as a
storage claims, and it allows a file to call `torch.FloatTensor(8, 8)`, whose numbers are whatever the memory
had before.
"""

from __future__ import annotations

import io
import mmap
import pickletools
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

MOST_VALUES = 10**8  # the most values inside one value, counting each reference
MOST_NESTED = 200
LEGACY_PICKLES = 5  # magic number, version, system, the weights' table, the keys of storages that follow
ZIP = b"PK\x03\x04"
# Last records of an archive: end of directory, locator of the zip64 end, and the zip64 end itself.
END, LOCATOR, END64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")
TAIL = END.size + LOCATOR.size + END64.size
RESERVING = ("builtins bytearray", "__builtin__ bytearray")
PUTS, GETS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"GET", "BINGET", "LONG_BINGET"}
FILLING = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"}

# Classes that reserve memory without filling it, and calls that give a tensor attributes.
UNFILLED = re.compile(r"torch[\w.]* \w*(Tensor|Storage)")
WITH_ATTRIBUTES = ("torch._tensor _rebuild_from_type_v2", "torch._utils _rebuild_parameter_with_state")
CALLS = ("REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ")
LONGEST_TEXT = 200  # of a text whose value is known
# A storage: the word "storage", its class, its key, the device, and the number of its entries. In files from
# before PyTorch 1.6 also the part of it that is in use, or nothing.
STORAGE_PARTS = (5, 6)
NOTHING = object()
# The opcodes of a list of texts, all of which are in the list if the stack is empty after it.
LIST_OF_TEXTS = {
    *("PROTO", "EMPTY_LIST", "MARK", "APPEND", "APPENDS", "STOP"),
    *("BINUNICODE", "SHORT_BINSTRING", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
}
# Bytes of an entry by the class of a storage. Torch writes all other types as bytes (UntypedStorage).
ENTRY_SIZES = {
    **dict.fromkeys(("Untyped", "Byte", "Char", "Bool", "QInt8", "QUInt8", "QUInt4x2", "QUInt2x4"), 1),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Float", "Int", "QInt32"), 4),
    **dict.fromkeys(("Double", "Long", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}


class Size(NamedTuple):
    """The size of a value on the stack of a pickle, and the value itself if it can describe a storage."""

    values: int
    nesting: int
    value: Any = None


class Global(str):
    """The name of a class or function: its module, a space, and its name there."""


MARK = Size(0, 0)  # compared by identity


@dataclass
class Contents:
    """What a pickle contains: descriptions of the storages in use, all short texts, and the opcodes.

    `left_over` is how many values the pickle leaves on the stack in addition to its result.
    """

    storages: list[Any] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    opcodes: set[str] = field(default_factory=set)
    left_over: int = 0


class SuspiciousPickle(ValueError):
    """The error for a pickle or archive that would fill the memory or be read differently by two readers."""


def screen_file(path: Path) -> bool:
    """Check all pickles that `torch.load` would read. Raise `ValueError` if one is damaged or suspicious.

    Return whether the file is an archive, which can be mapped. Files from before PyTorch 1.6 are not.
    """
    with path.open("rb") as file:
        if file.read(len(ZIP)) == ZIP:
            _screen_archive(path)
            return True
        file.seek(0)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            pickles = [screen(data) for _ in range(LEGACY_PICKLES) if data.tell() < len(data)]
    keys = pickles[-1]
    is_list = keys.opcodes <= LIST_OF_TEXTS and not keys.left_over
    for storage in (storage for contents in pickles for storage in contents.storages):
        *_, key, _, _, part = _described(storage, STORAGE_PARTS[1])
        if part is not NOTHING or key not in keys.texts or not is_list:
            raise SuspiciousPickle(f"the numbers of storage {key} are missing after it")
    return False


def _screen_archive(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _require_torch_layout(path, entries)
            sizes = {entry.orig_filename.partition("/")[2].lower(): entry.file_size for entry in entries}
            for entry in entries:
                with archive.open(entry) as record:  # fails if the record's header has another name
                    if entry.orig_filename.lower().endswith(".pkl"):
                        for storage in screen(io.BytesIO(record.read())).storages:
                            _require_record(storage, sizes)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        raise ValueError("its archive is damaged") from error


def _require_torch_layout(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    """Raise `ValueError` unless the archive has the layout that `torch.save` writes.

    With another layout, `torch.load` could find other records than this check: torch ignores the case of
    names, handles two directories differently, and takes the bytes of a compressed record for weights if it
    maps.
    """
    names = [entry.orig_filename.lower() for entry in entries]
    size, total = path.stat().st_size, sum(entry.file_size for entry in entries)
    if not _is_only_directory(path, size, len(entries)):
        raise SuspiciousPickle("its archive has extra bytes before, between or after its files")
    if len(set(names)) != len(names):
        raise SuspiciousPickle("two files in its archive have the same name")
    if not _in_one_folder(names):
        raise SuspiciousPickle("the files in its archive are not in one folder")
    if any(name.endswith("/constants.pkl") for name in names):
        raise ValueError("TorchScript")
    if any(entry.compress_type or entry.compress_size != entry.file_size for entry in entries):
        raise SuspiciousPickle("the files in its archive are compressed")
    if any(len(entry.extra) not in (0, _field(entry.extra)) for entry in entries):
        raise SuspiciousPickle("its archive gives two different sizes for a file")
    if total > size:
        raise SuspiciousPickle(f"its archive claims to hold {total} bytes, but the file has {size}")


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
    """Return the length of the first extra field of a zip record, where zip64 stores the sizes."""
    return 4 + int.from_bytes(extra[2:4], "little")


def _in_one_folder(names: list[str]) -> bool:
    folders = {name.partition("/")[0] for name in names}
    parts = {part for name in names for part in name.split("/")}
    return len(folders) == 1 and not parts & {"", ".", ".."} and not {*"\\\0"} & {*"".join(names)}


def screen(pickled: Any) -> Contents:
    """Check one pickle of an open file. Raise `ValueError` if the pickle is damaged or suspicious.

    >>> import pickle
    >>> screen(io.BytesIO(pickle.dumps({"weight": [1.0, 2.0]}))).texts
    {'weight'}
    >>> screen(io.BytesIO(b"(" * 3 + b"K\\1" + b"\\x85" * 500 + b"."))
    Traceback (most recent call last):
    ...
    attnlaw.checkpoints.formats.pickle_screen.SuspiciousPickle: it nests values more than 200 deep
    """
    stack: list[Size] = []
    memo: dict[Any, Size] = {}
    contents = Contents()
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            contents.opcodes.add(opcode.name)
            if opcode.name in PUTS:
                memo[len(memo) if argument is None else argument] = stack[-1]
            elif opcode.name in GETS:
                stack.append(memo[argument])
            elif opcode.name == "MARK":
                stack.append(MARK)
            elif argument in RESERVING:
                raise SuspiciousPickle("GLOBAL bytearray")  # in the words of torch
            else:
                _apply(opcode, argument, stack, contents)
    except (LookupError, UnicodeError) as error:
        raise ValueError("it is damaged") from error
    contents.left_over = len(stack)
    return contents


def _apply(opcode: pickletools.OpcodeInfo, argument: Any, stack: list[Size], contents: Contents) -> None:
    """Replace the values that an opcode takes from the stack by its results."""
    before = opcode.stack_before
    taken: list[Size] = []
    if pickletools.markobject in before:
        while (top := stack.pop()) is not MARK:
            taken.append(top)
        before = before[: before.index(pickletools.markobject)]
    taken += [stack.pop() for _ in before]
    if opcode.name in CALLS and taken:
        _require_filled(taken[-1].value)
    elif opcode.name == "BINPERSID":
        contents.storages.append(taken[0].value)
    values = 1 + sum(size.values for size in taken)
    # A container was put on the stack before the values that fill it, so it is popped last.
    container_depth = taken.pop().nesting if opcode.name in FILLING else 0
    nested = max(container_depth, 1 + max((size.nesting for size in taken), default=0))
    if values > MOST_VALUES:
        raise SuspiciousPickle(f"it unpacks to more than {MOST_VALUES} values")
    if nested > MOST_NESTED:
        raise SuspiciousPickle(f"it nests values more than {MOST_NESTED} deep")
    value = _value(opcode.name, argument, taken)
    if type(value) is str:
        contents.texts.add(value)
    stack.extend([Size(values, nested, value)] * len(opcode.stack_after))


def _value(name: str, argument: Any, taken: list[Size]) -> Any:
    """Return the result of an opcode if it may be part of the description of a storage, else None."""
    if name == "GLOBAL":
        return Global(argument)
    if name == "NONE":
        return NOTHING
    if name == "TUPLE" and len(taken) in STORAGE_PARTS:
        return tuple(size.value for size in reversed(taken))
    is_short = isinstance(argument, int) or (isinstance(argument, str) and len(argument) <= LONGEST_TEXT)
    return argument if is_short and not taken else None


def _require_filled(call: Any) -> None:
    """Raise an error for a call whose tensor has numbers or attributes that do not belong to its storage."""
    if isinstance(call, Global) and UNFILLED.fullmatch(call):
        raise SuspiciousPickle(f"it creates a {call.replace(' ', '.')} without saying what it contains")
    if isinstance(call, Global) and call in WITH_ATTRIBUTES:
        raise SuspiciousPickle("it has a tensor with extra attributes or of another class")


def _described(storage: Any, parts: int) -> tuple[Any, ...]:
    """Return the description of a storage. Raise an error if it is not written out."""
    if not isinstance(storage, tuple) or len(storage) != parts or None in storage[1:parts]:
        raise SuspiciousPickle("it does not contain the numbers of a tensor")
    return storage


def _require_record(storage: Any, records: Mapping[str, int]) -> None:
    """Raise an error unless the record of a storage has as many bytes as the pickle claims."""
    _, kind, key, _, count = _described(storage, STORAGE_PARTS[0])
    size = ENTRY_SIZES.get(str(kind).rpartition(" ")[2].removesuffix("Storage"))
    if size is None or type(count) is not int or count < 0:
        raise SuspiciousPickle("it does not contain the size of a storage")
    stored = records.get(f"data/{key}".lower())
    if stored is None or count * size > stored:
        there = "is missing" if stored is None else f"has {stored} bytes of {count * size}"
        raise SuspiciousPickle(f"the file of storage {key} {there}")
