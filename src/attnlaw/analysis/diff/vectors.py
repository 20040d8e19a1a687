"""Singular values with vectors, of a matrix that is held and of a product of thin factors.

Both answer alike: leading vectors of a side, and coordinates in all vectors of a side. Left is the side of
inputs (maps act on row vectors). A matrix keeps the vectors of its shorter side; those of the longer one,
W^T u / s, are formed when they are asked for. Directions below 1e-7 of the largest value are round-off there
and have no coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh

Matrix = NDArray[np.float64]
Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
ROUND_OFF = 1e-7
# Lanczos finds up to this share of all vectors, to this relative error.
FEW, LANCZOS_ERROR = 0.05, 1e-8


class SingularVectors(Protocol):
    """What both kinds answer."""

    @property
    def values(self) -> Matrix:
        """Singular values, descending."""

    def leading(self, side: Side, count: int) -> Matrix:
        """The first vectors of a side, as columns."""

    def coordinates(self, side: Side, vectors: Matrix) -> Matrix:
        """Inner products of all vectors of a side (rows) with the columns of `vectors`."""


@dataclass(frozen=True, eq=False)
class ProductVectors:
    """Of a product: all that can differ from zero, with the triangular factors of A and B^T."""

    left: Matrix
    values: Matrix
    right: Matrix
    roots: tuple[Matrix, Matrix]

    @classmethod
    def of(cls, left: Matrix, right: Matrix) -> ProductVectors:
        """By the QR factorisations of both factors, n x d and d x m, and the SVD of their core.

        >>> found = ProductVectors.of(np.array([[3.0], [4.0]]), np.array([[0.0, 2.0]]))
        >>> found.values, abs(found.leading("left", 1)).ravel()
        (array([10.]), array([0.6, 0.8]))
        """
        (q_left, r_left), (q_right, r_right) = np.linalg.qr(left), np.linalg.qr(right.T)
        u, values, vh = np.linalg.svd(r_left @ r_right.T)
        count = values.size
        return cls(q_left @ u[:, :count], values, q_right @ vh[:count].T, (r_left, r_right))

    def factor_norm(self, side: Side) -> float:
        """The spectral norm of a factor."""
        root = self.roots[SIDES.index(side)]
        return float(np.sqrt(max(np.linalg.eigvalsh(root.T @ root)[-1], 0.0)))

    def leading(self, side: Side, count: int) -> Matrix:
        return (self.left if side == "left" else self.right)[:, :count]

    def coordinates(self, side: Side, vectors: Matrix) -> Matrix:
        return (self.left if side == "left" else self.right).T @ vectors


@dataclass(frozen=True, eq=False)
class MatrixVectors:
    """Of a matrix that is held: eigenvectors of its Gram matrix on the shorter side."""

    matrix: Matrix
    values: Matrix
    short: Matrix
    _long: Matrix = field(default_factory=lambda: np.zeros((0, 0)))  # the first of the longer side, kept

    @classmethod
    def of(cls, matrix: Matrix) -> MatrixVectors:
        """All of them."""
        squares, vectors = np.linalg.eigh(_gram(matrix))
        return cls(matrix, np.sqrt(np.maximum(squares[::-1], 0.0)), vectors[:, ::-1])

    @classmethod
    def first(cls, matrix: Matrix, count: int) -> MatrixVectors:
        """The first of them: few by Lanczos, more by a factorisation that stops at them."""
        size = min(matrix.shape)
        if count <= FEW * size:
            start = np.random.default_rng(0).standard_normal(size)
            squares, vectors = eigsh(_gram(matrix), k=count, which="LA", v0=start, tol=LANCZOS_ERROR)
        else:
            wanted = [size - count, size - 1]
            squares, vectors = eigh(_gram(matrix), subset_by_index=wanted, check_finite=False)
        order = np.argsort(-squares)
        return cls(matrix, np.sqrt(np.maximum(squares[order], 0.0)), vectors[:, order])

    def leading(self, side: Side, count: int) -> Matrix:
        if self._is_short(side):
            return self.short[:, :count]
        if self._long.shape[1] < count:
            object.__setattr__(self, "_long", self._wide.T @ self.short[:, :count] * self._inverse[:count])
        return self._long[:, :count]

    def coordinates(self, side: Side, vectors: Matrix) -> Matrix:
        if self._is_short(side):
            return self.short.T @ vectors
        return self._inverse[:, None] * (self.short.T @ (self._wide @ vectors))

    def _is_short(self, side: Side) -> bool:
        return (side == "left") == bool(self.matrix.shape[0] <= self.matrix.shape[1])

    @property
    def _wide(self) -> Matrix:
        return self.matrix if self.matrix.shape[0] <= self.matrix.shape[1] else self.matrix.T

    @property
    def _inverse(self) -> Matrix:
        """1/s, and 0 where s is round-off."""
        living = self.values > ROUND_OFF * self.values[0]
        return np.where(living, 1 / np.where(living, self.values, 1.0), 0.0)


def _gram(matrix: Matrix) -> Matrix:
    """On the shorter side."""
    return matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
