"""A state dict, or any mapping of names to arrays, already in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from attnlaw.base.errors import InputError
from attnlaw.models.formats.torch_file import as_numpy, is_tensor
from attnlaw.models.tensors import Tensors


class InMemory(Tensors):
    """Tensors of a mapping; nothing is copied until a tensor is read."""

    def __init__(self, tensors: Mapping[str, Any], source: str = "state dict") -> None:
        self.source = source
        self.metadata = {}
        self._tensors = {str(name): value for name, value in tensors.items() if is_tensor(value)}
        if not self._tensors:
            raise InputError(f"{source}: holds no tensors; pass model.state_dict()")
        self.shapes = {name: tuple(value.shape) for name, value in self._tensors.items()}

    def dtype(self, name: str) -> str:
        return str(self._tensors[name].dtype).removeprefix("torch.")

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        tensor = self._tensors[name]
        return as_numpy(tensor if member is None else tensor[member], self.source, name)
