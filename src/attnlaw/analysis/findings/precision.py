"""Detect numbers that were rounded to few bits: quantised tensors, and traces of codes in files of floats.

A code with few bits leaves few different values among neighbours in a row. An integer code of 4 bits has at
most 16 of them in a block of 32. A float8 code has at most 8 different significands, and still has them after
a scale for each tensor, row or block of 128.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.findings.evidence import Hit, StoredTensor, Subject, TensorLocation
from attnlaw.core.arrays import as_float, sample_indices

GRID = 32  # number of neighbours along a row in one block
SAMPLED = 256  # largest number of blocks that are looked at
RUN, RUNS = 128, 64  # number of neighbours whose significands are counted, and of rows that are looked at
# Codes that quantise blocks of 32. Each divides the peak or the range of a block into a number of steps.
CODES = {
    "Q4_0": ("peak", 8),
    "Q5_0": ("peak", 16),
    "Q8_0": ("peak", 127),
    "Q4_1": ("range", 15),
    "Q5_1": ("range", 31),
}
COARSE = 20.0  # a block of 32 with so few different values is on a coarse grid
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def _blocks(rows: NDArray[Any]) -> NDArray[Any]:
    """Return at most 256 blocks of 32 neighbours along the rows. The choice depends only on the shape."""
    per_row = rows.shape[1] // GRID
    count = rows.shape[0] * per_row
    rng = np.random.default_rng([*rows.shape])
    chosen = np.arange(count) if count <= SAMPLED else np.sort(rng.integers(count, size=SAMPLED))
    columns = (chosen % per_row * GRID)[:, None] + np.arange(GRID)
    return np.asarray(rows[(chosen // per_row)[:, None], columns])


def median_values(bits: NDArray[Any]) -> float | None:
    """Return the median number of different values in blocks of 32, or None if rows are shorter."""
    if bits.shape[1] < GRID:
        return None
    ordered = np.sort(_blocks(bits), axis=1)
    return float(np.median(1 + np.count_nonzero(np.diff(ordered, axis=1), axis=1)))


def median_significands(rows: NDArray[Any]) -> float | None:
    """Return the median number of different significands in runs of 128; None for short or pruned rows."""
    if rows.shape[1] < RUN:
        return None
    runs = np.abs(as_float(rows[sample_indices(rows.shape[0], RUNS), :RUN]))
    if not np.isfinite(runs).all():
        return None
    full = runs[np.count_nonzero(runs, axis=1) >= RUN // 2]
    if 2 * len(full) < len(runs):
        return None
    ordered = np.sort(np.frexp(full)[0], axis=1)
    return float(np.median(np.count_nonzero(np.diff(ordered, axis=1, prepend=0.0), axis=1)))


def decibels(array: NDArray[Any], code: str) -> float | None:
    """Return 10 log10(12 mean square / mean squared step) of an array of quantised blocks of a known code."""
    if code not in CODES or array.shape[-1] % GRID:
        return None
    divided, steps = CODES[code]
    blocks = as_float(_blocks(array.reshape(-1, array.shape[-1])))
    whole = np.ptp(blocks, axis=1) if divided == "range" else np.abs(blocks).max(axis=1)
    step = float(np.mean((whole / steps) ** 2))
    signal = float(np.mean(blocks**2))
    return float(10 * np.log10(12 * signal / step)) if step > 0 and np.isfinite(signal) else None


def coarse_grid(subject: Subject, threshold: float) -> Iterator[Hit]:
    """Yield one hit for all matrices on coarse grids, because one export rounds them together."""
    return _few_values(subject, "distinct", threshold, lambda tensor: True)


def float8_trace(subject: Subject, threshold: float) -> Iterator[Hit]:
    """Yield one hit for all matrices with the significands of float8 that no other detector reports."""

    def is_new(tensor: StoredTensor) -> bool:
        coarse = tensor.distinct is not None and tensor.distinct <= COARSE
        return not (coarse or tensor.dtype.startswith("float8"))

    return _few_values(subject, "significands", threshold, is_new)


def _few_values(
    subject: Subject, field: str, threshold: float, counts: Callable[[StoredTensor], bool]
) -> Iterator[Hit]:
    """Yield one hit for all matrices of floats whose number of values in a field is at most the threshold."""
    matrices = [
        tensor
        for tensor in subject.evidence.tensors
        if tensor.is_layer_matrix and not (tensor.quantised or tensor.constant)
    ]
    values = [getattr(tensor, field) for tensor in matrices]
    few = {
        tensor: value
        for tensor, value in zip(matrices, values, strict=True)
        if value is not None and value <= threshold and counts(tensor)
    }
    if few:
        share, dtype = f"{len(few)} of {len(matrices)} matrices", next(iter(few)).dtype
        detail = f"attnlaw found this in {share}, which are stored as {dtype}"
        yield Hit(common_location(list(few)), min(few.values()), detail)


def common_location(tensors: Sequence[StoredTensor]) -> TensorLocation:
    """Return the location that tensors share: a tensor, a layer, or the whole model."""
    if len(tensors) == 1:
        return tensors[0].location
    layers = {(tensor.location.layer, tensor.location.stack) for tensor in tensors}
    return TensorLocation(*layers.pop()) if len(layers) == 1 else TensorLocation()


def quantised(subject: Subject, threshold: float) -> Iterator[Hit]:
    """Yield one hit for each quantisation code, at the tensor with the lowest signal-to-noise ratio."""
    by_dtype: dict[str, list[StoredTensor]] = {}
    for tensor in subject.evidence.tensors:
        if tensor.quantised:
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
    for code, tensors in by_dtype.items():
        known = [tensor for tensor in tensors if tensor.decibels is not None]
        worst = min(known, key=lambda stored: stored.decibels or 0.0, default=tensors[0])
        count = "1 tensor is" if len(tensors) == 1 else f"{len(tensors)} tensors are"
        detail = f"{count} stored as {code}"
        if worst.decibels is not None:
            best = max(tensor.decibels or 0.0 for tensor in known)
            detail += f"; the signal is {worst.decibels:.1f} to {best:.1f} dB above the rounding error"
        yield Hit(worst.location, worst.decibels, detail)
