"""Detect square matrices that are stored transposed: their other side fits the residual stream better.

All matrices of a layer read from or write to the same residual stream, and training leaves similar traces in
all of them. Let G(X) = X X^T over the coordinates of the stream, with its trace removed, scaled to norm one.
Let R be the sum of G over the residual sides of the layer's other matrices, again scaled to norm one.

| side | of Q, K, V, W_in | of O |
|---|---|---|
| residual | rows (inputs) | columns (outputs) |
| head | columns | rows |

A matrix is suspect if <G(head side), R> exceeds <G(residual side), R>. If the stream is wide, attnlaw samples
its coordinates, the same for all matrices. A transposed matrix spoils R for the others, so attnlaw reports
only the matrix with the largest difference in each layer. No finding does not prove that nothing is
transposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.findings.evidence import Hit, Orientation, Subject, TensorLocation
from attnlaw.core.arrays import sample_indices

COORDINATES = 256  # largest number of coordinates of the stream that are compared
COLUMNS = 512  # largest number of coordinates of the other side
LEAST_FIT = 0.2  # nothing is reported if the head side fits less than this
QUERY, KEY, VALUE, OUTPUT, INNER = ("query", "key", "value", "output", "inner")
SQUARE = (QUERY, KEY, VALUE, OUTPUT)
TOUCHING = (*SQUARE, INNER)

Float32Array = NDArray[np.float32]


def gram(rows: NDArray[Any]) -> Float32Array | None:
    """Return G of a matrix whose rows are coordinates of the stream; None if it is zero or beyond float32."""
    chosen = sample_indices(rows.shape[0], COORDINATES), sample_indices(rows.shape[1], COLUMNS)
    # First choose what is contiguous in memory: that copies in long pieces.
    if rows.flags.c_contiguous:
        part = rows.take(chosen[0], axis=0).take(chosen[1], axis=1)
    else:
        part = rows.T.take(chosen[1], axis=0).take(chosen[0], axis=1).T
    part = part.astype(np.float32, copy=False)
    product = part @ part.T
    product[np.diag_indices_from(product)] -= np.trace(product) / product.shape[0]
    norm = float(np.linalg.norm(product))
    return np.asarray(product / norm) if 0 < norm < np.inf else None


def side_grams(role: str, matrix: NDArray[Any]) -> tuple[Float32Array | None, Float32Array | None]:
    """Return G of the residual side and of the head side, which is None for a matrix that is not square."""
    residual = matrix.T if role == OUTPUT else matrix
    square = role in SQUARE and matrix.shape[0] == matrix.shape[1]
    return gram(residual), gram(residual.T) if square else None


def side_fits(
    grams: Mapping[str, tuple[Float32Array | None, Float32Array | None]],
) -> Iterator[tuple[str, float, float]]:
    """Yield (role, fit of the residual side, fit of the head side) for every square matrix of a layer."""
    for role, (residual, head) in grams.items():
        others = [side for name, (side, _) in grams.items() if name != role and side is not None]
        if residual is None or head is None or not others:
            continue
        shape = residual.shape
        stream = sum((side for side in others if side.shape == shape), np.zeros(shape, np.float32))
        norm = float(np.linalg.norm(stream))
        if norm > 0:
            yield role, float(np.vdot(residual, stream)) / norm, float(np.vdot(head, stream)) / norm


def worst_orientation(
    grams: Mapping[str, tuple[Float32Array | None, Float32Array | None]],
    locations: Mapping[str, TensorLocation],
) -> list[Orientation]:
    """Return a list of the square matrix whose head side fits best against its residual side, if any."""
    all_fits = [Orientation(locations[role], *pair) for role, *pair in side_fits(grams)]
    worst = max(all_fits, key=lambda fit: fit.head_side - fit.residual_side, default=None)
    return [] if worst is None else [worst]


def transposed(subject: Subject, threshold: float) -> Iterator[Hit]:
    for fit in subject.evidence.orientations:
        excess = fit.head_side - fit.residual_side
        if excess > threshold and fit.head_side > LEAST_FIT:
            fits = f"{fit.head_side:.2f} if transposed, {fit.residual_side:.2f} as stored"
            yield Hit(
                fit.location,
                excess,
                f"correlation with the layer's other matrices: {fits}",
            )
