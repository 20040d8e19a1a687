"""Read GGUF files, the format of llama.cpp. The package `gguf` decodes the tensors.

The layout is little-endian: magic `GGUF`, version (u32), the number of tensors and of values (u64 each).
Every value is a key, a type (u32) and its bytes. Every tensor is a name, its dimensions (fastest first), a
type and an offset into the data, which start at the next multiple of `general.alignment`. Texts have a length
(u64). The reader of the `gguf` package would keep every token of the vocabulary as arrays.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.tensors import Tensors, UnchangedFile
from attnlaw.core.errors import InputError, as_input_error

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
MOST_ARRAY_ENTRIES = 4096  # longer arrays belong to the tokenizer
MOST = 2**26  # the most bytes in a header; the largest vocabularies need 20 MB
MOST_DIMENSIONS, MOST_TEXTS = 8, 2**22
AT_ONCE = 2**18  # the number of weights that are decoded at a time: they stay in the processor's cache
SPLIT = ("no", "count", "tensors.count")  # what a part's header states, after `split.`
MOST_ENTRIES = 10**5  # tensors, and values; the largest models have thousands
# Types that numpy can read; all others are decoded to float32.
NUMPY_TYPES: dict[str, Any] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}
# Keys of a GGUF header after the architecture's name, and those of config.json for the same size.
SIZES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "rope.dimension_count": "rotary_dim",
    "rope.freq_base": "rope_theta",
    "expert_count": "num_experts",
    "expert_weights_scale": "routed_scaling_factor",
}
# llama.cpp fixes the activation in the code of each architecture.
ACTIVATIONS = {
    **dict.fromkeys(("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe"), "silu"),
    **dict.fromkeys(("gemma", "gemma2", "gemma3"), "gelu_pytorch_tanh"),
    "gpt2": "gelu_new",
    "bert": "gelu",
}


@dataclass(frozen=True)
class Entry:
    """One tensor: its shape in numpy's order, the code of its type, and its offset in the file."""

    shape: tuple[int, ...]
    code: int
    offset: int


Header = tuple[dict[str, Any], dict[str, Entry]]  # values by key, tensors by name


def read_header(data: Any) -> Header:
    """Parse the header of a mapped file. Raise `ValueError` or `struct.error` if the header is damaged."""
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
        if key in metadata:
            raise ValueError(f"the value {key} occurs twice")
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
        raise ValueError("two tensors have the same name")
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    return metadata, {name: Entry(shape, code, start + at) for name, shape, code, at in entries}


class _Cursor:
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
        """Return a text that is not empty, because zeros would be read as an endless list of empty names."""
        text = self.text()
        if not text:
            raise ValueError("a value or a tensor has no name")
        return text

    def skip(self, count: int) -> None:
        if count > len(self.data) - self.at:
            raise ValueError("a text or an array is longer than the file")
        self.at += count

    def value(self, kind: int) -> Any:
        """Return a number, a text or a short list of numbers, or None for other arrays."""
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
                raise ValueError(f"it has an array of {count} texts, which is too long")
            for _ in range(count):
                self.skip(self.scalar("Q"))
            return None
        if kind not in SCALARS:
            raise ValueError(f"an array has the unknown type {kind}")
        if count > MOST_ARRAY_ENTRIES:
            self.skip(count * struct.calcsize(SCALARS[kind]))
            return None
        return [self.scalar(SCALARS[kind]) for _ in range(count)]


class GgufFile(Tensors):
    """The tensors of one `.gguf` file. `split` says which part of a model the file contains."""

    def __init__(self, path: Path) -> None:
        import gguf

        self._gguf = gguf
        self.source = str(path)
        self._file = UnchangedFile(path)
        what, window = f"{path}: this is not a complete GGUF file", min(path.stat().st_size, MOST)
        with (
            as_input_error(what, "copy or download it again", ValueError, struct.error),
            path.open("rb") as file,
            mmap.mmap(file.fileno(), window, access=mmap.ACCESS_READ) as data,
        ):
            values, self._entries = read_header(data)
        self.metadata = _sizes(values)
        self.shapes = {name: entry.shape for name, entry in self._entries.items()}
        self.split = {key: values[f"split.{key}"] for key in SPLIT if f"split.{key}" in values}
        end, before = 0, ""
        for name, entry in sorted(self._entries.items(), key=lambda item: item[1].offset):
            size = self._bytes(name, entry.shape)
            self._file.require_inside(entry.offset, size, name)
            if entry.offset < end:
                raise InputError(
                    f"{path}: tensors {before} and {name} overlap in the file, so it is damaged; copy or "
                    "download the file again"
                )
            end, before = entry.offset + size, name

    def dtype(self, name: str) -> str:
        code = self._type(name)
        return np.dtype(NUMPY_TYPES[code.name]).name if code.name in NUMPY_TYPES else str(code.name)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        entry = self._entries[name]
        shape, offset = entry.shape, entry.offset
        if member is not None:
            shape = shape[1:]
            offset += member * self._bytes(name, shape)
        return self._decoded(self._file.read(offset, self._bytes(name, shape), name), name, shape)

    def _decoded(self, stored: NDArray[np.uint8], name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        code = self._type(name)
        if code.name in NUMPY_TYPES:
            plain: NDArray[Any] = stored.view(NUMPY_TYPES[code.name]).reshape(shape)
            return plain
        block, size = self._gguf.GGML_QUANT_SIZES[code]
        blocks, step = stored.reshape(-1, size), max(AT_ONCE // block, 1)
        decoded: NDArray[Any] = np.empty((len(blocks), block), np.float32)
        what = f"{self.source}: tensor {name} is stored as {code.name}, which the gguf package cannot decode"
        remedy = "use a file with another quantisation, or the original weights"
        with as_input_error(what, remedy, NotImplementedError, with_reason=False):
            for at in range(0, len(blocks), step):
                row = blocks[at : at + step].reshape(1, -1)
                decoded[at : at + step] = self._gguf.quants.dequantize(row, code).reshape(-1, block)
        return decoded.reshape(shape)

    def _type(self, name: str) -> Any:
        code = self._entries[name].code
        what = f"{self.source}: tensor {name} has type {code}, which this gguf package does not know"
        with as_input_error(what, "update the gguf package", ValueError, with_reason=False):
            return self._gguf.GGMLQuantizationType(code)

    def _bytes(self, name: str, shape: tuple[int, ...]) -> int:
        block, size = self._gguf.GGML_QUANT_SIZES[self._type(name)]
        if shape and shape[-1] % block:
            raise self.error(
                f"tensor {name} has rows of {shape[-1]}, not whole blocks of {block}; copy or download the "
                "file again"
            )
        return int(prod(shape) // block * size)


def _sizes(values: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes in a header under config.json's names. A list of equal numbers becomes one number."""
    architecture = values.get("general.architecture")
    sizes: dict[str, Any] = {"model_type": architecture, "hidden_act": ACTIVATIONS.get(str(architecture))}
    for key, name in SIZES.items():
        value = values.get(f"{architecture}.{key}")
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if value:
            sizes[name] = value
    return {name: value for name, value in sizes.items() if value is not None}
