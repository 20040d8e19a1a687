"""Detect damaged tensors, with a single look at each stored tensor.

A scan looks at the bits of the magnitudes, for any floating-point type. With the sign bit cleared, larger
magnitudes have larger bits, and NaN and infinity are above the largest number. So one pass of integer maxima
finds zeros, peaks and NaN.

Every stored tensor has a role:

| role | tensors |
|---|---|
| `map` | read by the matrices of the layers, or by an adapter |
| `embedding` | the embedding and the unembedding of tokens, and tables of positions and types of tokens |
| `gain` | gains of norms, stored as they are |
| `vector` | biases, and gains that are stored minus one. Zeros are normal there |
| `other` | everything else: poolers, heads of a task, buffers |

Tables of positions and types, and the norms outside of the layers, are known by their names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.findings.evidence import (
    BIAS,
    EMBEDDING,
    GAIN,
    MAP,
    NORM_BIAS,
    NORM_GAIN,
    OFFSET_GAIN,
    OTHER,
    TABLE,
    TOKENS,
    VECTOR,
    Hit,
    StoredTensor,
    Subject,
    TensorLocation,
)
from attnlaw.analysis.findings.precision import median_significands, median_values
from attnlaw.checkpoints.blocks import Attention, Norm, Product, View
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.core.arrays import as_float
from attnlaw.core.errors import InputError, printable

# Names of tables of positions and types of tokens, and of the gains of norms, outside of the layers.
TABLES = re.compile(
    r"^(?!.*\.\d+\.)(.*[._])?(wpe|position_embeddings?|embed_positions|positional_embedding|positions_embed"
    r"|position_embd|token_type_embeddings|token_types)(\.weight)?$"
)
NORM_GAINS = re.compile(r"^(?!.*\.\d+\.).*(norm|(^|[._])ln)[^.]*\.(weight|gamma)$", re.IGNORECASE)
EMBEDDING_KINDS = ("embedding", "unembedding")


class TensorRole(NamedTuple):
    """The use of a tensor in a model: its role, its location, and its particular part."""

    role: str = OTHER
    location: TensorLocation = TensorLocation()
    part: str = ""


@dataclass(frozen=True)
class TensorRoles:
    """The use of each tensor, by its name and its member of a stack. Unknown ones have the role "other"."""

    by_tensor: dict[tuple[str, int | None], TensorRole]

    def __call__(self, name: str, member: int | None) -> TensorRole:
        use = self.by_tensor.get((name, member), TensorRole())
        full_name = name if member is None else f"{name}[{member}]"
        return use._replace(location=replace(use.location, tensor=full_name))


def known_tensors(model: Model) -> TensorRoles:
    """Return the role of every tensor of layers, embeddings and norms. Fused projections have no kind."""
    roles: dict[tuple[str, int | None], TensorRole] = {}
    for location, product in model.network.leaves():
        role = EMBEDDING if location.kind in EMBEDDING_KINDS else MAP
        tensor_location = TensorLocation(
            location.layer, location.stack, location.kind, expert=location.expert
        )
        for view in _with_earlier(product.views):
            known = roles.get((view.tensor, view.member))
            if known is None or known.role == EMBEDDING:
                roles[view.tensor, view.member] = TensorRole(role, tensor_location)
            elif known.location.layer == tensor_location.layer:
                kind = tensor_location.kind if known.location.kind == tensor_location.kind else None
                roles[view.tensor, view.member] = TensorRole(role, replace(tensor_location, kind=kind))
    for embedding in (model.embedding_view, model.unembedding_view):
        if embedding is not None:
            key = embedding.tensor, embedding.member
            use = roles.get(key, TensorRole(EMBEDDING))
            # The head of a classifier has a row for each class, and may be new on purpose.
            is_tokens = model.embedding_view is not None and (
                sorted(embedding.shape) == sorted(model.embedding_view.shape)
            )
            roles[key] = use._replace(part=TOKENS) if is_tokens else use
    for layer in model.layers:
        tensor_location = TensorLocation(layer.index, layer.stack)
        for view in layer.views:
            if view.bias is not None:
                roles.setdefault((view.bias, None), TensorRole(VECTOR, tensor_location, BIAS))
        for norm in _norms(layer):
            if norm.gain is not None:
                role, part = (VECTOR, OFFSET_GAIN) if norm.offset else (GAIN, NORM_GAIN)
                roles.setdefault((norm.gain, None), TensorRole(role, tensor_location, part))
            if norm.bias is not None:
                roles.setdefault((norm.bias, None), TensorRole(VECTOR, tensor_location, NORM_BIAS))
    for name, named in _named_roles(model, {use.part for use in roles.values()}):
        roles.setdefault((name, None), named)
    return TensorRoles(roles)


def _named_roles(model: Model, parts: set[str]) -> Iterator[tuple[str, TensorRole]]:
    """Yield tables of positions and types, and norms outside of the layers, known by their names."""
    gains_are_plain = NORM_GAIN in parts and OFFSET_GAIN not in parts
    for name, shape in model.tensors.shapes.items():
        if len(shape) == 2 and shape[0] > 1 and TABLES.search(name):
            yield name, TensorRole(EMBEDDING, part=TABLE)
        elif gains_are_plain and shape == (model.hidden_size,) and NORM_GAINS.search(name):
            yield name, TensorRole(GAIN)


def _with_earlier(views: Iterable[View]) -> Iterator[View]:
    for view in views:
        current: View | None = view
        while current is not None:
            yield current
            current = current.after


def _norms(layer: object) -> Iterator[Norm]:
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
SAMPLED_ENTRIES = 4096  # largest number of entries that enter a digest


@dataclass(frozen=True)
class Scan:
    """Facts about an array, as in `StoredTensor`. `digest` is a hash of a sample of the bits."""

    not_finite: int
    peak: float | None
    constant: bool
    zero_rows: int
    zero_columns: int
    inner_zero_rows: int
    distinct: float | None
    significands: float | None
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
    zero_columns = np.flatnonzero(bits[0] & magnitude == 0)
    not_finite = 0
    step = max(1, BLOCK // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        block = bits[start : start + step] & magnitude
        by_row[start : start + step] = block.max(axis=1)
        if zero_columns.size:
            zero_columns = zero_columns[~block[:, zero_columns].any(axis=0)]
        if by_row[start : start + step].max() > largest:
            not_finite += int(np.count_nonzero(block > largest))
    top = by_row.max()
    return Scan(
        not_finite,
        None if not_finite else float(np.array(top).view(array.dtype)),
        rows.size > 1 and bool((by_row == top).all() and (bits == bits[0, 0]).all()),
        int(np.count_nonzero(by_row == 0)),
        zero_columns.size,
        int(np.count_nonzero(by_row[: int(np.flatnonzero(by_row)[-1])] == 0)) if top else 0,
        None if array.ndim < 2 else median_values(bits),
        None if array.ndim < 2 else median_significands(rows),
        _digest(bits),
    )


def _digest(bits: NDArray[Any]) -> bytes:
    entries = bits.ravel()
    sample = entries[:: max(1, entries.size // SAMPLED_ENTRIES)]
    size = str(bits.dtype.itemsize).encode()
    shape = hashlib.blake2b(str(bits.shape).encode(), digest_size=16).digest()
    return hashlib.blake2b(sample.tobytes(), digest_size=16, salt=size, person=shape).digest()


def is_mask(array: NDArray[Any]) -> bool:
    """Return whether an array has at most two values: a buffer.

    An array that contains infinity is a mask only if its other value is 0.
    """
    bits = np.ascontiguousarray(array).view(WORDS[array.itemsize]).ravel()
    other = bits != bits[0]
    pair = array.ravel()[[0, int(other.argmax())]]
    if other.any() and not (bits[other] == bits[other][0]).all():
        return False
    values = as_float(pair)
    if np.isfinite(values).all():
        return True
    return array.ndim > 1 and sorted(values.tolist()) == [-np.inf, 0.0]


def _tensors_without_masks(subject: Subject) -> Iterator[StoredTensor]:
    return (tensor for tensor in subject.evidence.tensors if not tensor.mask)


def _layer_matrices(subject: Subject) -> Iterator[StoredTensor]:
    return (tensor for tensor in subject.evidence.tensors if tensor.is_layer_matrix)


def not_finite(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in _tensors_without_masks(subject):
        if tensor.not_finite:
            bad, every = tensor.not_finite, prod(tensor.shape)
            detail = f"{bad:,} of {every:,} entries {'is' if bad == 1 else 'are'} NaN or infinite"
            yield Hit(tensor.location, bad, detail)


def zero_tensor(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in subject.evidence.tensors:
        if tensor.zero and tensor.role in (MAP, EMBEDDING, GAIN):
            yield Hit(tensor.location, 0.0)


def missing_tensor(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in subject.evidence.missing:
        level = None if tensor.grave else "warning"
        yield Hit(TensorLocation(tensor=printable(tensor.name)), None, tensor.reason, level)


def constant_tensor(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in subject.evidence.tensors:
        filled = tensor.constant and tensor.peak and tensor.role in (MAP, EMBEDDING)
        if filled and len(tensor.shape) > 1:
            detail = f"every entry has the same absolute value, {tensor.peak:.4g}"
            yield Hit(tensor.location, tensor.peak, detail)


def zero_rows(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in _layer_matrices(subject):
        zeros = tensor.zero_rows + tensor.zero_columns
        if zeros > threshold and not tensor.not_finite:
            counts = {"rows": tensor.zero_rows, "columns": tensor.zero_columns}
            parts = [f"{name} of zeros: {count}" for name, count in counts.items() if count]
            yield Hit(tensor.location, zeros, f"in the stored tensor, {' and '.join(parts)}")


def beyond_float16(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in _tensors_without_masks(subject):
        if tensor.peak is not None and tensor.peak > threshold:
            yield Hit(tensor.location, tensor.peak)


def identical(subject: Subject, threshold: float) -> Iterator[Hit]:
    for tensor in _layer_matrices(subject):
        if tensor.twin is not None and not tensor.constant:
            yield Hit(tensor.location, 0.0, f"it is an exact copy of {tensor.twin}")


def damaged_locations(model: Model) -> frozenset[MatrixLocation]:
    """Return the locations of matrices that read NaN or infinity, also in norms and biases of logits."""
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
