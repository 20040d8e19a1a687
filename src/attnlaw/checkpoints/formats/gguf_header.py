"""The header of a GGUF file: plain values and where each tensor lies, in one bounded pass.

The layout, little-endian: magic `GGUF`, version (u32), number of tensors and of values (u64 each); every
value is a key, a type (u32) and its bytes; every tensor a name, its dimensions (fastest first), a type and
an offset into the data, which start at the next multiple of `general.alignment`. Texts have a length (u64).
The reader of the `gguf` package keeps every token of the vocabulary as arrays; a header is read here in
milliseconds, and a damaged length ends at the end of the file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
MOST_ARRAY_ENTRIES = 4096  # longer arrays belong to the tokenizer
MOST = 2**26  # bytes of a header; the largest vocabularies take 20 MB
MOST_DIMENSIONS, MOST_TEXTS = 8, 2**22
MOST_ENTRIES = 10**5  # tensors, and values; the largest models have thousands


@dataclass(frozen=True)
class Entry:
    """One tensor: shape as numpy has it, code of its type, and its offset from the start of the file."""

    shape: tuple[int, ...]
    code: int
    offset: int


@dataclass(frozen=True)
class Header:
    values: dict[str, Any]
    tensors: dict[str, Entry]


def read_header(data: Any) -> Header:
    """Parse the header of a mapped file; `ValueError` or `struct.error` where it is none."""
    cursor = _Cursor(data)
    if bytes(data[:4]) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    cursor.at = 4
    version = cursor.scalar("I")
    if version not in VERSIONS:
        raise ValueError(f"version {version}, expected one of {VERSIONS} in little-endian order")
    tensors, values = cursor.scalar("Q"), cursor.scalar("Q")
    if max(tensors, values) > MOST_ENTRIES:
        raise ValueError(f"{tensors} tensors and {values} values, expected at most {MOST_ENTRIES} of each")
    metadata = {}
    for _ in range(values):
        key = cursor.name()
        metadata[key] = cursor.value(cursor.scalar("I"))
    entries = []
    for _ in range(tensors):
        name = cursor.name()
        dimensions = cursor.scalar("I")
        if dimensions > MOST_DIMENSIONS:
            raise ValueError(f"a tensor has {dimensions} dimensions")
        shape = tuple(cursor.scalar("Q") for _ in range(dimensions))[::-1]
        entries.append((name, shape, cursor.scalar("I"), cursor.scalar("Q")))
    if len({name for name, *_ in entries}) != len(entries):
        raise ValueError("two tensors have one name")
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    return Header(metadata, {name: Entry(shape, code, start + at) for name, shape, code, at in entries})


class _Cursor:
    """A place in the bytes that moves on with each value read."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.at = 0

    def scalar(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self) -> str:
        length = self.scalar("Q")
        begin = self.at
        self.skip(length)
        return bytes(self.data[begin : self.at]).decode("utf-8", "replace")

    def name(self) -> str:
        """A text that is not empty: zeros without end, as in a hole of a file, are no names."""
        text = self.text()
        if not text:
            raise ValueError("a value or a tensor has no name")
        return text

    def skip(self, count: int) -> None:
        if count > len(self.data) - self.at:
            raise ValueError("a length points past its end")
        self.at += count

    def value(self, kind: int) -> Any:
        """A number, a text, a short list of numbers, or None for what a model's sizes never are."""
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            return self._array(self.scalar("I"), self.scalar("Q"))
        if kind not in SCALARS:
            raise ValueError(f"a value has the unknown type {kind}")
        return self.scalar(SCALARS[kind])

    def _array(self, kind: int, count: int) -> list[Any] | None:
        if kind == TEXT:
            if count > MOST_TEXTS:
                raise ValueError(f"an array of {count} texts")
            for _ in range(count):
                self.skip(self.scalar("Q"))
            return None
        if kind not in SCALARS:
            raise ValueError(f"an array has the unknown type {kind}")
        if count > MOST_ARRAY_ENTRIES:
            self.skip(count * struct.calcsize(SCALARS[kind]))
            return None
        return [self.scalar(SCALARS[kind]) for _ in range(count)]
