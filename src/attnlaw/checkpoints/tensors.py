"""Named tensors that are read one at a time, the interface between file formats and families.

`UnchangedFile` makes sure that a file, opened again for each tensor, is the one whose header was read. A
training job saves its next step by renaming a new file over the old one.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attnlaw.core.errors import InputError, as_input_error
from attnlaw.core.files import require_regular_file

NARROW = {
    name: getattr(ml_dtypes, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
}
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Tensors(ABC):
    """Named tensors on disk or in memory.

    Attributes:
        source: the name of the file or object in messages.
        shapes: the shape of each tensor by name, known without reading any tensor.
        metadata: plain values stored with the tensors, such as sizes of the model.
        texts: the texts in the header of a safetensors file, which say how some tensors are coded.
        remarks: sentences for the user about tensors that config.json and the file describe differently.
    """

    source: str
    shapes: Mapping[str, tuple[int, ...]]
    metadata: Mapping[str, Any]
    texts: Mapping[str, str] = NOTHING
    remarks: tuple[str, ...] = ()

    @abstractmethod
    def dtype(self, name: str) -> str:
        """Return numpy's name of the stored type (`bfloat16`), or that of a code that numpy does not have."""

    @abstractmethod
    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        """Return a tensor, or only one `member` along its first axis, in its stored type.

        If numpy has no such type, the array contains decoded numbers. Threads may call this method at the
        same time.
        """

    def error(self, problem: str) -> InputError:
        """Return the error about a problem of these tensors, in a message that begins with their source."""
        return InputError(f"{self.source}: {problem}")

    def prefetch(self, name: str, member: int | None = None) -> None:  # noqa: B027  (a hint, which few can use)
        """Announce that a tensor will soon be read."""


class InMemoryTensors(Tensors):
    """The tensors of a mapping such as a state dict. A tensor is copied only when it is read."""

    def __init__(self, tensors: Mapping[str, Any], source: str = "state dict") -> None:
        self.source = source
        self.metadata = {}
        named = ((str(name), value) for name, value in tensors.items())
        self._tensors = {
            name: value for name, value in named if hasattr(value, "shape") and hasattr(value, "dtype")
        }
        if not self._tensors:
            raise InputError(f"{source}: found no tensors; pass model.state_dict()")
        self.shapes = {name: tuple(value.shape) for name, value in self._tensors.items()}

    def dtype(self, name: str) -> str:
        return str(self._tensors[name].dtype).removeprefix("torch.")

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        tensor = self._tensors[name]
        return as_numpy(tensor if member is None else tensor[member], self.source, name)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def require_real(array: NDArray[Any], source: str, name: str) -> NDArray[Any]:
    """Return the array if it has floating-point numbers, because spectra of codes mean nothing."""
    kind = array.dtype.name
    if np.issubdtype(array.dtype, np.floating) or kind.startswith(("bfloat", "float8")):
        return array
    expected = "expected floating-point weights; dequantise the checkpoint first"
    raise InputError(f"{source}: tensor {name} holds {kind}, {expected}")


class NotFiniteError(InputError):
    """An error about a stored tensor, `entries` of which are NaN or infinite or make a result so."""

    def __init__(self, message: str, tensor: str = "", entries: int = 0) -> None:
        super().__init__(message)
        self.tensor, self.entries = tensor, entries


def require_finite(array: NDArray[Any], source: str, name: str, remedy: str) -> None:
    """Raise a `NotFiniteError` if a tensor has NaN or infinite entries."""
    finite = np.isfinite(array)
    if not finite.all():
        message = f"{source}: tensor {name} has NaN or infinite entries; {remedy}"
        raise NotFiniteError(message, name, int(array.size - np.count_nonzero(finite)))


def as_numpy(tensor: Any, source: str, name: str) -> NDArray[Any]:
    """Return a torch tensor (or an array) as a numpy array of the same precision, bfloat16 included."""
    if not hasattr(tensor, "detach"):
        return np.asarray(tensor)
    dtype = str(tensor.dtype).removeprefix("torch.")
    kind = f"{dtype}, {tensor.layout}, on {tensor.device}"
    what = f"{source}: tensor {name} ({kind}) is not a plain array of weights"
    remedy = "dequantise it first, or load it to the CPU"
    with as_input_error(what, remedy, TypeError, RuntimeError, with_reason=False):
        tensor = tensor.detach().cpu()
        if dtype in NARROW:
            import torch

            bits = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
            array: NDArray[Any] = bits.view(NARROW[dtype]).reshape(tensor.shape)
        else:
            array = tensor.numpy()
    return array


# What torch puts into the names of modules that are compiled, recomputed or sharded.
WRAPPERS = re.compile(r"(?<![^.])(_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.")


class GatheredTensors(Tensors):
    """Tensors that others have, perhaps under other names: `places` has the owner and the name there."""

    shapes: dict[str, tuple[int, ...]]

    def __init__(
        self, source: str, places: Mapping[str, tuple[Tensors, str]], metadata: Mapping[str, Any] = NOTHING
    ) -> None:
        self.source, self.metadata = source, metadata
        self.shapes: dict[str, tuple[int, ...]] = {
            name: owner.shapes[stored] for name, (owner, stored) in places.items()
        }
        self._places = places

    def dtype(self, name: str) -> str:
        owner, stored = self._places[name]
        return owner.dtype(stored)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        owner, stored = self._places[name]
        return owner.read(stored, member)

    def prefetch(self, name: str, member: int | None = None) -> None:
        owner, stored = self._places[name]
        owner.prefetch(stored, member)


def without_wrappers(tensors: Tensors) -> Tensors:
    """Return the tensors without the parts of their names that wrappers of torch put there."""
    names: dict[str, str] = {}
    for stored in tensors.shapes:
        name = WRAPPERS.sub("", stored)
        if (other := names.setdefault(name, stored)) != stored:
            raise tensors.error(
                f"tensors {other} and {stored} have the same name once prefixes of wrappers, such as module, "
                "are removed; remove one of the two"
            )
    if not any(map(WRAPPERS.search, tensors.shapes)):
        return tensors
    places = {name: (tensors, stored) for name, stored in names.items()}
    renamed = GatheredTensors(tensors.source, places, tensors.metadata)
    renamed.texts, renamed.remarks = tensors.texts, tensors.remarks
    return renamed


class UnchangedFile:
    """A file that must not change between reads. Create this object before you read the header."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._reading():
            status = path.stat()
        require_regular_file(path)
        self._state, self.size = _state(status), status.st_size

    def read(self, offset: int, count: int, name: str) -> NDArray[np.uint8]:
        """Return `count` bytes from `offset` on, of the tensor `name`. The file must not have changed."""
        self.require_inside(offset, count, name)
        with self._reading(), self._path.open("rb") as file:
            file.seek(offset)
            data = np.fromfile(file, dtype=np.uint8, count=count)
            state = _state(os.fstat(file.fileno()))  # after the bytes, which may change until then
        if state != self._state or data.size != count:
            raise InputError(
                f"{self._path}: this file changed while attnlaw read it; run the command again when the "
                "file is complete"
            )
        return data

    def require_inside(self, offset: int, count: int, name: str) -> None:
        if offset + count > self.size:
            raise InputError(
                f"{self._path}: tensor {name} reaches past the end of the file; copy or download it again"
            )

    def prefetch(self, offset: int, count: int) -> None:
        """Ask the operating system to read bytes into its cache ahead of time, if it supports this."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError), self._path.open("rb") as file:
                os.posix_fadvise(file.fileno(), offset, count, os.POSIX_FADV_WILLNEED)

    def _reading(self) -> AbstractContextManager[None]:
        return as_input_error(f"{self._path}: cannot be read", "do not move it while attnlaw reads it")


def _state(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
