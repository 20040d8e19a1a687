"""Small random matrices that replace large Gaussian ones, and square roots of Gram matrices.

| here          | means                                                                    |
|---------------|--------------------------------------------------------------------------|
| `df`          | degrees of freedom: the number of columns of the large Gaussian matrix   |
| `Bart(p, df)` | p x min(p, df) lower trapezoidal; `Bart Bart^T ~ Wishart_p(df)`          |
| root          | any L with `L L^T` equal to the Gram matrix                              |

A p x df standard normal matrix Z has the law of `Bart(p, df) Q`, where Q has orthonormal rows and is
independent of the first factor (Bartlett 1933). So a product `Z Z'^T` of two independent ones has the law of
`Bart(p, df) N`, with N standard normal of size min(p, df) x p. Nothing of size df is ever drawn.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]


class Streams(NamedTuple):
    """The random generators of a chunk. Runs with the same seed use the same ones at every width."""

    normals: np.random.Generator  # of numbers that the limit draws too
    widths: np.random.Generator  # of numbers that only a finite width needs (Bartlett's factors)
    inputs: np.random.Generator  # of the tokens


def streams(seed: int, chunk: int = 0) -> Streams:
    """Return the generators of one chunk of draws, for a seed."""
    children = np.random.SeedSequence(seed, spawn_key=(chunk,)).spawn(3)
    return Streams(*(np.random.Generator(np.random.SFC64(child)) for child in children))


def bartlett(rows: int, df: int, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw Bartlett's factor: chi variables on the diagonal (df - i degrees of freedom), normals below."""
    columns = min(rows, df)
    factor = np.zeros((*shape, rows, columns))
    below = np.tril_indices(rows, -1, columns)
    factor[..., below[0], below[1]] = rng.standard_normal((*shape, below[0].size))
    for i in range(columns):
        factor[..., i, i] = np.sqrt(rng.chisquare(df - i, shape))
    return factor


def complex_bartlett(rows: int, df: int, shape: tuple[int, ...], rng: np.random.Generator) -> ComplexArray:
    """Draw Bartlett's factor for complex normals. Its squared diagonal entries are Gamma(df - i)."""
    columns = min(rows, df)
    factor = np.zeros((*shape, rows, columns), dtype=np.complex128)
    below = np.tril_indices(rows, -1, columns)
    factor[..., below[0], below[1]] = complex_normals((*shape, below[0].size), rng)
    for i in range(columns):
        factor[..., i, i] = np.sqrt(rng.standard_gamma(df - i, shape))
    return factor


def complex_normals(shape: tuple[int, ...], rng: np.random.Generator) -> ComplexArray:
    """Draw complex normals z with E|z|^2 = 1."""
    pairs = rng.standard_normal((*shape, 2)) * math.sqrt(0.5)
    return pairs.view(np.complex128)[..., 0]


def compress(root: Array) -> Array:
    """Return a root with the same Gram matrix `L L^T` and at most as many columns as rows."""
    rows, columns = root.shape[-2:]
    if columns <= rows:
        return root
    upper = np.linalg.qr(np.swapaxes(root, -1, -2), mode="r")
    # A non-negative diagonal makes the root a continuous function of the Gram matrix, so that runs
    # of different widths with the same normals stay close.
    signs = np.where(np.diagonal(upper, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    return np.asarray(np.swapaxes(upper * signs[..., :, None], -1, -2))


def symmetric_root(gram: Array) -> Array:
    """Return the symmetric square root of positive semi-definite matrices (..., s, s)."""
    values, vectors = np.linalg.eigh(gram)
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    return np.asarray(scaled @ np.swapaxes(vectors, -1, -2))


def root_of_rows(rows: Array) -> Array:
    """Return a root of `X X^T` for X of shape (..., s, n): X itself, or the symmetric root if n > s."""
    tokens, columns = rows.shape[-2:]
    if columns <= tokens:
        return rows
    return symmetric_root(rows @ np.swapaxes(rows, -1, -2))
