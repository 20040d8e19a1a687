"""The fields of a matrix, which are all that a student sees of it, for Gaussian tokens or Gaussian matrices.

This is the attention-indexed model of arXiv 2509.24914 (base model arXiv 2506.01582).

| letter | meaning | shape |
|---|---|---|
| d, T, n | matrix size, tokens per sample, samples | |
| P | pairs of a sample: a <= b as in `np.triu_indices(T)` if tied, as in `PAIRS` if untied | |
| S | matrix, symmetric if tied | (d, d) |
| h | fields of all samples, one column per pair | (n, P) |

Tied attention, symmetric S:

    tokens   h_ab = (x_a^T S x_b - delta_ab Tr S) / sqrt(d),  x_a ~ N(0, I_d),  a, b = 1..T
    signed   tokens, with all fields of a sample multiplied by one random sign: as far from Gaussian, but not
             skewed; shows which part of a deviation from the limit is skewness
    goe      h_ab = Gaussian with the covariance that tokens give: 2 |S|_F^2/d if a = b, |S|_F^2/d if not,
             independent for different pairs: the model that the theory solves exactly

Untied attention, any S, pairs of query a and key b:

    tokens    h_ab = (x_a^T S z_b - delta Tr S) / sqrt(d),  x, z ~ N(0, I_d);  z = x except for `cross` pairs,
              delta = 1 if a token meets itself (pairs `all`, which only trajectories see)
    ginibre   h = Gaussian of the same variance |S|_F^2/d, independent for every pair: the model that the
              theory solves exactly. With `all` pairs, (a, b) and (b, a) are seen through one matrix, and a
              token with itself through a symmetric one, as tokens would show them
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting

LARGEST_DENSE_BYTES = 2**31


@lru_cache(maxsize=16)
def upper(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows and columns of the upper triangle, as `np.triu_indices` does."""
    rows, columns = np.triu_indices(size)
    rows.flags.writeable = columns.flags.writeable = False
    return rows, columns


@dataclass(frozen=True, eq=False)
class TokenSensing:
    """Inputs that are sequences of tokens, and the scores of token pairs under a symmetric matrix."""

    x: Reals  # tokens of shape (T, n, d)
    signs: Reals = field(default_factory=lambda: np.ones(1))  # factors of the fields, of shape (n,) or (1,)

    @property
    def shape(self) -> tuple[int, int, int]:
        tokens, samples, size = self.x.shape
        return samples, tokens, size

    def fields(self, matrix: Reals) -> Reals:
        samples, tokens, size = self.shape
        z = (self.x.reshape(-1, size) @ matrix).reshape(self.x.shape)
        first, second = upper(tokens)
        h = np.empty((samples, first.size))
        for p, (a, b) in enumerate(zip(first, second, strict=True)):
            np.einsum("ni,ni->n", self.x[a], z[b], out=h[:, p])
        h[:, first == second] -= np.trace(matrix)
        return np.asarray(self.signs[:, None] * h / np.sqrt(size))

    def adjoint(self, weights: Reals) -> Reals:
        """Return the sum of weight times `(sym(x_a x_b^T) - delta_ab I) / sqrt(d)` over all pairs."""
        _, tokens, size = self.shape
        weights = self.signs[:, None] * weights
        first, second = upper(tokens)
        u = np.zeros_like(self.x)
        for p, (a, b) in enumerate(zip(first, second, strict=True)):
            u[a] += weights[:, p, None] * self.x[b]
        g = self.x.reshape(-1, size).T @ u.reshape(-1, size)
        g = 0.5 * (g + g.T)
        g[np.diag_indices(size)] -= weights[:, first == second].sum()
        return np.asarray(g / np.sqrt(size))

    def gram(self) -> Reals:
        samples, tokens, size = self.shape
        first, second = upper(tokens)
        count = first.size
        check_dense(samples * count, samples * count, ", or a {weight_decay} of at least 0.02", size)
        kernel = np.einsum("ami,bni->abmn", self.x, self.x, optimize=True)
        gram = np.empty((samples, count, samples, count))
        for p, (a, b) in enumerate(zip(first, second, strict=True)):
            for r, (e, f) in enumerate(zip(first, second, strict=True)):
                block = 0.5 * (kernel[a, e] * kernel[b, f] + kernel[a, f] * kernel[b, e])
                if a == b:
                    block -= np.einsum("ni,ni->n", self.x[e], self.x[f])[None, :]
                if e == f:
                    block -= np.einsum("mi,mi->m", self.x[a], self.x[b])[:, None]
                if a == b and e == f:
                    block += size
                gram[:, p, :, r] = self.signs[:, None] * block * self.signs
        return gram.reshape(samples * count, samples * count) / size


@dataclass(frozen=True, eq=False)
class MatrixSensing:
    """Inputs that are independent symmetric Gaussian matrices, and the scores that they give."""

    rows: Reals  # (nP, d(d+1)/2) in isometric coordinates: S_ii, and sqrt(2) S_ij for i < j
    tokens: int
    size: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows.shape[0] // (self.tokens * (self.tokens + 1) // 2), self.tokens, self.size

    def fields(self, matrix: Reals) -> Reals:
        i, j = upper(self.size)
        coordinates = matrix[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
        return (self.rows @ coordinates).reshape(self.shape[0], -1)

    def adjoint(self, weights: Reals) -> Reals:
        i, j = upper(self.size)
        coordinates = weights.reshape(-1) @ self.rows
        g = np.zeros((self.size, self.size))
        g[i, j] = g[j, i] = coordinates / np.where(i == j, 1.0, np.sqrt(2.0))
        return g

    def gram(self) -> Reals:
        return self.rows @ self.rows.T


def check_dense(rows: int, columns: int, remedy: str, size: int) -> None:
    """Raise a `BadSetting` if a dense matrix does not fit into memory."""
    if 8 * rows * columns > LARGEST_DENSE_BYTES:
        raise BadSetting(
            "size",
            f"this needs a dense {rows} x {columns} matrix, more than {LARGEST_DENSE_BYTES // 2**30} GiB; "
            f"choose a smaller {{size}}{remedy}",
            size,
        )


@dataclass(frozen=True, eq=False)
class PairSensing:
    """Inputs that are queries and keys, and the scores of their pairs."""

    x: Reals  # queries of shape (T, n, d)
    z: Reals  # keys of shape (T, n, d); the same array as x if both are the tokens of one sequence
    places: tuple[tuple[int, int], ...]  # the pairs (a, b) of query and key

    @property
    def shape(self) -> tuple[int, int, int]:
        tokens, samples, size = self.x.shape
        return samples, tokens, size

    def fields(self, matrix: Reals) -> Reals:
        samples, _, size = self.shape
        seen = (self.x.reshape(-1, size) @ matrix).reshape(self.x.shape)
        h = np.empty((samples, len(self.places)))
        for p, (a, b) in enumerate(self.places):
            np.einsum("ni,ni->n", seen[a], self.z[b], out=h[:, p])
        h[:, self._selves] -= np.trace(matrix)
        return np.asarray(h / np.sqrt(size))

    @property
    def _selves(self) -> list[int]:
        """The columns of pairs of a token with itself, whose fields are centred."""
        return [p for p, (a, b) in enumerate(self.places) if a == b and self.z is self.x]

    def adjoint(self, weights: Reals) -> Reals:
        """Return the sum of weight times `(x_a z_b^T - delta I) / sqrt(d)` over all pairs."""
        size = self.shape[2]
        u = np.zeros_like(self.x)
        for p, (a, b) in enumerate(self.places):
            u[a] += weights[:, p, None] * self.z[b]
        g = self.x.reshape(-1, size).T @ u.reshape(-1, size)
        g[np.diag_indices(size)] -= weights[:, self._selves].sum()
        return np.asarray(g / np.sqrt(size))

    def gram(self) -> Reals:
        samples, _, size = self.shape
        count = len(self.places)
        check_dense(samples * count, samples * count, ", or a {weight_decay} of at least 0.02", size)
        queries, keys = zip(*self.places, strict=True)
        x = self.x[list(queries)].transpose(1, 0, 2).reshape(-1, size)
        z = self.z[list(keys)].transpose(1, 0, 2).reshape(-1, size)
        return (x @ x.T) * (z @ z.T) / size


@dataclass(frozen=True, eq=False)
class SquareSensing:
    """Inputs that are Gaussian matrices with independent entries, and the scores that they give."""

    rows: Reals  # the matrices, of shape (nP, d^2)
    samples: int
    tokens: int
    size: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.samples, self.tokens, self.size

    def fields(self, matrix: Reals) -> Reals:
        return (self.rows @ matrix.reshape(-1)).reshape(self.samples, -1)

    def adjoint(self, weights: Reals) -> Reals:
        return np.asarray((weights.reshape(-1) @ self.rows).reshape(self.size, self.size))

    def gram(self) -> Reals:
        return self.rows @ self.rows.T


# A linear function from a matrix S to its fields h, of shape (n, P). `adjoint(weights)` returns the (d, d)
# matrix with `<fields(S), weights> = Tr(S^T adjoint(weights))` for every S, and `gram()` the (nP, nP) inner
# products of the sensing matrices, ordered by sample, then by pair. `shape` is (n, T, d).
Sensing = TokenSensing | MatrixSensing | PairSensing | SquareSensing
