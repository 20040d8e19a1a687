"""Records of plain values and arrays as bytes, and back, to the bit; nothing in the bytes is ever run.

A line of JSON tells the tree: records by the name of their class, arrays by their place. The arrays follow,
each as numpy writes it (.npy), which keeps the order in which it lies in memory: sums over it stay the same.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.errors import InputError


def pack(record: Any) -> bytes:
    """A frozen record of None, truth values, numbers, texts, bytes, tuples, arrays and such records.

    >>> from attnlaw.core.estimate import Estimate
    >>> unpack(pack(Estimate(0.1, float("inf"))), [Estimate])
    Estimate(value=0.1, error=inf)
    """
    arrays: list[NDArray[Any]] = []
    buffer = io.BytesIO()
    buffer.write(json.dumps(_encode(record, arrays)).encode() + b"\n")
    for array in arrays:
        np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def unpack(data: bytes, kinds: Iterable[type]) -> Any:
    """The record that was packed; `kinds` are the classes of the records that may be in it."""
    buffer = io.BytesIO(data)
    tree = json.loads(buffer.readline())
    return _decode(tree, {kind.__name__: kind for kind in kinds}, _arrays(buffer))


def _arrays(buffer: io.BytesIO) -> Iterator[NDArray[Any]]:
    while True:
        yield np.load(buffer, allow_pickle=False)


def _encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """The value as JSON holds it: what JSON has no word for is a pair of a kind and its content."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return ["array", None]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, tuple):
        return ["tuple", [_encode(part, arrays) for part in value]]
    if is_dataclass(value) and not isinstance(value, type):
        pairs = [[field.name, _encode(getattr(value, field.name), arrays)] for field in fields(value)]
        return [type(value).__name__, pairs]
    raise TypeError(f"{type(value).__name__} is no part of a record that can be packed")


def _decode(tree: Any, kinds: dict[str, type], arrays: Iterator[NDArray[Any]]) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, content = tree
    if kind == "array":
        return next(arrays)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "tuple":
        return tuple(_decode(part, kinds, arrays) for part in content)
    values = {name: _decode(part, kinds, arrays) for name, part in content}
    record = kinds.get(kind)
    if record is None or {field.name for field in fields(record)} != {*values}:
        raise InputError(
            f"a stored {kind} comes from another version of attnlaw; compute it again with --force"
        )
    return record(**values)
