"""A set of named tensors, read one at a time: what every format offers and every family consumes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.base.errors import InputError


class Tensors(ABC):
    """Named tensors on disk or in memory.

    `source` names the file or object in messages; `shapes` is known without reading any tensor;
    `metadata` holds plain values stored beside the tensors (sizes, for formats that carry them).
    """

    source: str
    shapes: Mapping[str, tuple[int, ...]]
    metadata: Mapping[str, Any]

    @abstractmethod
    def dtype(self, name: str) -> str:
        """How the tensor is stored, by numpy's name (`float32`, `bfloat16`, `float8_e4m3fn`) or a code's."""

    @abstractmethod
    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        """The tensor, or one member along its first axis; safe to call from threads.

        As stored (any real dtype, float8 and bfloat16 included), or decoded where numpy has no such type.
        """


def require_real(array: NDArray[Any], source: str, name: str) -> NDArray[Any]:
    """The array itself if it holds real floating-point numbers, else an `InputError`.

    Integers in the place of a weight are quantised codes, whose spectrum would be a wrong number.
    """
    if np.issubdtype(array.dtype, np.floating) or array.dtype.name.startswith(("bfloat", "float8")):
        return array
    raise InputError(
        f"{source}: tensor {name} holds {array.dtype.name}, expected floating-point weights; "
        "a quantised checkpoint must be dequantised first"
    )
