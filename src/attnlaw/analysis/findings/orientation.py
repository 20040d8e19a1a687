"""Square matrices that lie transposed: does their other side fit the residual stream better?

A layer's matrices touch the same stream, and training leaves its marks on all of them. With G(X) = X X^T over
the coordinates of the stream, traceless and of norm one, and R the sum of G over the sides of the layer's
other matrices that touch the stream, again of norm one:

| side | of Q, K, V, W_in | of O |
|---|---|---|
| residual | rows (inputs) | columns (outputs) |
| head | columns | rows |

A matrix is suspect where <G(head side), R> exceeds <G(residual side), R>. Of a wide stream some coordinates
are looked at, the same in all matrices. One transposed matrix spoils R for the others: of a layer only the
one with the largest difference is told. Silence proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.findings.evidence import Hit, Orientation, Subject, TensorLocation
from attnlaw.core.arrays import Reals

COORDINATES = 256  # of the stream that are looked at
COLUMNS = 512  # of the other side, likewise
LEAST_FIT = 0.2  # of the head side, for anything to be told
QUERY, KEY, VALUE, OUTPUT, INNER = ("query", "key", "value", "output", "inner")
SQUARE = (QUERY, KEY, VALUE, OUTPUT)
TOUCHING = (*SQUARE, INNER)

Float32Array = NDArray[np.float32]


@lru_cache(maxsize=32)
def sample_indices(width: int, most: int) -> NDArray[np.intp]:
    """Some numbers below `width`, ascending, the same in every run; all where there are few."""
    if width <= most:
        return np.arange(width)
    return np.sort(np.random.default_rng([width, most]).choice(width, most, replace=False))


def gram(rows: Reals) -> Float32Array | None:
    """G of a matrix whose rows are coordinates of the stream; None where it is zero or leaves float32."""
    part = rows[
        np.ix_(sample_indices(rows.shape[0], COORDINATES), sample_indices(rows.shape[1], COLUMNS))
    ].astype(np.float32)
    product = part @ part.T
    product[np.diag_indices_from(product)] -= np.trace(product) / product.shape[0]
    norm = float(np.linalg.norm(product))
    return np.asarray(product / norm) if 0 < norm < np.inf else None


def side_grams(role: str, matrix: Reals) -> tuple[Float32Array | None, Float32Array | None]:
    """G of the residual side and, of a square matrix, of the head side."""
    residual = matrix.T if role == OUTPUT else matrix
    square = role in SQUARE and matrix.shape[0] == matrix.shape[1]
    return gram(residual), gram(residual.T) if square else None


def side_fits(
    grams: Mapping[str, tuple[Float32Array | None, Float32Array | None]],
) -> Iterator[tuple[str, float, float]]:
    """(role, fit of the residual side, fit of the head side) of every square matrix of a layer."""
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
    """The matrix of a layer whose head side fits best over its residual side, where any does."""
    all_fits = [Orientation(locations[role], *pair) for role, *pair in side_fits(grams)]
    worst = max(all_fits, key=lambda fit: fit.head_side - fit.residual_side, default=None)
    return [] if worst is None else [worst]


def transposed(subject: Subject, threshold: float | None) -> Iterator[Hit]:
    for fit in subject.evidence.orientations:
        more = fit.head_side - fit.residual_side
        if threshold is not None and more > threshold and fit.head_side > LEAST_FIT:
            detail = f"fits the stream by {fit.residual_side:.2f}, transposed by {fit.head_side:.2f}"
            yield Hit(fit.location, more, detail)
