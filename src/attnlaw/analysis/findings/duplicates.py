"""Detect layers that compute nearly the same, and heads of one block that do.

A head is compared with the other heads of its block. Layers are compared head by head in their order, so a
copy with permuted heads is not found. A copy with the opposite sign is not found either.

While attnlaw reads a model, it reduces each head to a sketch. It computes exact cosines only for pairs with
similar sketches, and the detectors compare these with the user's threshold. The sketch of a matrix M (QK or
VO of a head) is S M T^T, where S and T have 64 Gaussian rows. It has 4096 numbers for any size of M. All
sketches of one width share S and T. So the cosine of two sketches estimates the cosine of their matrices,
<M, M'> / (|M| |M'|), with a standard error of at most about (1 - cosine^2) / 6.

attnlaw never forms M = A B, only its factors A and B. The sketch is (S A)(B T^T), and the exact cosines use
<A B, A' B'> = sum (A^T A') * (B B'^T).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.findings.evidence import Hit, Similarity, StoredTensor, Subject, TensorLocation
from attnlaw.checkpoints.blocks import Attention, StoredLayer, View
from attnlaw.checkpoints.model import Model
from attnlaw.core.arrays import Reals

VECTORS = 64
# Pairs whose sketches reach NEAR are compared exactly. Users may not set a threshold below LEAST.
NEAR, LEAST = 0.5, 0.7
SELF, CROSS = ("qk", "vo"), ("cross_qk", "cross_vo")

Sketch = NDArray[np.float32]  # (heads, 4096), rows of norm one
Factors = tuple[Reals, Reals]


@lru_cache(maxsize=16)
def projection(width: int, side: int) -> Sketch:
    """Return the 64 Gaussian rows of S (if `side` is 0) or T (if `side` is 1) for matrices of this width."""
    rng = np.random.default_rng([width, side])
    return rng.standard_normal((VECTORS, width), dtype=np.float32)


@dataclass(frozen=True)
class ProjectedMaps:
    """Projected weight matrices, which `Attention.factors` reads in place of a model's own."""

    maps: dict[View, Any]

    def read(self, view: View) -> Any:
        return self.maps[view]


def project_map(attention: Attention, view: View, matrix: Sketch) -> Sketch:
    """Project the side of a weight matrix that faces the stream: A to S A, B to B T^T, and B^T to T B^T."""
    if view == attention.output:
        return matrix @ projection(matrix.shape[1], 1).T
    left = view in (attention.query, attention.value)
    return projection(matrix.shape[0], 0 if left else 1) @ matrix


def sketch_heads(attention: Attention, kind: str, maps: dict[View, Sketch]) -> Sketch:
    """Return the normalised sketches of all heads of a block (heads, 4096), from its projected matrices."""
    heads: Any = attention.factors(ProjectedMaps(maps), kind)  # type: ignore[arg-type]
    flat = np.stack([(left @ right).ravel() for left, right in heads])
    norms = np.linalg.norm(flat, axis=1, keepdims=True)
    return np.asarray(flat / np.where(norms > 0, norms, 1))


def cosine(first: Factors, second: Factors) -> float | None:
    """Return the cosine of two matrices given as thin factors; None if one is zero or out of range."""
    norms = _inner(first, first) * _inner(second, second)
    return float(_inner(first, second) / np.sqrt(norms)) if 0 < norms < np.inf else None


def _inner(first: Factors, second: Factors) -> float:
    return float(np.sum((first[0].T @ second[0]) * (first[1] @ second[1].T)))


def find_similar_heads(model: Model, head_sketches: dict[tuple[int, str], Sketch]) -> Iterator[Similarity]:
    """Yield the pairs of heads of one block with similar sketches of QK and VO, with their exact cosines."""
    for layer in model.layers:
        for attention, kinds in _attentions(layer):
            if not all((layer.index, kind) in head_sketches for kind in kinds):
                continue
            sketches = (head_sketches[layer.index, kind] for kind in kinds)
            near = np.minimum(*(sketch @ sketch.T for sketch in sketches))
            pairs = [(int(i), int(j)) for i, j in np.argwhere(np.triu(near, 1) > NEAR)]
            if not pairs:
                continue
            exact = []
            for kind in kinds:
                factors = list(attention.factors(model, kind))
                exact.append([cosine(factors[i], factors[j]) for i, j in pairs])
            for (i, j), qk, vo in zip(pairs, *exact, strict=True):
                if qk is not None and vo is not None:
                    of = None if kinds == SELF else CROSS[0]
                    location = TensorLocation(layer.index, layer.stack, of, j)
                    yield Similarity(location, layer.index, layer.stack, i, qk, vo)


def find_similar_layers(model: Model, head_sketches: dict[tuple[int, str], Sketch]) -> Iterator[Similarity]:
    """Yield the pairs of layers whose median cosine over heads, in their order, is large for QK and VO."""
    for group in _comparable(model, head_sketches):
        near = np.minimum(*(_medians([head_sketches[layer.index, kind] for layer in group]) for kind in SELF))
        for i, j in np.argwhere(np.triu(near, 1) > NEAR):
            first, second = group[int(i)], group[int(j)]
            qk, vo = (_median_cosine(model, first.attention, second.attention, kind) for kind in SELF)
            if qk is not None and vo is not None:
                location = TensorLocation(second.index, second.stack)
                yield Similarity(location, first.index, first.stack, None, qk, vo)


def _comparable(model: Model, head_sketches: dict[tuple[int, str], Sketch]) -> list[list[StoredLayer]]:
    """Return the layers that have sketches, grouped by their number of heads and their shapes."""
    groups: dict[Any, list[StoredLayer]] = {}
    for layer in model.layers:
        attention = layer.attention
        if all((layer.index, kind) in head_sketches for kind in SELF):
            views = (attention.query, attention.key, attention.value, attention.output)
            groups.setdefault((attention.heads, *(view.shape for view in views)), []).append(layer)
    return list(groups.values())


def _medians(heads: Sequence[Sketch]) -> NDArray[np.float32]:
    """Return, for every pair of layers, the median over heads of their cosines."""
    stacked = np.stack(heads)  # (layers, heads, 4096)
    by_head = [stacked[:, head] @ stacked[:, head].T for head in range(stacked.shape[1])]
    return np.asarray(np.median(np.stack(by_head), axis=0))


def _median_cosine(model: Model, first: Attention, second: Attention, kind: str) -> float | None:
    pairs = zip(first.factors(model, kind), second.factors(model, kind), strict=True)
    known = [similarity for head, other in pairs if (similarity := cosine(head, other)) is not None]
    return float(np.median(known)) if known else None


def _attentions(layer: StoredLayer) -> Iterator[tuple[Attention, tuple[str, str]]]:
    yield layer.attention, SELF
    if layer.cross is not None:
        yield layer.cross, CROSS


def duplicate_layers(subject: Subject, threshold: float) -> Iterator[Hit]:
    for pair in _nearest(subject.evidence.similar_layers, threshold):
        yield _almost_same(pair, f"{pair.stack or ''} layer {pair.layer}".strip())


def copied_layer(subject: Subject, threshold: float) -> Iterator[Hit]:
    """Yield the stored layers whose matrices are all bitwise identical to those of an earlier layer."""
    matrices: dict[tuple[str | None, int], list[StoredTensor]] = {}
    for tensor in subject.evidence.tensors:
        if tensor.is_layer_matrix and tensor.location.layer is not None:
            matrices.setdefault((tensor.location.stack, tensor.location.layer), []).append(tensor)
    seen: dict[tuple[str, ...], str] = {}
    for (stack, layer), tensors in sorted(matrices.items(), key=lambda pair: (pair[0][0] or "", pair[0][1])):
        if all(tensor.constant for tensor in tensors):
            continue
        bits = tuple(sorted(tensor.twin or tensor.location.tensor or "" for tensor in tensors))
        if bits in seen:
            detail = f"all its {len(tensors)} matrices are exact copies of those in {seen[bits]}"
            yield Hit(TensorLocation(layer, stack), None, detail)
        seen.setdefault(bits, f"{stack or ''} layer {layer}".strip())


def duplicate_heads(subject: Subject, threshold: float) -> Iterator[Hit]:
    for pair in _nearest(subject.evidence.similar_heads, threshold):
        yield _almost_same(pair, f"head {pair.head}")


def _almost_same(pair: Similarity, other: str) -> Hit:
    detail = f"it is almost the same as {other}: the cosine is {pair.qk:.3f} for QK and {pair.vo:.3f} for VO"
    return Hit(pair.location, min(pair.qk, pair.vo), detail)


def _nearest(pairs: Iterable[Similarity], threshold: float) -> Iterator[Similarity]:
    """Yield the most similar pair of each location if the cosines of QK and VO exceed the threshold."""
    nearest: dict[TensorLocation, Similarity] = {}
    for pair in pairs:
        known = nearest.get(pair.location)
        if known is None or min(pair.qk, pair.vo) > min(known.qk, known.vo):
            nearest[pair.location] = pair
    return (pair for pair in nearest.values() if min(pair.qk, pair.vo) > threshold)
