"""What a student sees of any square matrix: fields of pairs of tokens, or of Gaussian matrices.

Untied attention, `pairs` of query a and key b. Normalisation:

    tokens    h_ab = (x_a^T S z_b - delta Tr S) / sqrt(d),  x, z ~ N(0, I_d);  z = x but for `cross` pairs,
              delta = 1 where a token meets itself (pairs `all`, which only trajectories see)
    ginibre   h = Gaussian of the same variance |S|_F^2/d, independent for every pair: the model that the
              theory solves exactly. Of `all` pairs those of one (a, b) are seen through one matrix, in both
              orders, and a token with itself through a symmetric one, as tokens would show them

| letter | meaning | shape |
|---|---|---|
| d, T, n | matrix size, tokens per sample, samples | |
| P | pairs of a sample, in the order of `PAIRS` | |
| h | fields of all samples, one column per pair | (n, P) |

Both offer `fields(S)`, its adjoint `adjoint(r)`, with `<fields(S), r> = Tr(S^T adjoint(r))`, and `gram()`, as
the sensings of symmetric matrices do (`attnlaw.theory.learn.sensing`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.theory.learn.choices import PAIRS
from attnlaw.theory.learn.sensing import TEST_SEQUENCES, Array, check_dense, correlated


@dataclass(frozen=True)
class PairSensing:
    """Fields of queries `x` and keys `z`, each of shape (T, n, d), for the `places` (a, b).

    >>> x, z = np.array([[[1.0, 2.0]]]), np.array([[[0.0, 1.0]]])  # T = 1, n = 1, d = 2
    >>> (PairSensing(x, z, ((0, 0),)).fields(np.array([[1.0, 3.0], [0.0, 5.0]])) * np.sqrt(2.0)).tolist()
    [[13.0]]
    """

    x: Array
    z: Array
    places: tuple[tuple[int, int], ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(samples, tokens, size)."""
        tokens, samples, size = self.x.shape
        return samples, tokens, size

    def fields(self, matrix: Array) -> Array:
        """h of shape (n, P)."""
        samples, _, size = self.shape
        seen = (self.x.reshape(-1, size) @ matrix).reshape(self.x.shape)
        h = np.empty((samples, len(self.places)))
        for p, (a, b) in enumerate(self.places):
            np.einsum("ni,ni->n", seen[a], self.z[b], out=h[:, p])
        h[:, self._selves] -= np.trace(matrix)
        return np.asarray(h / np.sqrt(size))

    @property
    def _selves(self) -> list[int]:
        """The pairs of a token with itself, whose fields are centred."""
        return [p for p, (a, b) in enumerate(self.places) if a == b and self.z is self.x]

    def adjoint(self, weights: Array) -> Array:
        """Sum over samples and pairs of weight times `(x_a z_b^T - delta I) / sqrt(d)`."""
        size = self.shape[2]
        u = np.zeros_like(self.x)
        for p, (a, b) in enumerate(self.places):
            u[a] += weights[:, p, None] * self.z[b]
        g = self.x.reshape(-1, size).T @ u.reshape(-1, size)
        g[np.diag_indices(size)] -= weights[:, self._selves].sum()
        return np.asarray(g / np.sqrt(size))

    def gram(self) -> Array:
        """Inner products of the sensing matrices, shape (nP, nP), samples first then pairs."""
        samples, _, size = self.shape
        count = len(self.places)
        check_dense(samples * count, samples * count, ", or a {weight_decay} of at least 0.02", size)
        queries, keys = zip(*self.places, strict=True)
        x = self.x[list(queries)].transpose(1, 0, 2).reshape(-1, size)
        z = self.z[list(keys)].transpose(1, 0, 2).reshape(-1, size)
        return (x @ x.T) * (z @ z.T) / size


@dataclass(frozen=True)
class SquareSensing:
    """Fields of Gaussian matrices with independent entries, `rows` of shape (nP, d^2).

    >>> rows = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> SquareSensing(rows, samples=1, tokens=1, size=2).fields(np.eye(2)).tolist()
    [[5.0]]
    """

    rows: Array
    samples: int
    tokens: int
    size: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """(samples, tokens, size)."""
        return self.samples, self.tokens, self.size

    def fields(self, matrix: Array) -> Array:
        """h of shape (n, P)."""
        return (self.rows @ matrix.reshape(-1)).reshape(self.samples, -1)

    def adjoint(self, weights: Array) -> Array:
        """Sum over samples and pairs of weight times sensing matrix."""
        return np.asarray((weights.reshape(-1) @ self.rows).reshape(self.size, self.size))

    def gram(self) -> Array:
        """Inner products of the sensing matrices, shape (nP, nP), samples first then pairs."""
        return self.rows @ self.rows.T


def draw_pairs(
    samples: int, tokens: int, pairs: str, size: int, rng: np.random.Generator, queries: int | None = None
) -> PairSensing:
    """Sequences of Gaussian tokens; keys of their own where `pairs` is crossed. `queries`: only so many."""
    kind = PAIRS[pairs]
    x = rng.standard_normal((tokens if queries is None else queries, samples, size))
    z = rng.standard_normal((tokens, samples, size)) if kind.crossed else x
    return PairSensing(x, z, kind.visible_pairs(tokens, queries))


def draw_squares(
    samples: int, tokens: int, pairs: str, size: int, rng: np.random.Generator, queries: int | None = None
) -> SquareSensing:
    """A Gaussian matrix for each pair of each sample; `all` pairs as tokens show them (`mirrored`)."""
    rows = rng.standard_normal((samples * PAIRS[pairs].count(tokens, queries), size * size)) / np.sqrt(size)
    if PAIRS[pairs].mirrored:
        square = rows.reshape(samples, tokens, tokens, size, size)
        flipped = square.swapaxes(3, 4)
        for a in range(tokens):
            square[:, a, a] = (square[:, a, a] + flipped[:, a, a]) / np.sqrt(2.0)
            for b in range(a):
                square[:, a, b] = flipped[:, b, a]
    return SquareSensing(rows, samples, tokens, size)


def fresh_pairs(
    matrix: Array, target: Array, tokens: int, pairs: str, rng: np.random.Generator, queries: int | None
) -> tuple[Array, Array]:
    """Fields of a student's and of the target's matrix on 8192 fresh sequences."""
    fresh = draw_pairs(TEST_SEQUENCES, tokens, pairs, len(matrix), rng, queries)
    return fresh.fields(matrix), fresh.fields(target)


def fresh_squares(
    matrix: Array, target: Array, tokens: int, pairs: str, rng: np.random.Generator, queries: int | None
) -> tuple[Array, Array]:
    """The same under fresh Gaussian matrices: Gaussian with covariance [[q, m], [m, Q]]."""
    z = rng.standard_normal((2, TEST_SEQUENCES, PAIRS[pairs].count(tokens, queries)))
    return correlated(matrix, target, z)


def hidden_target(values: Array, rng: np.random.Generator) -> Array:
    """`diag(s) O` with singular values s (d,) and O a random rotation (Haar).

    A diagonal target is symmetric: the two orders of a pair would then show the same field.
    """
    q, r = np.linalg.qr(rng.standard_normal((values.size, values.size)))
    return np.asarray(values[:, None] * (q * np.sign(np.diag(r))))
