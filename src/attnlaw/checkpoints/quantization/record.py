"""A weight that is stored in a code, and what all codes need to find and check its parts.

Each file of this folder has one code, or several that share a layout, and a function `find(file)`. It looks
at names, shapes, dtypes and the config, reads at most small tensors, and yields one `CodedWeight` for each
weight. It checks that each part has exactly its shape, so that nothing is broadcast and no array is allocated
by an unchecked number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization.packing import Weights
from attnlaw.checkpoints.tensors import Tensors, require_finite, require_real
from attnlaw.core.arrays import as_float
from attnlaw.core.errors import InputError

DAMAGED = "download the file again, or use the original weights"


@dataclass(frozen=True)
class CodedWeight:
    """A weight that is stored in a code."""

    name: str  # the plain name, as families look for it
    shape: tuple[int, ...]  # of the decoded weight: a matrix, or a stack of matrices of experts
    parts: tuple[str, ...]  # all stored tensors that belong to it, which disappear from those of the model
    label: str  # the code in words, such as "GPTQ 4-bit, groups of 128"; its first number is that of the bits
    decode: Callable[[Parts], Weights]  # returns one matrix of the weight
    remark: str = ""  # a sentence for the user if config.json and the file disagree

    def read(self, tensors: Tensors, member: int | None = None) -> Weights:
        """Return the decoded weight, or only one `member` along its first axis."""
        if len(self.shape) < 3:
            matrix = self._matrix(tensors, None)
            return matrix if member is None else matrix[member]
        if member is not None:
            return self._matrix(tensors, member)
        stack = np.empty(self.shape, np.float32)
        for number in range(len(stack)):
            stack[number] = self._matrix(tensors, number)
        return stack

    def _matrix(self, tensors: Tensors, member: int | None) -> Weights:
        matrix = self.decode(Parts(tensors, member))
        expected = self.shape if member is None else self.shape[1:]
        assert matrix.shape == expected, f"{self.name}: decoded {matrix.shape}, declared {expected}"
        return matrix


def as_float32(stored: NDArray[Any]) -> Weights:
    """Return numbers in a C-contiguous float32 array."""
    return stored.astype(np.float32, order="C")


@dataclass(frozen=True, eq=False)
class Rows:
    """Scales that are converted to float32 a few rows at a time, to save memory, and must be finite."""

    stored: NDArray[Any]
    convert: Callable[[NDArray[Any]], Weights]
    source: str
    name: str

    def __getitem__(self, rows: slice) -> Weights:
        numbers = self.convert(self.stored[rows])
        require_finite(numbers, self.source, self.name, DAMAGED)
        return numbers


@dataclass(frozen=True)
class Parts:
    """Stored tensors of one coded matrix, which may be one `member` of a stack."""

    tensors: Tensors
    member: int | None = None

    def read(self, name: str, shared: bool = False) -> NDArray[Any]:
        """Return the member's share of a part, or all of it if it is `shared`, as the file stores it."""
        return self.tensors.read(name, None if shared else self.member)

    def numbers(self, name: str, shared: bool = False) -> Weights:
        """Return a part of floating-point numbers as float32, all of them finite."""
        stored = require_real(self.read(name, shared), self.tensors.source, name)
        numbers = as_float(stored, np.float32)
        require_finite(numbers, self.tensors.source, name, DAMAGED)
        return numbers

    def rows(
        self, name: str, convert: Callable[[NDArray[Any]], Weights] = as_float32, transposed: bool = False
    ) -> Rows:
        """Return a part whose rows, or columns if `transposed`, are converted on demand."""
        stored = self.read(name)
        return Rows(stored.T if transposed else stored, convert, self.tensors.source, name)


@dataclass(frozen=True)
class CodedFile:
    """The stored tensors of a checkpoint and its config, with the checks that all codes need."""

    tensors: Tensors
    config: Config

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.tensors.shapes

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The table `quantization_config` of config.json, or an empty table."""
        declared = self.config.values.get("quantization_config", self.config.values.get("compression_config"))
        return declared if isinstance(declared, dict) else {}

    @property
    def method(self) -> str:
        """The `quant_method` in lower case, or an empty text if config.json does not name a method."""
        method = self.settings.get("quant_method")
        return method.lower() if isinstance(method, str) else ""

    @property
    def stated_group_size(self) -> int | None:
        """The group size that the config states, or None if it states no size or a single group."""
        size = self.whole_number("group_size", "q_group_size")
        return size if size and size > 0 else None

    def whole_number(self, *keys: str) -> int | None:
        """Return the first of the `settings` with these keys that is an integer, or None."""
        return next((value for key in keys if type(value := self.settings.get(key)) is int), None)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, or an empty shape if it is missing."""
        return self.shapes.get(name, ())

    def dtype(self, name: str) -> str:
        return self.tensors.dtype(name)

    def names_with(self, ending: str) -> Iterator[tuple[str, str]]:
        """Yield each tensor whose name has this ending, and its name without the ending."""
        return ((name, name[: len(name) - len(ending)]) for name in self.shapes if name.endswith(ending))

    def stored(self, base: str, *endings: str) -> tuple[str, ...]:
        """Return the names of the tensors that exist with the name `base` and one of these endings."""
        return tuple(base + ending for ending in endings if base + ending in self.shapes)

    def is_floating(self, name: str) -> bool:
        """Return whether a tensor is stored in floating-point numbers that are not codes."""
        return self.dtype(name) in ("float64", "float32", "float16", "bfloat16")

    def error(self, problem: str) -> InputError:
        return self.tensors.error(problem)

    def bad_part(self, name: str, expected: str, remedy: str = DAMAGED) -> InputError:
        """Return the error for a part that does not fit the other parts."""
        kind = f"{self.dtype(name)} of shape {list(self.shapes[name])}"
        return self.error(f"tensor {name} is {kind}, expected {expected}; {remedy}")

    def require(self, name: str, shape: Sequence[int], *dtypes: str, because: str = "") -> None:
        """Raise an `InputError` if a part is missing, has another shape, or has none of the dtypes.

        `dtypes` are beginnings of names. Without any, the part must have plain floating-point numbers.
        """
        expected = f"{' or '.join(dtypes) or 'floating-point numbers'} of shape {list(shape)}{because}"
        if name not in self.shapes:
            raise self.error(f"found no tensor {name}, expected {expected}; {DAMAGED}")
        fits = self.dtype(name).startswith(dtypes) if dtypes else self.is_floating(name)
        if self.shapes[name] != tuple(shape) or not fits:
            raise self.bad_part(name, expected)

    def group_size(self, scales: str, inputs: int, groups: int, bits: int) -> tuple[int, str]:
        """Return the number of inputs in a group, and a remark if the config states other sizes.

        The shapes determine it unless the last group is cut. In that case the config must state it.
        """
        stated, source = self.stated_group_size, self.config.source
        if groups and inputs % groups == 0:
            size = inputs // groups
        elif stated and gives_groups(inputs, stated, groups):
            size = stated
        else:
            sizes = f"groups of equal size for {inputs} inputs, or the group_size of {source}"
            raise self.bad_part(scales, f"{sizes} ({stated or 'not stated'})")
        if any(key in self.settings for key in ("dynamic", "extra_config")):
            return size, ""  # some modules have other sizes
        pairs = (("bits", self.whole_number("bits", "w_bit"), bits), ("group_size", stated, size))
        differing = [pair for pair in pairs if pair[1] not in (None, pair[2])]
        wrong = " and ".join(f"{key} {said}, but the shapes show {seen}" for key, said, seen in differing)
        return size, f"{source} states {wrong}; attnlaw uses what the shapes show" if wrong else ""


def gives_groups(inputs: int, size: int, groups: int) -> bool:
    """Return whether groups of `size` inputs, of which the last may be shorter if it must, are so many."""
    return size * groups == inputs or (-(-inputs // size) == groups and inputs % groups != 0)


def group_order(parts: Parts, name: str, groups: int, size: int) -> NDArray[np.int64] | None:
    """Return the group of each input, or None if the inputs are in the order of the groups."""
    order = parts.read(name).astype(np.int64)
    if (order == -1).all() or not order.any():
        return None
    wrong = order[(order < 0) | (order >= groups)]
    if wrong.size:
        raise parts.tensors.error(
            f"tensor {name} refers to group {wrong[0]}, expected groups 0 to {groups - 1}; {DAMAGED}"
        )
    plain = np.arange(len(order)) // size
    if not np.array_equal(np.bincount(order, minlength=groups), np.bincount(plain, minlength=groups)):
        raise parts.tensors.error(
            f"tensor {name} assigns more inputs to some groups than to others, expected {size} inputs in "
            f"each of {groups} groups; {DAMAGED}"
        )
    return None if np.array_equal(order, plain) else order
