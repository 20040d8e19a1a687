"""Targets seen through noise, as the law of learned spectra has them, drawn."""

from __future__ import annotations

import numpy as np


def blurred(rng: np.random.Generator, size: int, m: int, noise: float, attention: str) -> np.ndarray:
    """Eigenvalues (untied: singular values), ascending, of a target of rank m with noise on it."""
    first, second = rng.standard_normal((2, size, m))
    blur = rng.standard_normal((size, size)) / np.sqrt(size)
    if attention == "tied":
        seen = first @ first.T / np.sqrt(m * size) + noise * (blur + blur.T) / np.sqrt(2)
        return np.linalg.eigvalsh(seen)
    return np.linalg.svd(first @ second.T / np.sqrt(m * size) + noise * blur, compute_uv=False)[::-1]
