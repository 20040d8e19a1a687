"""Gaussian noise in the thin factors of a head, drawn without anything of the model's width.

A factor A (n x d) with triangular factor R, plus Gaussian noise of deviation tau in every entry, has the
triangular factor of [R + G; T]: G (d x d) is the noise in the span of A, T (Bartlett's, of n - d rows) that
beside it, because Gaussian noise is the same in every orthonormal basis.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Factors = tuple[Matrix, Matrix]
DRAWS = 2  # the values of one spectrum average out among themselves


@lru_cache(maxsize=32)
def _unit_noise(n: int, d: int, seed: int) -> tuple[Matrix, Matrix]:
    """Draws of G and T for tau = 1, kept: all heads of a shape are compared with the same noise."""
    rng = np.random.default_rng([seed, n, d])
    own = min(n, d)
    inside, beside = rng.standard_normal((DRAWS, own, d)), np.zeros((DRAWS, d, d))
    if n > own:
        rows = min(n - own, d)
        beside[:, :rows] = np.triu(rng.standard_normal((DRAWS, rows, d)), 1)
        diagonal = np.arange(rows)
        beside[:, diagonal, diagonal] = np.sqrt(rng.chisquare(n - own - diagonal, (DRAWS, rows)))
    return inside, beside


def noise_spectrum(roots: Factors, shape: tuple[int, int], sizes: tuple[float, float]) -> Matrix:
    """Mean singular values of the update that noise of these sizes in both factors makes, 2d of them.

    `roots` are the triangular factors of A (n x d) and of B^T (m x d), `shape` is (n, m).
    """
    parts = []
    for seed, (root, n, size) in enumerate(zip(roots, shape, sizes, strict=True)):
        d = root.shape[1]
        tau = size / np.sqrt(n * d)
        inside, beside = _unit_noise(n, d, seed)
        parts.append((root, tau * inside, tau * beside))
    (root, inside, beside), (root2, inside2, beside2) = parts
    # [dA, A0] and [B1; dB], as in `attnlaw.comparing.update`.
    first = np.block([[inside, np.broadcast_to(root, inside.shape)], [beside, np.zeros_like(beside)]])
    second = np.block([[root2 + inside2, inside2], [beside2, beside2]])
    values = np.linalg.svd(first @ _turned(second), compute_uv=False)
    return np.asarray(values.mean(axis=0))


def _turned(stack: Matrix) -> Matrix:
    return np.swapaxes(stack, -1, -2)
