"""A Gram matrix from a file: NumPy's `.npy`, or text with one row a line."""

from __future__ import annotations

import warnings
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from attnlaw.core.errors import InputError, as_input_error
from attnlaw.core.files import read_bounded, require_exists, require_regular_file, require_valid_path
from attnlaw.theory.limit.inputs import require_real
from attnlaw.theory.limit.wishart import Array

MOST_BYTES = 2**30  # of a matrix; 11000 tokens
REMEDY = "give an existing file"
# What NumPy raises on a header that is none: it is parsed as a Python expression.
DAMAGE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, TokenError)


def read_gram(path: Path) -> Array:
    """The numbers in a file; whether they are a Gram matrix is for `GivenInputs` to say."""
    wanted = "expected .npy, or text with one row a line"
    with (
        as_input_error(f"{path}: cannot be read", REMEDY),
        as_input_error(f"{path}: not a matrix of numbers", wanted, *DAMAGE, with_reason=False),
    ):
        return _read_binary_gram(path) if path.suffix == ".npy" else _read_text_gram(path)


def _read_text_gram(path: Path) -> Array:
    text = read_bounded(path, megabytes=64, remedy=REMEDY).decode("utf-8")
    rows = [line.replace(",", " ").split() for line in text.splitlines() if line.strip()]
    return np.array(rows, dtype=np.float64)


def _read_binary_gram(path: Path) -> Array:
    """The array of a `.npy` file, read only where its header announces what the file holds."""
    require_exists(require_valid_path(path), REMEDY)
    with require_regular_file(path).open("rb") as file:
        with warnings.catch_warnings(action="ignore"):
            shape, order, dtype = _header(file)
        require_real(str(path), dtype)
        size = prod(shape) * dtype.itemsize
        if size < 1:
            raise ValueError(f"no numbers in a shape of {shape}")
        if size > MOST_BYTES:
            raise InputError(
                f"{path}: a matrix of shape {shape} in {dtype}, larger than {MOST_BYTES // 2**30} GB; "
                "choose fewer tokens"
            )
        data = file.read(size + 1)
    if len(data) != size:
        raise ValueError("the file does not hold as many numbers as its header says")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if order else "C").astype(np.float64)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"version {version} of the format")
