"""Compute singular values and vectors of the update of a head or a matrix, even if the update is tiny.

A head is M = A B with thin factors, n x d and d x m. Index 0 is the base, 1 the model:

    D = M1 - M0 = [dA, A0] [B1; dB],    dA = A1 - A0,  dB = B1 - B0

D has rank 2d at most, so it takes two QR factorisations and the SVD of a 2d x 2d core. Subtracting the
factors first is exact for float32 and below. [A1, -A0] [B1; B0] is the same matrix, but with cancellation: at
dA/A = 1e-9 its singular values are wrong by 1e-7.

Left is the side of inputs, because matrices act on row vectors. A stored matrix keeps the singular vectors of
its shorter side. Those of the longer side, W^T u / s, are computed when they are needed. Directions below
1e-7 of the largest value are round-off there and have no coordinates.

Noise of the size of an update is the reference for its spectrum. A factor A (n x d) with triangular factor R,
plus Gaussian noise of deviation tau in every entry, has the triangular factor of [R + G; T]. G (d x d) is the
noise in the span of A. T (Bartlett's triangle, of n - d rows) is the noise outside of it. So nothing of the
width n is drawn: Gaussian noise is the same in every orthonormal basis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy

from attnlaw.analysis.diff.rounding import rank_above
from attnlaw.core.arrays import Reals
from attnlaw.numerics.symmetric import symmetric_eigenvalues

RESOLVED = 1e-6
HeadFactors = tuple[Reals, Reals]  # A (n x d) and B (d x m)


def head_update_values(left0: Reals, right0: Reals, left1: Reals, right1: Reals) -> Reals:
    """Return the singular values of `left1 @ right1 - left0 @ right0`, in decreasing order.

    If the heads have different inner dimensions d, the factors of the smaller one are filled with zeros.

    >>> ones = np.ones((2, 1))
    >>> head_update_values(ones, ones.T, 3 * ones, ones.T).round(12)
    array([4., 0.])
    """
    left0, left1 = pad_columns(left0, left1)
    bottom0, bottom1 = (part.T for part in pad_columns(right0.T, right1.T))
    first = np.hstack([left1 - left0, left0])
    second = np.vstack([bottom1, bottom1 - bottom0])
    core = triangle(first) @ triangle(second.T).T
    return np.asarray(scipy.linalg.svdvals(core, check_finite=False))


def matrix_update_values(update: Reals, floor: float) -> Reals:
    """Return the singular values of an update, accurate enough to count those above the floor."""
    short = update if update.shape[0] <= update.shape[1] else update.T
    squares = symmetric_eigenvalues(short @ short.T)[::-1]
    resolved = int(np.count_nonzero(squares > RESOLVED**2 * squares[0]))
    low = rank_above(np.sqrt(np.maximum(squares, 0.0)), floor) <= short.shape[0] / 4
    if not low and (resolved == squares.size or floor > RESOLVED * np.sqrt(squares[0])):
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))
    return np.asarray(scipy.linalg.svdvals(update, check_finite=False))


def triangle(matrix: Reals) -> Reals:
    """Return the triangular factor R of the QR factorisation."""
    return np.asarray(np.linalg.qr(matrix, mode="r"))


def pad_columns(first: Reals, second: Reals) -> tuple[Reals, Reals]:
    """Fill the narrower of two matrices with columns of zeros, so that both have the same width."""
    most = max(first.shape[1], second.shape[1])
    padded_first, other = (np.pad(part, ((0, 0), (0, most - part.shape[1]))) for part in (first, second))
    return padded_first, other


def product_inner(left0: Reals, right0: Reals, left1: Reals, right1: Reals) -> float:
    """Return the inner product <A0 B0, A1 B1> of two heads without forming the products A0 B0 and A1 B1."""
    return float(np.sum((left0.T @ left1) * (right0 @ right1.T)))


@lru_cache(maxsize=32)
def _unit_noise(n: int, d: int, seed: int) -> tuple[Reals, Reals]:
    """Draw the noise G and T (see the head of this module) for tau = 1, once for all heads of a shape."""
    rng = np.random.default_rng([seed, n, d])
    span = min(n, d)
    inside, beside = rng.standard_normal((span, d)), np.zeros((d, d))
    if n > span:
        rows = min(n - span, d)
        beside[:rows] = np.triu(rng.standard_normal((rows, d)), 1)
        diagonal = np.arange(rows)
        beside[diagonal, diagonal] = np.sqrt(rng.chisquare(n - span - diagonal))
    return inside, beside


def noise_spectrum(roots: tuple[Reals, Reals], shape: tuple[int, int], sizes: tuple[float, float]) -> Reals:
    """Return the 2d singular values of the update that noise of these sizes in both factors makes."""
    parts = []
    for seed, (root, n, size) in enumerate(zip(roots, shape, sizes, strict=True)):
        d = root.shape[1]
        tau = size / np.sqrt(n * d)
        inside, beside = _unit_noise(n, d, seed)
        parts.append((root, tau * inside, tau * beside))
    (root, inside, beside), (root2, inside2, beside2) = parts
    # [dA, A0] and [B1; dB], as in the head of this file.
    first = np.block([[inside, root], [beside, np.zeros_like(beside)]])
    second = np.block([[root2 + inside2, inside2], [beside2, beside2]])
    return np.asarray(scipy.linalg.svdvals(first @ second.T, check_finite=False))


Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
ROUND_OFF = 1e-7
# Lanczos is used for up to this share of all vectors, with this relative error.
FEW, LANCZOS_ERROR = 0.05, 1e-8


@dataclass(frozen=True, eq=False)
class ProductVectors:
    """The singular values of a product A B, with their vectors. Values that are always zero are left out."""

    left: Reals
    values: Reals
    right: Reals
    roots: tuple[Reals, Reals]  # the triangular factors of A and B^T

    @classmethod
    def of(cls, left: Reals, right: Reals) -> ProductVectors:
        """Compute the singular values and vectors of a product from its factors, n x d and d x m."""
        (q_left, r_left), (q_right, r_right) = np.linalg.qr(left), np.linalg.qr(right.T)
        u, values, vh = np.linalg.svd(r_left @ r_right.T)
        count = values.size
        return cls(q_left @ u[:, :count], values, q_right @ vh[:count].T, (r_left, r_right))

    def factor_norm(self, side: Side) -> float:
        """Return the spectral norm of A (side "left") or of B (side "right")."""
        root = self.roots[SIDES.index(side)]
        return float(np.sqrt(max(np.linalg.eigvalsh(root.T @ root)[-1], 0.0)))

    def leading(self, side: Side, count: int) -> Reals:
        return (self.left if side == "left" else self.right)[:, :count]

    def coordinates(self, side: Side, vectors: Reals) -> Reals:
        """Return the inner products of the singular vectors of a side (rows) with some vectors (columns)."""
        return (self.left if side == "left" else self.right).T @ vectors


@dataclass(frozen=True, eq=False)
class MatrixVectors:
    """The singular values of a stored matrix, with the vectors of its shorter side."""

    matrix: Reals
    values: Reals
    short: Reals
    # A cache of the first vectors of the longer side.
    _long: Reals = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def of(cls, matrix: Reals) -> MatrixVectors:
        squares, vectors = np.linalg.eigh(_gram(matrix))
        return cls(matrix, np.sqrt(np.maximum(squares[::-1], 0.0)), vectors[:, ::-1])

    @classmethod
    def first(cls, matrix: Reals, count: int) -> MatrixVectors:
        size = min(matrix.shape)
        if count <= FEW * size:
            start = np.random.default_rng(0).standard_normal(size)
            squares, vectors = scipy.sparse.linalg.eigsh(
                _gram(matrix), k=count, which="LA", v0=start, tol=LANCZOS_ERROR
            )
        else:
            wanted = [size - count, size - 1]
            squares, vectors = scipy.linalg.eigh(_gram(matrix), subset_by_index=wanted, check_finite=False)
        order = np.argsort(-squares)
        return cls(matrix, np.sqrt(np.maximum(squares[order], 0.0)), vectors[:, order])

    def leading(self, side: Side, count: int) -> Reals:
        if self._is_short(side):
            return self.short[:, :count]
        if self._long.shape[1] < count:
            object.__setattr__(self, "_long", self._wide.T @ self.short[:, :count] * self._inverse[:count])
        return self._long[:, :count]

    def coordinates(self, side: Side, vectors: Reals) -> Reals:
        if self._is_short(side):
            return self.short.T @ vectors
        return self._inverse[:, None] * (self.short.T @ (self._wide @ vectors))

    def _is_short(self, side: Side) -> bool:
        return (side == "left") == bool(self.matrix.shape[0] <= self.matrix.shape[1])

    @property
    def _wide(self) -> Reals:
        return self.matrix if self.matrix.shape[0] <= self.matrix.shape[1] else self.matrix.T

    @property
    def _inverse(self) -> Reals:
        """The inverse singular values 1/s, with 0 in place of those whose s is only round-off."""
        living = self.values > ROUND_OFF * self.values[0]
        return np.where(living, 1 / np.where(living, self.values, 1.0), 0.0)


SingularVectors = ProductVectors | MatrixVectors


def _gram(matrix: Reals) -> Reals:
    return matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
