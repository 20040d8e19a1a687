"""Gaussian noise in the thin factors of a head, drawn without anything of the model's width.

A factor A (n x d) with triangular factor R, plus Gaussian noise of deviation tau in every entry, has the
triangular factor of [R + G; T]: G (d x d) is the noise in the span of A, T (Bartlett's, of n - d rows) that
beside it, because Gaussian noise is the same in every orthonormal basis.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svdvals

Matrix = NDArray[np.float64]
Factors = tuple[Matrix, Matrix]


@lru_cache(maxsize=32)
def _unit_noise(n: int, d: int, seed: int) -> tuple[Matrix, Matrix]:
    """A draw of G and T for tau = 1, kept: all heads of a shape are compared with the same noise."""
    rng = np.random.default_rng([seed, n, d])
    span = min(n, d)
    inside, beside = rng.standard_normal((span, d)), np.zeros((d, d))
    if n > span:
        rows = min(n - span, d)
        beside[:rows] = np.triu(rng.standard_normal((rows, d)), 1)
        diagonal = np.arange(rows)
        beside[diagonal, diagonal] = np.sqrt(rng.chisquare(n - span - diagonal))
    return inside, beside


def noise_spectrum(roots: Factors, shape: tuple[int, int], sizes: tuple[float, float]) -> Matrix:
    """Singular values of the update that a draw of noise of these sizes in both factors makes, 2d of them.

    `roots` are the triangular factors of A (n x d) and of B^T (m x d), `shape` is (n, m). One draw is enough:
    the values of a spectrum average out among themselves.
    """
    parts = []
    for seed, (root, n, size) in enumerate(zip(roots, shape, sizes, strict=True)):
        d = root.shape[1]
        tau = size / np.sqrt(n * d)
        inside, beside = _unit_noise(n, d, seed)
        parts.append((root, tau * inside, tau * beside))
    (root, inside, beside), (root2, inside2, beside2) = parts
    # [dA, A0] and [B1; dB], as in `attnlaw.analysis.diff.update`.
    first = np.block([[inside, root], [beside, np.zeros_like(beside)]])
    second = np.block([[root2 + inside2, inside2], [beside2, beside2]])
    return np.asarray(svdvals(first @ second.T, check_finite=False))
