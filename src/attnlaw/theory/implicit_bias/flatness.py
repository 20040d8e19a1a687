r"""Flatness of a product of factors: the trace of its Hessian, and the smallest trace and weight decay.

The product is M = F_1 F_2 .. F_L. The loss is `mean (<A_i, M> - y_i)^2 / 2` at zero residual, for isotropic
measurements with `E <A, X>^2 = |X|_F^2`. Its Hessian in the factors is the Gauss-Newton matrix. Without the
1/2 everything doubles.

| letter | meaning |
|---|---|
| L | depth: 2 for a head, 3 or 4 if a factor is a product itself (latent attention, no norm inside) |
| m, n | rows and columns of M |
| s_i | its singular values, with sum \|M\|_* |
| S | covariance of tokens, with independent query and key: scores are x^T M x' |

Flatness prefers a small |M|_* at every depth (arXiv 2306.13239 shows it under restricted isometry; the
formulas below are ours). Weight decay does so only at L = 2, and prefers fewer values at L = 3 and 4. The
score of a softmax head with cross entropy has another Hessian, and the trace is a proxy for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals, require_spectral_values
from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value

SINGULAR = "give the singular values of the product"


def hessian_trace(factors: Sequence[ArrayLike], covariance: ArrayLike | None = None) -> float:
    """Return the trace of the Hessian at zero loss, for the factors of M = F_1 F_2 .. F_L.

        tr H = sum_l |F_1 .. F_{l-1}|_F^2 |F_{l+1} .. F_L|_F^2

    A product without factors is the identity.

    Args:
        covariance: the covariance S of tokens, for a square M. Every product in the formula then has the
            factor S^(1/2) at both ends. For a head with F = (W_Q, W_K^T) the trace is `Tr S (Tr W_Q^T S W_Q +
            Tr W_K^T S W_K)`.

    >>> hessian_trace([np.eye(3), np.diag([3.0, 1.0, 0.5])])  # 3 |F_1|^2 + 3 |F_2|^2
    39.75
    """
    matrices = [np.asarray(factor, dtype=float) for factor in factors]
    _require_chain(matrices)
    first, last = np.eye(matrices[0].shape[0]), np.eye(matrices[-1].shape[1])
    if covariance is not None:
        first = last = _root(covariance, matrices)
    before, after = [first], [last]
    for left, right in zip(matrices[:-1], matrices[:0:-1], strict=True):
        before.append(before[-1] @ left)
        after.append(right @ after[-1])
    return float(
        sum(_square(prefix) * _square(other) for prefix, other in zip(before, after[::-1], strict=True))
    )


def least_trace(values: ArrayLike, depth: int, rows: float, cols: float) -> float:
    """Return the smallest trace of the Hessian over products of `depth` factors with these values.

        L (m n)^(1/L) |M|_*^(2 (L - 1)/L)

    The formula follows from the inequality of arithmetic and geometric means and |A B|_* <= |A|_F |B|_F.
    Factors can reach this value if all their widths are at least the rank.

    Args:
        values: singular values of M. For tokens of covariance S, pass the singular values of S^(1/2) M
            S^(1/2).
        rows: the number of rows m, or Tr S for tokens of covariance S.

    >>> least_trace([3.0, 1.0, 0.5], 2, rows=3, cols=3)
    27.0
    """
    L = check_value("depth", depth, int, minimum=2)
    n, m = (check_value(*side, float, greater_than=0) for side in (("rows", rows), ("cols", cols)))
    nuclear = require_spectral_values("singular values", values, SINGULAR).sum()
    return float(L * (n * m) ** (1 / L) * nuclear ** (2 * (L - 1) / L))


def least_decay(values: ArrayLike, depth: int) -> float:
    """Return the smallest `sum_l |F_l|_F^2` over products of `depth` factors with these singular values.

    The value is `L sum_i s_i^(2/L)`. For L = 2 it is twice the nuclear norm. For larger L it comes closer to
    counting the singular values. For L >= 3, zero factors are a minimum of the loss plus decay, so training
    from a small start does not leave it.

    >>> least_decay([3.0, 1.0, 0.5], 2)
    9.0
    """
    L = check_value("depth", depth, int, minimum=2)
    return float(L * (require_spectral_values("singular values", values, SINGULAR) ** (2 / L)).sum())


def _square(matrix: Reals) -> float:
    return float(np.einsum("ij,ij->", matrix, matrix))


def _require_chain(matrices: Sequence[Reals]) -> None:
    shapes = [list(matrix.shape) for matrix in matrices]
    chained = all(matrix.ndim == 2 for matrix in matrices) and all(
        matrix.shape[1] == other.shape[0] for matrix, other in pairwise(matrices)
    )
    if len(matrices) < 2 or not chained:
        raise InputError(
            f"factors of shapes {shapes}: expected at least two matrices that can be multiplied in this order"
        )


def _root(covariance: ArrayLike, matrices: Sequence[Reals]) -> Reals:
    """Return the symmetric square root of a covariance that fits both sides of the product."""
    S = np.asarray(covariance, dtype=float)
    rows, cols = matrices[0].shape[0], matrices[-1].shape[1]
    if S.shape != (rows, rows) or rows != cols or not np.allclose(S, S.T):
        raise InputError(
            f"covariance of shape {list(S.shape)} for a product of shape {[rows, cols]}: expected a "
            "symmetric covariance and a square product of the same size"
        )
    values, vectors = np.linalg.eigh(S)
    if values[0] < -1e-10 * abs(values[-1]):
        raise InputError(f"covariance has the eigenvalue {values[0]:.3g}, expected no negative eigenvalue")
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
