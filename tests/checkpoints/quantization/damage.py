"""Ways to damage a fixture: its tensors, its config.json, its header, and its bytes.

Every damage must end in one line, or in the right numbers if shapes decide.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from checkpoints.quantization.fixtures import FOLDER

CONFIGS = ("config.json", "quantize_config.json", "hf_quant_config.json", "quantization_config.json")
TABLES = ("quantization_config", "quantization")
KINDS = {"I32": ("U32", "F32"), "U32": ("I32",), "U8": ("I8",), "I8": ("U8",), "F8_E4M3": ("U8",)}


@dataclass
class Checkpoint:
    """A safetensors checkpoint in memory: each tensor is its dtype, shape and bytes."""

    tensors: dict[str, tuple[str, list[int], bytes]]
    texts: dict[str, str]
    configs: dict[str, Any]

    @classmethod
    def load(cls, name: str) -> Checkpoint:
        data = (FOLDER / name / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        texts = header.pop("__metadata__", {})
        body = data[8 + length :]
        tensors = {
            key: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for key, entry in header.items()
        }
        paths = [FOLDER / name / config for config in CONFIGS]
        return cls(
            tensors, texts, {path.name: json.loads(path.read_text()) for path in paths if path.exists()}
        )

    def save(self, folder: Path) -> None:
        header: dict[str, Any] = {"__metadata__": self.texts} if self.texts else {}
        body = b""
        for key, (dtype, shape, data) in self.tensors.items():
            header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
            body += data
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
        for config in CONFIGS:
            (folder / config).unlink(missing_ok=True)
        for config, values in self.configs.items():
            (folder / config).write_text(json.dumps(values))


def damages(name: str) -> Iterator[tuple[str, Checkpoint]]:
    """Yield damaged copies of a fixture, each with a description."""
    whole = Checkpoint.load(name)
    for key, what, tensor in _tensor_damages(whole):
        other = copy.copy(whole)
        other.tensors = dict(whole.tensors)
        if tensor is not None:
            other.tensors[key] = tensor
        elif what == "dropped":
            del other.tensors[key]
        else:
            other.tensors = {what if old == key else old: value for old, value in whole.tensors.items()}
        yield f"{key}: {what}", other
    for what, configs in _config_damages(whole.configs):
        other = copy.copy(whole)
        other.configs = configs
        yield what, other
    for what, texts in _text_damages(whole.texts):
        other = copy.copy(whole)
        other.texts = texts
        yield what, other


def _tensor_damages(whole: Checkpoint) -> Iterator[tuple[str, str, Any]]:
    for key, (dtype, shape, data) in whole.tensors.items():
        if not any(part in key for part in ("q_proj", "down_proj")) or "experts.1" in key:
            continue
        yield key, "dropped", None
        for old, new in (("scale", "skale"), ("zero", "null"), ("qweight", "weight"), ("_proj.", "_proj.x.")):
            if old in key:
                yield key, key.replace(old, new), None
        if "scale" in key:
            yield key, key.replace("k_proj" if "k_proj" in key else "q_proj", "z_proj") + "_more", None
        count = int(np.prod(shape))
        size = len(data) // max(count, 1)
        for axis, length in enumerate(shape):
            for new in {length - 1, length // 2, length + 1, 2 * length} - {length}:
                fewer = [*shape[:axis], new, *shape[axis + 1 :]]
                wanted = int(np.prod(fewer)) * size
                yield (
                    key,
                    f"shape {shape} -> {fewer}",
                    (dtype, fewer, (data * 3)[:wanted].ljust(wanted, b"\1")),
                )
        if len(shape) == 2 and shape[0] != shape[1]:
            yield key, "axes swapped", (dtype, shape[::-1], data)
        if len(shape) > 1:
            yield key, "flattened", (dtype, [count], data)
        yield key, "one more axis", (dtype, [1, *shape], data)
        yield key, "one more axis at the end", (dtype, [*shape, 1], data)
        for kind in KINDS.get(dtype, ()):
            yield key, f"{dtype} -> {kind}", (kind, shape, data)
        if dtype in ("F32", "F16", "BF16", "F8_E4M3"):
            nan = {"F32": b"\0\0\xc0\x7f", "F16": b"\0\x7e", "BF16": b"\xc0\x7f", "F8_E4M3": b"\x7f"}[dtype]
            yield key, "a NaN", (dtype, shape, nan + data[len(nan) :])
        if dtype in ("I32", "I64") and key.endswith(("g_idx", "shape")):
            for number in (-1, 0, 1, 10**6, 2**31 - 1):
                word = struct.pack("<i" if dtype == "I32" else "<q", number)
                yield key, f"begins with {number}", (dtype, shape, word + data[len(word) :])


def _config_damages(configs: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for file, values in configs.items():
        yield f"{file}: removed", {other: copy for other, copy in configs.items() if other != file}
        tables = [key for key in TABLES if key in values] or ([None] if file != "config.json" else [])
        for table in tables:
            if table is not None:
                yield (
                    f"{file}: no {table}",
                    configs | {file: {key: value for key, value in values.items() if key != table}},
                )
            for path in _paths(values[table] if table else values):
                full = (table, *path) if table else path
                for what, changed in _changed(_at(values, full)):
                    spoiled = copy.deepcopy(values)
                    holder = _at(spoiled, full[:-1])
                    if what == "removed" and isinstance(holder, dict):
                        del holder[full[-1]]
                    elif what != "removed":
                        holder[full[-1]] = changed
                    yield f"{file}: {'.'.join(map(str, full))} {what}", configs | {file: spoiled}


def _paths(value: Any, start: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if start:
        yield start
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from _paths(inner, (*start, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _changed(value: Any) -> Iterator[tuple[str, Any]]:
    yield "removed", None
    if isinstance(value, bool):
        yield f"-> {not value}", not value
    elif isinstance(value, int | float):
        for other in (
            0,
            -1,
            1,
            2,
            3,
            8,
            value // 2,
            2 * value,
            value + 1,
            16,
            64,
            2**70,
            0.5,
            "4",
            None,
            [4],
        ):
            yield f"-> {other!r}", other
    elif isinstance(value, str):
        for other in ("other", "", 7, None, value.upper()):
            yield f"-> {other!r}", other
    else:
        yield "-> None", None
        yield "-> 7", 7


def _text_damages(texts: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Damages of the JSON texts that torchao has in the header."""
    if "tensor_names" not in texts:
        return
    yield "no texts", {}
    key = next(key for key in texts if "q_proj" in key)
    yield f"{key}: no text", {other: text for other, text in texts.items() if other != key}
    yield f"{key}: not JSON", texts | {key: texts[key][:-1]}
    yield f"{key}: nested", texts | {key: '{"_tensor_data_names": ' + "[" * 5000}
    stated = json.loads(texts[key])
    for path in _paths(stated):
        for what, changed in _changed(_at(stated, path)):
            spoiled = copy.deepcopy(stated)
            holder = _at(spoiled, path[:-1])
            if what == "removed" and isinstance(holder, dict):
                del holder[path[-1]]
            elif what != "removed":
                holder[path[-1]] = changed
            yield f"{key}: {'.'.join(map(str, path))} {what}", texts | {key: json.dumps(spoiled)}
