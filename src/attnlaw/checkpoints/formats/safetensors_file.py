"""Read safetensors files. The library checks the header, then each tensor is read by its offsets.

The file is not kept mapped, because pages of a memory map count as memory of the process.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from attnlaw.checkpoints.tensors import Tensors, UnchangedFile
from attnlaw.core.errors import InputError
from attnlaw.core.files import distinct_keys

DTYPES: dict[str, Any] = {
    **{f"F{bits}": np.dtype(f"float{bits}") for bits in (64, 32, 16)},
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    **{f"I{bits}": np.dtype(f"int{bits}") for bits in (64, 32, 16, 8)},
    **{f"U{bits}": np.dtype(f"uint{bits}") for bits in (64, 32, 16, 8)},
    "BOOL": np.bool_,
}
# A header of this size names 300000 tensors; the library itself would accept 100 MB.
MOST_HEADER = 2**25


class SafetensorsFile(Tensors):
    """The tensors of one `.safetensors` file."""

    def __init__(self, path: Path) -> None:
        self.source = str(path)
        self.metadata = {}
        self._file = UnchangedFile(path)
        self._header, self._start = _header(path)
        self.texts = self._header.pop("__metadata__", {})
        self.shapes = {name: tuple(entry["shape"]) for name, entry in self._header.items()}

    def dtype(self, name: str) -> str:
        code = self._header[name]["dtype"]
        return np.dtype(DTYPES[code]).name if code in DTYPES else str(code)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        entry = self._header[name]
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            raise self.error(
                f"tensor {name} has dtype {entry['dtype']}, which is not supported; convert it to one of "
                f"{', '.join(DTYPES)}"
            )
        tensor: NDArray[Any] = self._file.read(*self._byte_range(name, member), name).view(dtype)
        return tensor.reshape(entry["shape"] if member is None else entry["shape"][1:])

    def prefetch(self, name: str, member: int | None = None) -> None:
        self._file.prefetch(*self._byte_range(name, member))

    def _byte_range(self, name: str, member: int | None) -> tuple[int, int]:
        begin, end = self._header[name]["data_offsets"]
        if member is None:
            return self._start + begin, end - begin
        size = (end - begin) // self._header[name]["shape"][0]
        return self._start + begin + member * size, size


def is_safetensors(data: bytes) -> bool:
    """Return whether the first bytes of a file can be those of a safetensors file."""
    return data[8:9] == b"{" and int.from_bytes(data[:8], "little") <= MOST_HEADER


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header, whose offsets `safe_open` checks, and the offset at which the data start."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MOST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            with safe_open(path, framework="np"):
                pass
            header = json.loads(file.read(length), object_pairs_hook=distinct_keys)
    except (SafetensorError, OSError, ValueError, struct.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # permissions, not damage
        if "os error 12" in str(error):
            raise MemoryError from error  # older versions map the whole file, which a memory limit may forbid
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path}: this is not a complete safetensors file ({reason}); copy or download it again"
        ) from error
    return header, 8 + length
