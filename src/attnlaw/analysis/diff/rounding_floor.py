"""The floor: what rounding alone leaves of singular values in the difference of two stored matrices.

A stored model carries the rounding of its file, so a difference has full rank always. With v = step^2/12,
the variance of an entry's rounding, the largest singular value of the error is near

    edge = sqrt(max row sum of v) + sqrt(max column sum of v)            (of a matrix)
    edge(A1) |B1|_2 + |A0|_2 edge(B1)                                    (of a head A B)

and the rank above the floor counts singular values beyond 1.1 times that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.diff.rounding import FLOATS, Format
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.spectra.exact import BLOCK

Matrix = NDArray[np.float64]
FLOOR_MARGIN = 1.1
# Weights that share a step in every quantised code that is decoded to numbers.
CODED_BLOCK = 32
SCALES_SUFFIX = " with scales"


def edge(steps: Matrix) -> float:
    """About the largest singular value of the errors of rounding with these steps."""
    variances = steps**2 / 12
    return float(np.sqrt(variances.sum(axis=0).max()) + np.sqrt(variances.sum(axis=1).max()))


def file_rounding(array: NDArray[Any], dtype: str) -> tuple[float, float]:
    """The edge of a stored matrix's own rounding, and the sum of its variances, some rows at a time."""
    columns, largest, total = np.zeros(array.shape[1]), 0.0, 0.0
    for rows in row_blocks(array.shape):
        variances = stored_steps(array[rows], dtype) ** 2 / 12
        columns += variances.sum(axis=0)
        row_sums = variances.sum(axis=1)
        largest, total = max(largest, float(row_sums.max())), total + float(row_sums.sum())
    return float(np.sqrt(columns.max()) + np.sqrt(largest)), total


def row_blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Runs of rows of a matrix that stay in a core's cache.

    >>> list(row_blocks((3, 200_000)))
    [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
    """
    size = max(1, BLOCK // max(shape[1], 1))
    return (slice(start, start + size) for start in range(0, shape[0], size))


def rank_above(values: Matrix, floor: float) -> int:
    """Singular values above the floor.

    >>> rank_above(np.array([3.0, 1.2, 1.0]), 1.0)
    2
    """
    return int(np.count_nonzero(values > FLOOR_MARGIN * floor))


def stored_steps(array: NDArray[Any], dtype: str) -> Matrix:
    """The step of each entry in the type that a file says; of decoded codes that of their block."""
    weights = array.astype(np.float64)
    if dtype.endswith(SCALES_SUFFIX):
        # The scale moves exponents by what is not a power of two: right to a factor of two.
        return FLOATS[dtype.removesuffix(SCALES_SUFFIX)].steps(weights)
    if dtype in FLOATS:  # what was read may be finer: an adapter is added in float64
        return FLOATS[array.dtype.name].steps(weights)
    return _coded_steps(weights)


def _coded_steps(weights: Matrix) -> Matrix:
    """The least distance of two different values in each block of a decoded quantisation."""
    flat = weights.reshape(-1)
    if flat.size % CODED_BLOCK:
        return FLOATS["float32"].steps(weights)
    blocks = flat.reshape(-1, CODED_BLOCK)
    gaps = np.diff(np.sort(blocks, axis=1), axis=1)
    wide = gaps > 1e-4 * np.abs(blocks).max(axis=1, keepdims=True)  # else round-off of one value
    least = np.where(wide, gaps, np.inf).min(axis=1, keepdims=True)
    steps = np.where(np.isfinite(least), least, np.abs(blocks).max(axis=1, keepdims=True))
    return np.asarray(np.broadcast_to(steps, blocks.shape)).reshape(weights.shape)


class Steps(Tensors):
    """The steps of tensors under the tensors' names: what reads maps and heads then reads their steps.

    Those of `formats` are the steps of rounding to these; all others those of the file.
    """

    def __init__(self, tensors: Tensors, formats: Mapping[str, Format] | None = None) -> None:
        self.source, self.shapes, self.metadata = tensors.source, tensors.shapes, tensors.metadata
        self._tensors, self._formats = tensors, formats or {}

    def dtype(self, name: str) -> str:
        return "float64"

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        stored = self._tensors.read(name, member)
        if name in self._formats:
            return self._formats[name].steps(stored.astype(np.float64))
        return stored_steps(stored, self._tensors.dtype(name))
