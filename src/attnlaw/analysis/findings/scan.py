"""Detect damaged tensors, with a single look at each stored tensor.

A scan looks at the bits of the magnitudes, for any floating-point type. With the sign bit cleared, larger
magnitudes have larger bits, and NaN and infinity are above the largest number. So one pass of integer maxima
finds zeros, peaks and NaN.

Every stored tensor has a role:

| role | tensors |
|---|---|
| `map` | read by the matrices of the layers, or by an adapter |
| `embedding` | the embedding and the unembedding of tokens |
| `gain` | gains of norms, stored as they are |
| `vector` | biases, and gains that are stored minus one. Zeros are normal there |
| `other` | everything else: positions, poolers, heads of a task, buffers |
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.findings.evidence import Hit, StoredTensor, Subject, TensorLocation
from attnlaw.checkpoints.blocks import Attention, Norm, Product, View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.core.errors import InputError

MAP, EMBEDDING, GAIN, VECTOR, OTHER = ROLES = ("map", "embedding", "gain", "vector", "other")
EMBEDDING_KINDS = ("embedding", "unembedding")


@dataclass(frozen=True)
class TensorRoles:
    """The role and the location of each tensor, by its name and its member of a stack.

    A tensor that is not listed has the role "other".
    """

    by_tensor: dict[tuple[str, int | None], tuple[str, TensorLocation]]

    def __call__(self, name: str, member: int | None) -> tuple[str, TensorLocation]:
        role, location = self.by_tensor.get((name, member), (OTHER, TensorLocation()))
        return role, replace(location, tensor=name if member is None else f"{name}[{member}]")


def known_tensors(model: Model) -> TensorRoles:
    """Return the role and the location of every tensor that the model's layers, embeddings and norms use.

    If matrices of several kinds share a tensor (fused projections), its location has no kind.
    """
    roles: dict[tuple[str, int | None], tuple[str, TensorLocation]] = {}
    for location, product in model.network.leaves():
        role = EMBEDDING if location.kind in EMBEDDING_KINDS else MAP
        tensor_location = TensorLocation(
            location.layer, location.stack, location.kind, expert=location.expert
        )
        for view in _with_earlier(product.views):
            known = roles.get((view.tensor, view.member))
            if known is None or known[0] == EMBEDDING:
                roles[view.tensor, view.member] = role, tensor_location
            elif known[1].layer == tensor_location.layer:
                kind = tensor_location.kind if known[1].kind == tensor_location.kind else None
                roles[view.tensor, view.member] = role, replace(tensor_location, kind=kind)
    for embedding in (model.embedding_view, model.unembedding_view):
        if embedding is not None:
            roles.setdefault((embedding.tensor, embedding.member), (EMBEDDING, TensorLocation()))
    for layer in model.layers:
        tensor_location = TensorLocation(layer.index, layer.stack)
        for view in layer.views:
            if view.bias is not None:
                roles.setdefault((view.bias, None), (VECTOR, tensor_location))
        for norm in _norms(layer):
            if norm.gain is not None:
                roles.setdefault((norm.gain, None), (VECTOR if norm.offset else GAIN, tensor_location))
            if norm.bias is not None:
                roles.setdefault((norm.bias, None), (VECTOR, tensor_location))
    return TensorRoles(roles)


def _with_earlier(views: Iterable[View]) -> Iterator[View]:
    """Yield each view, followed by the views that the model applies before it."""
    for view in views:
        current: View | None = view
        while current is not None:
            yield current
            current = current.after


def _norms(layer: object) -> Iterator[Norm]:
    """Yield every norm that a layer's records contain."""
    if isinstance(layer, Norm):
        yield layer
    elif isinstance(layer, tuple):
        for part in layer:
            yield from _norms(part)
    elif hasattr(layer, "__dataclass_fields__"):
        for value in vars(layer).values():
            yield from _norms(value)


WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
BLOCK = 2**18  # number of entries scanned at a time, so that they stay in a core's cache
GRID = 32  # number of neighbours along a row in one block
# Largest numbers of blocks that are looked at, and of entries that enter a digest.
SAMPLED, SAMPLED_ENTRIES = 256, 4096
# Codes that quantise blocks of 32. Each divides the peak or the range of a block into a number of steps.
CODES = {
    "Q4_0": ("peak", 8),
    "Q5_0": ("peak", 16),
    "Q8_0": ("peak", 127),
    "Q4_1": ("range", 15),
    "Q5_1": ("range", 31),
}
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Scan:
    """Facts about an array, as in `StoredTensor`. `digest` is a hash of a sample of the bits."""

    not_finite: int
    peak: float | None
    constant: bool
    zero_rows: int
    zero_columns: int
    distinct: float | None
    digest: bytes


def is_float(array: NDArray[Any]) -> bool:
    return np.issubdtype(array.dtype, np.floating) or array.dtype.name.startswith(("bfloat", "float8"))


def scan(array: NDArray[Any]) -> Scan:
    """Scan an array of any floating-point type. A vector is treated as a matrix with one row.

    >>> seen = scan(np.array([[0.0, 3.0], [0.0, -4.0]]))
    >>> seen.peak, seen.zero_rows, seen.zero_columns, seen.constant
    (4.0, 0, 1, False)
    """
    rows = np.ascontiguousarray(array).reshape(-1, array.shape[-1] if array.ndim > 1 else array.size)
    bits = rows.view(WORDS[array.itemsize])
    word = bits.dtype.type
    magnitude = word(~word(0)) >> word(1)
    largest = np.array(ml_dtypes.finfo(array.dtype).max, array.dtype).view(word)
    by_row = np.empty(rows.shape[0], bits.dtype)
    by_column = np.zeros(rows.shape[1], bits.dtype)
    not_finite = 0
    step = max(1, BLOCK // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        block = bits[start : start + step] & magnitude
        by_row[start : start + step] = block.max(axis=1)
        np.maximum(by_column, block.max(axis=0), out=by_column)
        if by_row[start : start + step].max() > largest:
            not_finite += int(np.count_nonzero(block > largest))
    top = by_row.max()
    alike = bool((by_row == top).all() and (by_column == top).all())
    return Scan(
        not_finite,
        None if not_finite else float(np.array(top).view(array.dtype)),
        alike and rows.size > 1 and bool((bits == bits[0, 0]).all()),
        int(np.count_nonzero(by_row == 0)),
        int(np.count_nonzero(by_column == 0)),
        None if rows.shape[1] < GRID or array.ndim < 2 else float(np.median(_distinct(bits))),
        _digest(bits),
    )


def _blocks(rows: NDArray[Any]) -> NDArray[Any]:
    """Return at most 256 blocks of 32 neighbours along the rows. The choice depends only on the shape."""
    per_row = rows.shape[1] // GRID
    count = rows.shape[0] * per_row
    rng = np.random.default_rng([*rows.shape])
    chosen = np.arange(count) if count <= SAMPLED else np.sort(rng.integers(count, size=SAMPLED))
    columns = (chosen % per_row * GRID)[:, None] + np.arange(GRID)
    return np.asarray(rows[(chosen // per_row)[:, None], columns])


def _distinct(bits: NDArray[Any]) -> NDArray[np.intp]:
    """Count the different numbers in each block."""
    blocks = np.sort(_blocks(bits), axis=1)
    return np.asarray(1 + np.count_nonzero(np.diff(blocks, axis=1), axis=1))


def _digest(bits: NDArray[Any]) -> bytes:
    entries = bits.ravel()
    sample = entries[:: max(1, entries.size // SAMPLED_ENTRIES)]
    size = str(bits.dtype.itemsize).encode()
    shape = hashlib.blake2b(str(bits.shape).encode(), digest_size=16).digest()
    return hashlib.blake2b(sample.tobytes(), digest_size=16, salt=size, person=shape).digest()


def decibels(array: NDArray[Any], code: str) -> float | None:
    """Return the signal-to-noise ratio in dB of an array that was decoded from quantised blocks of 32.

    The ratio is 10 log10(12 mean square / mean squared step), where the code determines the step of each
    block. Returns None if attnlaw does not know the code, or if rows are not made of such blocks.
    """
    if code not in CODES or array.shape[-1] % GRID:
        return None
    divided, steps = CODES[code]
    blocks = _blocks(array.reshape(-1, array.shape[-1])).astype(np.float64)
    whole = np.ptp(blocks, axis=1) if divided == "range" else np.abs(blocks).max(axis=1)
    step = float(np.mean((whole / steps) ** 2))
    signal = float(np.mean(blocks**2))
    return float(10 * np.log10(12 * signal / step)) if step > 0 and np.isfinite(signal) else None


def is_mask(array: NDArray[Any]) -> bool:
    """Return whether an array has at most two different values. Such an array is a buffer, not weights."""
    bits = np.ascontiguousarray(array).view(WORDS[array.itemsize]).ravel()
    other = bits != bits[0]
    return not other.any() or bool((bits[other] == bits[other][0]).all())


def _tensors_without_masks(subject: Subject) -> Iterator[StoredTensor]:
    return (tensor for tensor in subject.evidence.tensors if not tensor.mask)


def _nonzero_matrices(subject: Subject) -> Iterator[StoredTensor]:
    """Yield the weight matrices of the layers that are not all zero."""
    for tensor in subject.evidence.tensors:
        if tensor.role == MAP and len(tensor.shape) > 1 and not tensor.zero:
            yield tensor


def not_finite(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in _tensors_without_masks(subject):
        if tensor.not_finite:
            yield Hit(tensor.location, tensor.not_finite, f"{tensor.not_finite} entries")


def zero_tensor(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in subject.evidence.tensors:
        if tensor.zero and tensor.role in (MAP, EMBEDDING, GAIN):
            yield Hit(tensor.location, 0.0)


def constant_tensor(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in subject.evidence.tensors:
        filled = tensor.constant and tensor.peak and tensor.role in (MAP, EMBEDDING)
        if filled and len(tensor.shape) > 1:
            yield Hit(tensor.location, tensor.peak, f"every entry has magnitude {tensor.peak:.4g}")


def zero_rows(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in _nonzero_matrices(subject):
        zeros = tensor.zero_rows + tensor.zero_columns
        if zeros > threshold and not tensor.not_finite:
            yield Hit(
                tensor.location, zeros, f"{tensor.zero_rows} rows and {tensor.zero_columns} columns as stored"
            )


def beyond_float16(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in _tensors_without_masks(subject):
        if tensor.peak is not None and tensor.peak > threshold:
            yield Hit(tensor.location, tensor.peak)


def coarse_grid(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in _nonzero_matrices(subject):
        coarse = tensor.distinct is not None and tensor.distinct <= threshold
        if coarse and not (tensor.quantised or tensor.constant):
            yield Hit(tensor.location, tensor.distinct, f"of {GRID} neighbours, in a file of {tensor.dtype}")


def quantised(subject: Subject, threshold: float) -> Iterator[Hit]:
    """Yield one hit for each quantisation code, at the tensor with the lowest signal-to-noise ratio."""
    by_dtype: dict[str, list[StoredTensor]] = {}
    for tensor in subject.evidence.tensors:
        if tensor.quantised:
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
    for code, tensors in by_dtype.items():
        known = [tensor for tensor in tensors if tensor.decibels is not None]
        worst = min(known, key=lambda stored: stored.decibels or 0.0, default=tensors[0])
        best = max((stored.decibels or 0.0 for stored in known), default=None)
        range_ = f", {worst.decibels:.1f} to {best:.1f} dB" if best is not None else ""
        plural = "tensor" if len(tensors) == 1 else "tensors"
        yield Hit(worst.location, worst.decibels, f"{len(tensors)} {plural} of code {code}{range_}")


def identical(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in _nonzero_matrices(subject):
        if tensor.twin is not None and not tensor.constant:
            yield Hit(tensor.location, 0.0, f"the same bits as {tensor.twin}")


def damaged_locations(model: Model) -> frozenset[MatrixLocation]:
    """Return the locations of matrices that cannot be measured, because a tensor holds NaN or infinity.

    The tensors of a matrix include the norms before it. For QK they also include the biases and norms that
    its logits depend on.
    """
    is_damaged = cache(partial(_is_damaged, model))
    return frozenset(
        location
        for location, product in model.network.leaves()
        if any(is_damaged(name) for name in _tensors(location, product))
    )


def _tensors(location: MatrixLocation, product: Product) -> Iterator[str]:
    yield from product.tensors
    norms: tuple[Norm | None, ...] = (product.norm,)
    biases: list[str | None] = []
    if isinstance(product.block, Attention):
        norms = product.block.norms(location.kind)
        if KINDS[location.kind].scores:  # logits depend on biases and inner norms
            scores, views = product.block.scores, [*_with_earlier(product.block.views(location.kind))]
            norms = (*norms, scores.query_norm, scores.key_norm, *(view.norm for view in views))
            biases = [view.bias for view in views] + [norm.bias for norm in norms if norm is not None]
    gains = [norm.gain for norm in norms if norm is not None]
    yield from (name for name in (*gains, *biases) if name is not None)


def _is_damaged(model: Model, name: str) -> bool:
    try:
        array = model.tensors.read(name)
    except InputError:
        return True  # the update of an adapter is not finite
    return array.size > 0 and is_float(array) and scan(array).not_finite > 0
