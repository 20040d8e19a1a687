"""A pickle looked at before it is loaded: how large and how deep its values would become, none of them made.

`torch.load(weights_only=True)` runs no foreign code, but a few hundred bytes can still make it hang (the hash
of a tuple of ten tuples of ten tuples ...), end the process (a tuple a million deep) or fill the memory
(`bytearray(10**10)`, an archive that expands). The opcodes are walked here with sizes in place of values.
"""

from __future__ import annotations

import io
import mmap
import pickletools
import zipfile
from pathlib import Path
from typing import Any

MOST_VALUES = 10**8  # in one value, counted as often as they are referred to
MOST_NESTED = 200
LEGACY_PICKLES = 5  # magic number, version, system, the weights' table, the storages' keys
ZIP = b"PK\x03\x04"
MOST_EXPANSION, SLACK = 4, 2**20
RESERVING = ("builtins bytearray", "__builtin__ bytearray")
PUTS, GETS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"GET", "BINGET", "LONG_BINGET"}
FILLING = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"}

Size = tuple[int, int]  # values, nesting
MARK: Size = (0, 0)  # told from others by identity


class Excess(ValueError):
    """A pickle or archive that would take more memory or time than its bytes justify."""


def screen_file(path: Path) -> None:
    """Screen every pickle that `torch.load` would read; `ValueError` where one is damaged or an `Excess`."""
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
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len({entry.filename for entry in entries}) != len(entries):
                raise Excess("two records of its archive have one name")
            total = sum(entry.file_size for entry in entries)
            if total > MOST_EXPANSION * size + SLACK:
                raise Excess(f"the records of its archive claim {total} bytes, the file has {size}")
            for entry in entries:
                if entry.filename.endswith("data.pkl"):
                    screen(io.BytesIO(archive.read(entry)))
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        raise ValueError("its archive is damaged") from error


def screen(pickled: Any) -> None:
    """Walk one pickle of a file opened for reading.

    >>> import pickle
    >>> screen(io.BytesIO(pickle.dumps({"weight": [1.0, 2.0]})))
    >>> screen(io.BytesIO(b"(" * 3 + b"K\\1" + b"\\x85" * 500 + b"."))
    Traceback (most recent call last):
    ...
    attnlaw.checkpoints.formats.pickle_screen.Excess: it nests values more than 200 deep
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
                raise Excess("GLOBAL bytearray reserves memory")
            else:
                _apply(opcode, stack)
    except (LookupError, UnicodeError) as error:
        raise ValueError("it is damaged") from error


def _apply(opcode: pickletools.OpcodeInfo, stack: list[Size]) -> None:
    """Replace what an opcode takes from the stack by what it leaves there."""
    before = opcode.stack_before
    taken: list[Size] = []
    if pickletools.markobject in before:
        while (top := stack.pop()) is not MARK:
            taken.append(top)
        before = before[: before.index(pickletools.markobject)]
    taken += [stack.pop() for _ in before]
    values = 1 + sum(size for size, _ in taken)
    # A container that takes values in was put on the stack first, so it is taken last.
    own = taken.pop()[1] if opcode.name in FILLING else 0
    nested = max(own, 1 + max((depth for _, depth in taken), default=0))
    if values > MOST_VALUES:
        raise Excess(f"it unfolds to more than {MOST_VALUES} values")
    if nested > MOST_NESTED:
        raise Excess(f"it nests values more than {MOST_NESTED} deep")
    stack.extend([(values, nested)] * len(opcode.stack_after))
