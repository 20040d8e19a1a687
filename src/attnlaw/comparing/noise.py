"""Gaussian noise in the thin factors of a head, drawn without anything of the model's width.

A factor A (n x d) with triangular factor R, plus Gaussian noise of deviation tau in every entry, has the
triangular factor of [R + G; T]: G (d x d) is the noise in the span of A, T (Bartlett's, of n - d rows) that
beside it, because Gaussian noise is the same in every orthonormal basis.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Stacks = tuple[Matrix, Matrix, Matrix]
# Draws of moves, and of a whole spectrum, whose values average out among themselves.
DRAWS, SPECTRUM_DRAWS = 60, 2


def noise_in(factor: Matrix, size: float, draws: int, rng: np.random.Generator) -> Stacks:
    """R, and draws of G and T, for noise of Frobenius norm about `size`."""
    n, d = factor.shape
    tau, own = size / np.sqrt(n * d), min(n, d)
    inside = tau * rng.standard_normal((draws, own, d))
    beside = np.zeros((draws, d, d))
    if n > own:
        rows = min(n - own, d)
        beside[:, :rows] = np.triu(rng.standard_normal((draws, rows, d)), 1)
        diagonal = np.arange(rows)
        beside[:, diagonal, diagonal] = np.sqrt(rng.chisquare(n - own - diagonal, (draws, rows)))
    return np.linalg.qr(factor, mode="r"), inside, tau * beside


def noisy_squares(
    factors: tuple[Matrix, Matrix], sizes: tuple[float, float], count: int, rng: np.random.Generator
) -> Matrix:
    """The largest squared singular values of A B with noise in both factors, shape (draws, count)."""
    grams = []
    for factor, size in zip((factors[0], factors[1].T), sizes, strict=True):
        root, inside, beside = noise_in(factor, size, DRAWS, rng)
        grams.append(_gram(root + inside) + _gram(beside))
    return top_squares(grams[0], grams[1], count)


def top_squares(first: Matrix, second: Matrix, count: int) -> Matrix:
    """The largest squared singular values of A B, from A^T A and B B^T (or stacks of them).

    >>> top_squares(np.diag([4.0, 1.0]), np.eye(2), 1).round(9)
    array([4.])
    """
    d = second.shape[-1]
    least = 1e-13 * np.trace(second, axis1=-2, axis2=-1)[..., None, None] * np.eye(d)  # else not definite
    root = np.linalg.cholesky(second + least + np.finfo(float).tiny * np.eye(d))
    squares = np.linalg.eigvalsh(np.swapaxes(root, -1, -2) @ first @ root)
    return np.asarray(np.maximum(squares[..., ::-1][..., :count], 0.0))


def noise_spectrum(factors: tuple[Matrix, Matrix], sizes: tuple[float, float], seed: int = 0) -> Matrix:
    """Mean singular values of the update that noise of these sizes in both factors makes, 2d of them."""
    rng = np.random.default_rng([seed, *factors[0].shape, factors[1].shape[1]])
    (root, inside, beside), (root2, inside2, beside2) = (
        noise_in(factor, size, SPECTRUM_DRAWS, rng)
        for factor, size in zip((factors[0], factors[1].T), sizes, strict=True)
    )
    # [dA, A0] and [B1; dB], as in `attnlaw.comparing.update`.
    base = np.broadcast_to(root, inside.shape)
    first = np.concatenate(
        [np.concatenate([inside, base], axis=2), np.concatenate([beside, np.zeros_like(beside)], axis=2)], axis=1
    )
    second = np.concatenate(
        [np.concatenate([root2 + inside2, inside2], axis=2), np.concatenate([beside2, beside2], axis=2)], axis=1
    )
    values = np.linalg.svd(first @ np.swapaxes(second, 1, 2), compute_uv=False)
    return np.asarray(values.mean(axis=0))


def _gram(stack: Matrix) -> Matrix:
    return np.asarray(np.swapaxes(stack, -1, -2) @ stack)
