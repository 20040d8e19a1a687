"""Draws of the beta-Laguerre ensemble, whose limit is the high-temperature law."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

from attnlaw.core.arrays import Reals


def beta_laguerre(size: int, kappa: float, gamma: float, seed: int | np.random.Generator) -> Reals:
    """Draw the eigenvalues of one beta-Laguerre matrix at beta = kappa/size, in ascending order.

    The mean of the eigenvalues is about 1. The bidiagonal model B of Dumitriu and Edelman (2002) has squared
    diagonal entries that are chi-squared with `kappa/gamma - kappa i/N` degrees of freedom, where N is the
    size. Its squared sub-diagonal entries have `kappa (1 - i/N)` degrees of freedom. The eigenvalues are
    those of `B B^T` times gamma/kappa.

    >>> beta_laguerre(4, 12.0, 0.25, seed=1).shape
    (4,)
    """
    rng = np.random.default_rng(seed)
    i = np.arange(size)
    diagonal = rng.chisquare(kappa / gamma - kappa * i / size)
    below = rng.chisquare(kappa * (1 - i[1:] / size))
    main = diagonal + np.concatenate([[0.0], below])
    eigenvalues = eigvalsh_tridiagonal(main, np.sqrt(diagonal[:-1] * below))
    return np.asarray(np.maximum(eigenvalues, 0.0) * (gamma / kappa))
