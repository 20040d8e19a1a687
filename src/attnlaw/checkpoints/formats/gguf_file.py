"""GGUF, the files of llama.cpp: sizes from the header, tensors decoded one at a time by package `gguf`."""

from __future__ import annotations

import mmap
import struct
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.formats.gguf_header import MOST, Header, read_header
from attnlaw.checkpoints.formats.unchanged import UnchangedFile
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError

# Types that numpy reads as they are; all others are decoded to float32.
NUMPY_TYPES: dict[str, Any] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}
# Keys of a GGUF header under the architecture's name, and the same size in a config.json.
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
    "llama": "silu",
    "qwen2": "silu",
    "qwen2moe": "silu",
    "qwen3": "silu",
    "qwen3moe": "silu",
    "gemma": "gelu_pytorch_tanh",
    "gemma2": "gelu_pytorch_tanh",
    "gemma3": "gelu_pytorch_tanh",
    "gpt2": "gelu_new",
    "bert": "gelu",
}


class GgufFile(Tensors):
    """The tensors of one `.gguf` file; `metadata` has its sizes under the names of config.json."""

    def __init__(self, path: Path) -> None:
        import gguf

        self._gguf = gguf
        self.source = str(path)
        self._file = UnchangedFile(path)
        header = _header(path)
        self._entries = header.tensors
        self.metadata = _sizes(header.values)
        self.shapes = {name: entry.shape for name, entry in header.tensors.items()}
        if (parts := header.values.get("split.count")) not in (None, 0, 1):
            raise InputError(
                f"{path}: one of {parts} parts of a split model; join them first (llama-gguf-split --merge)"
            )
        for name, entry in self._entries.items():
            if entry.offset + self._bytes(name, entry.shape) > self._file.size:
                raise InputError(
                    f"{path}: tensor {name} lies past the end of the file; copy or download it again"
                )

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
        rows = stored.reshape(*shape[:-1], -1)
        try:
            decoded: NDArray[Any] = self._gguf.quants.dequantize(rows, code)
        except NotImplementedError as error:
            raise InputError(
                f"{self.source}: tensor {name} is stored as {code.name}, which the gguf package cannot "
                "decode; use another quantisation, or the original weights"
            ) from error
        return decoded

    def _type(self, name: str) -> Any:
        code = self._entries[name].code
        try:
            return self._gguf.GGMLQuantizationType(code)
        except ValueError as error:
            raise InputError(
                f"{self.source}: tensor {name} has the unknown type {code}; update the gguf package"
            ) from error

    def _bytes(self, name: str, shape: tuple[int, ...]) -> int:
        block, size = self._gguf.GGML_QUANT_SIZES[self._type(name)]
        if shape and shape[-1] % block:
            raise InputError(
                f"{self.source}: tensor {name} has rows of {shape[-1]}, not whole blocks of {block}; "
                "copy or download the file again"
            )
        return int(prod(shape) // block * size)


def _header(path: Path) -> Header:
    try:
        window = min(path.stat().st_size, MOST)
        with path.open("rb") as file, mmap.mmap(file.fileno(), window, access=mmap.ACCESS_READ) as data:
            return read_header(data)
    except (ValueError, struct.error) as error:
        raise InputError(f"{path}: not a complete GGUF file ({error}); copy or download it again") from error


def _sizes(values: dict[str, Any]) -> dict[str, Any]:
    """The sizes under config.json's names; a list that repeats one number is that number."""
    architecture = values.get("general.architecture")
    sizes: dict[str, Any] = {"model_type": architecture, "hidden_act": ACTIVATIONS.get(str(architecture))}
    for key, name in SIZES.items():
        value = values.get(f"{architecture}.{key}")
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if value:
            sizes[name] = value
    return {name: value for name, value in sizes.items() if value is not None}
