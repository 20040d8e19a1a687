"""Safetensors and GGUF whose headers lie about counts, lengths, offsets, sizes, types and names."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkpoints.spoiled import QUERY, bert_state
from trust.attack import Attack, with_config

FLOATS = 8 * 8 * 4  # bytes of a weight of 8 x 8 in float32


def header_of(tensors: dict[str, Any]) -> bytes:
    return json.dumps(tensors).encode()


def good_header() -> dict[str, Any]:
    """A whole model, every tensor 8 x 8 (10 and 12 become 8) and one after the other."""
    return {
        name: {"dtype": "F32", "shape": [8, 8], "data_offsets": [place * FLOATS, (place + 1) * FLOATS]}
        for place, name in enumerate(bert_state())
    }


def stored(folder: Path, header: bytes, length: int | None = None, data: int | None = None) -> Path:
    """A safetensors file of a header, a length that may lie, and zeros (as a hole where they are many)."""
    path = with_config(folder, intermediate_size=8) / "model.safetensors"
    size = len(good_header()) * FLOATS if data is None else data
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header)
    os.truncate(path, 8 + len(header) + size)
    return path


def changed(**changes: Any) -> Callable[[Path], Path]:
    """The good header with the query's entry changed."""

    def write(folder: Path) -> Path:
        header = good_header()
        header[QUERY] |= changes
        return stored(folder, header_of(header))

    return write


def duplicates(folder: Path) -> Path:
    """One name twice, with different places: which is meant depends on who reads."""
    header = header_of(good_header())
    again = json.dumps({QUERY: {"dtype": "F32", "shape": [8, 8], "data_offsets": [0, FLOATS]}}).encode()
    return stored(folder, header[:-1] + b", " + again[1:])


def nested(folder: Path) -> Path:
    return stored(folder, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def gigabyte(folder: Path) -> Path:
    """A header of a gigabyte, a hole in the file."""
    path = with_config(folder) / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**30))
    os.truncate(path, 8 + 2**30)
    return path


def many(folder: Path) -> Path:
    """A million tensors without data: 60 MB of header."""
    entries = (f'"{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(1_000_000))
    return stored(folder, b"{" + ",".join(entries).encode() + b"}", data=0)


def claims(folder: Path) -> Path:
    """Terabytes, in a file that is as long as it says and yet empty: a hole."""
    size = 2**36
    header = {
        name: {"dtype": "F32", "shape": [2**17, 2**17], "data_offsets": [place * size, (place + 1) * size]}
        for place, name in enumerate(bert_state())
    }
    path = stored(folder, header_of(header), data=len(header) * size)
    config = {"model_type": "bert", "num_attention_heads": 2}
    (folder / "config.json").write_text(json.dumps(config))
    return path


def named(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        header = good_header()
        header[name] = header.pop(QUERY)
        return stored(folder, header_of(dict(sorted(header.items(), key=lambda e: e[1]["data_offsets"]))))

    return write


INCOMPLETE = "not a complete safetensors file"
SAFETENSORS = (
    Attack("length-2-63", lambda f: stored(f, b"{}", length=2**63), INCOMPLETE),
    Attack("length-max", lambda f: stored(f, b"{}", length=2**64 - 1), INCOMPLETE),
    Attack("length-past-end", lambda f: stored(f, b"{}", length=10**6, data=0), INCOMPLETE),
    Attack("header-gigabyte", gigabyte, INCOMPLETE),
    Attack("header-nested", nested, INCOMPLETE),
    Attack("header-many", many, INCOMPLETE),
    Attack("header-list", lambda f: stored(f, b"[1, 2]"), INCOMPLETE),
    Attack("header-not-text", lambda f: stored(f, b"{\xff\xfe}"), INCOMPLETE),
    Attack("header-metadata", lambda f: stored(f, b'{"__metadata__": {"a": [1]}}'), INCOMPLETE),
    Attack("header-empty", lambda f: stored(f, b"{}", data=0), "does not know this architecture"),
    Attack("duplicate-names", duplicates, INCOMPLETE),
    Attack("offsets-past-end", changed(data_offsets=[10**9, 10**9 + FLOATS]), INCOMPLETE),
    Attack("offsets-backwards", changed(data_offsets=[FLOATS, 0]), INCOMPLETE),
    Attack("offsets-negative", changed(data_offsets=[-FLOATS, 0]), INCOMPLETE),
    Attack("offsets-overlap", changed(data_offsets=[0, FLOATS]), INCOMPLETE),
    Attack("offsets-fraction", changed(data_offsets=[0.5, 1.5]), INCOMPLETE),
    Attack("offsets-three", changed(data_offsets=[0, 1, 2]), INCOMPLETE),
    Attack("shape-larger", changed(shape=[8, 9]), INCOMPLETE),
    Attack("shape-overflow", changed(shape=[2**32, 2**32, 2**32]), INCOMPLETE),
    Attack("shape-negative", changed(shape=[-8, -8]), INCOMPLETE),
    Attack("shape-true", changed(shape=[True, 8]), INCOMPLETE),
    Attack("dtype-other-size", changed(dtype="F64"), INCOMPLETE),
    Attack("dtype-unknown", changed(dtype="F1024"), INCOMPLETE),
    Attack("dtype-number", changed(dtype=3), INCOMPLETE),
    Attack("dtype-integers", changed(dtype="I32"), "int32"),
    Attack("claims-terabytes", claims, "does not fit into memory"),
    Attack("name-escapes", named("\x1b]0;owned\x07\x1b[2J\n\rnot a name\u202e"), "is missing"),
    Attack("name-markup", named("[bold red]<script>alert(1)</script>[/]"), "is missing"),
    Attack("name-long", named("a" * 5_000_000), "is missing"),
)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


ARCHITECTURE = text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")


def gguf(
    folder: Path, body: bytes = b"", tensors: int = 0, values: int = 0, hole: int = 0, version: int = 3
) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, tensors, values) + body)
    if hole:
        os.truncate(path, path.stat().st_size + hole)
    return path


def gguf_tensor(name: bytes, dims: list[int], code: int = 0, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + sizes + struct.pack("<IQ", code, offset)


def one_tensor(*arguments: Any) -> Callable[[Path], Path]:
    return lambda folder: gguf(folder, ARCHITECTURE + gguf_tensor(*arguments), tensors=1, values=1, hole=64)


def one_value(key: bytes, kind: int, value: bytes) -> Callable[[Path], Path]:
    body = ARCHITECTURE + text(key) + struct.pack("<I", kind) + value
    return lambda folder: gguf(folder, body, values=2, hole=64)


ARRAY, TEXTS, NUMBERS = 9, struct.pack("<IQ", 8, 2**60), struct.pack("<IQ", 4, 2**62)
WRONG = "not a complete GGUF file"
PAST = "past the end of the file"
GGUF = (
    Attack("gguf-counts", lambda f: gguf(f, tensors=2**64 - 1, values=2**64 - 1), WRONG),
    Attack("gguf-counts-hole", lambda f: gguf(f, values=2**63, hole=10**11), WRONG),
    Attack("gguf-tensors-hole", lambda f: gguf(f, tensors=2**63, hole=10**11), WRONG),
    Attack("gguf-many", lambda f: gguf(f, gguf_tensor(b"t", [0]) * 1_900_000, tensors=1_900_000), WRONG),
    Attack("gguf-many-values", lambda f: gguf(f, values=4_000_000, hole=2**26), WRONG),
    Attack("gguf-version", lambda f: gguf(f, version=10**6), WRONG),
    Attack("gguf-text-length", lambda f: gguf(f, struct.pack("<Q", 2**63), values=1, hole=99), WRONG),
    Attack("gguf-array-length", one_value(b"a", ARRAY, NUMBERS), WRONG),
    Attack("gguf-array-texts", one_value(b"a", ARRAY, TEXTS), WRONG),
    Attack(
        "gguf-texts-hole",
        lambda f: gguf(f, text(b"a") + struct.pack("<I", ARRAY) + TEXTS, values=1, hole=10**11),
        WRONG,
    ),
    Attack("gguf-array-nested", one_value(b"a", ARRAY, struct.pack("<IQ", 9, 2**60)), WRONG),
    Attack("gguf-type", one_value(b"a", 77, b""), WRONG),
    Attack("gguf-alignment", one_value(b"general.alignment", 4, struct.pack("<I", 0)), WRONG),
    Attack("gguf-dims", one_tensor(b"t", [2**63, 2**63, 2**63, 2**63]), PAST),
    Attack("gguf-dims-zero", one_tensor(b"t", [0, 2**63]), "does not know this architecture"),
    Attack(
        "gguf-dims-count",
        lambda f: gguf(f, text(b"t") + struct.pack("<I", 2**32 - 1), tensors=1, hole=10**11),
        WRONG,
    ),
    Attack("gguf-offset", one_tensor(b"t", [4], 0, 2**63), PAST),
    Attack("gguf-code", one_tensor(b"t", [4], 999), "has type 999, which this gguf package does not know"),
    Attack("gguf-block", one_tensor(b"t", [5], 2), "not whole blocks"),
    Attack("gguf-name", one_tensor(b"\x1b[2J\nblk.0.\xff", [4]), "does not know this architecture"),
    Attack("gguf-name-twice", lambda f: gguf(f, gguf_tensor(b"t", [4]) * 2, tensors=2, hole=64), WRONG),
    Attack("gguf-key-twice", one_value(b"general.architecture", 8, text(b"gpt2")), "occurs twice"),
    Attack(
        "gguf-overlap",
        lambda f: gguf(f, gguf_tensor(b"a", [8]) + gguf_tensor(b"b", [8], 0, 16), tensors=2, hole=128),
        "tensors a and b overlap",
    ),
    Attack("gguf-heads", one_value(b"llama.attention.head_count", 6, struct.pack("<f", float("nan"))), ""),
)
