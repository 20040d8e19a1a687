r"""Balance of the two factors of a head: how far they are from the smallest factors with the same product.

| letter | meaning |
|---|---|
| A, B | the factors, N_A x d and N_B x d, with M = A B^T: W_Q and W_K, or W_V and W_O^T |
| excess | `(\|A\|_F^2 + \|B\|_F^2)/(2 \|M\|_*) - 1`, zero if no A G, B G^(-T) are smaller |
| D | `A^T A - B^T B`, zero if the excess is |
| imbalance | `\|D\|_F/(\|A^T A\|_F + \|B^T B\|_F)` |
| c_A, c_B | d/N_A, d/N_B |

Every stationary point of a loss with weight decay on both factors has D = 0. Gradient descent with step eta
and decay lambda shrinks D by (1 - eta lambda)^2 in each step. Without decay it keeps D up to terms in eta^2.
Label noise shrinks D too. At depth 2 the flattest factors are the balanced ones (arXiv 2306.13239,
`flatness`). Adam does not keep D, so do not read the history of a model from it.

`gauge` says which G leave the scores unchanged; `spectra.head_sizes` has its table. The measures and their
value for random factors are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.checkpoints.blocks import Rotary
from attnlaw.core.arrays import require_shapes
from attnlaw.core.errors import InputError
from attnlaw.numerics.quadrature import gauss_legendre
from attnlaw.spectra.factored import triangular_factor
from attnlaw.spectra.head_sizes import FULL, GAUGES, NO_GAUGE, ROTARY, FactorSizes, factor_sizes

# Nodes of the quadrature. More nodes do not change a digit at ratios up to 1.
NODES = 64
DONE = "done"
NOT_DEFINED = "not defined because the model normalises queries and keys"
NO_PRODUCT = "not defined because the product is zero or too large for float64"


@dataclass(frozen=True)
class FactorBalance:
    """The balance of a head's factors. A value that is not defined is None, and `status` explains why.

    Args:
        excess: how far the squared norms exceed the smallest possible ones, relative to the smallest.
        excess_scaled: `excess` divided by `null_excess`.
        imbalance: relative size of D, from 0 to 1.
        null_excess: excess of random factors with the same shape.
        least: half of the smallest sum of squared norms of factors with the same scores. It is the nuclear
            norm |M|_*, or more under rotary positions.
    """

    excess: float | None
    excess_scaled: float | None
    imbalance: float | None
    null_excess: float | None
    nuclear: float | None
    least: float | None
    gauge: str
    status: str = DONE


def factor_balance(left: ArrayLike, right: ArrayLike, gauge: str | Rotary = FULL) -> FactorBalance:
    """Compute the balance of the factors of `left @ right`.

    Args:
        left: the left factor, rows x d. For grouped-query attention, stack all query matrices of a key head.
            Add a bias of the queries as one more row.
        right: the right factor, d x cols.
        gauge: which changes of the factors leave the scores unchanged: "full", "rotary" (positions rotate
            column i with column i + d/2) or "none". Pass a `Rotary` for other pairs of columns.

    >>> rng = np.random.default_rng(0)
    >>> left = rng.standard_normal((64, 16))
    >>> balance = factor_balance(left, rng.standard_normal((16, 64)))
    >>> round(balance.excess, 3), round(balance.null_excess, 3)
    (0.06, 0.067)
    >>> factor_balance(left, left.T).excess < 1e-12, round(factor_balance(left, 4 * left.T).excess, 12)
    (True, 1.125)
    """
    a, b = np.asarray(left, dtype=float), np.asarray(right, dtype=float)
    fits = a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0]
    require_shapes(fits, "balance of factors", "rows x d and d x cols", left=a, right=b)
    rotary = gauge if isinstance(gauge, Rotary) else _rotary(gauge, a.shape[1])
    if gauge == NO_GAUGE:
        return FactorBalance(None, None, None, None, None, None, NO_GAUGE, NOT_DEFINED)
    factors = triangular_factor(a), triangular_factor(b.T)
    return balance_of(factor_sizes(*factors, (a.shape[0], b.shape[1]), rotary))


def balance_of(sizes: FactorSizes | None) -> FactorBalance:
    """Return the balance of factors, given their measured sizes."""
    if sizes is None:
        return FactorBalance(None, None, None, None, None, None, FULL, NO_PRODUCT)
    gauge = ROTARY if sizes.turned else FULL
    null = null_excess(sizes.rows, sizes.cols, sizes.inner, sizes.turned)
    if not sizes.least > 0:
        return FactorBalance(None, None, None, null, sizes.nuclear, sizes.least, gauge, NO_PRODUCT)
    excess = max(sum(sizes.squares) / (2 * sizes.least) - 1, 0.0)
    scaled = excess / null if null > 0 else None
    imbalance = sizes.difference / sizes.grams
    return FactorBalance(excess, scaled, imbalance, null, sizes.nuclear, sizes.least, gauge)


def null_excess(
    rows: int, cols: int, inner: int, rotary_size: int = 0, variances: tuple[float, float] = (1.0, 1.0)
) -> float:
    """Return the excess of large Gaussian factors with independent entries, rows x inner and cols x inner.

    For a head with rows = cols = N, c = d/N and entries of variances a^2 and b^2, the excess is

        (a^2 + b^2)/(2 a b (1 - c/4)) - 1,        which is c/(4 - c) if they are equal

    For N_A and N_B rows, such as a group of queries, the excess is `(a^2 N_A + b^2 N_B)/(2 a b sqrt(N_A N_B)
    m) - 1` with m = `mean_root(c_A, c_B)`. Columns that positions rotate have m = 1, because their lengths
    hardly vary. The formula holds for large factors. At 256 x 64 the mean is 0.0012 above it.
    """
    a2, b2 = variances
    free = inner - rotary_size
    # The law is symmetric in the three sizes, so the smallest one can be the inner size.
    small, *others = sorted((rows, cols, free))
    least = float(np.sqrt(rows * cols)) * rotary_size
    if small:
        first, second = others
        least += small * float(np.sqrt(first * second)) * mean_root(small / first, small / second)
    return float(inner * (a2 * rows + b2 * cols) / (2 * np.sqrt(a2 * b2) * least)) - 1


def mean_root(first: float, second: float) -> float:
    """Return E sqrt(x) for x from the free product of two Marchenko-Pastur laws of mean 1.

        (4/pi) int_0^(pi/2) cos^2 t sqrt((1 - c_A sin^2 t)(1 - c_B sin^2 t)) dt

    The transform u = x g(x) - 1 of the product solves `x u = (1 + u)(1 + c_A u)(1 + c_B u)`. Lagrange
    inversion gives the moments `m_p = sum_jk C(p-1, j+k)/(j+k+1) C(p, j) C(p, k) c_A^j c_B^k`, needed here at
    p = 1/2. The first binomial is then a moment of a Beta(1/2, 3/2) variable. For equal ratios the result is
    1 - c/4 (`laws.HeadNull`).
    """
    if first == second:
        return 1 - first / 4
    nodes, weights = gauss_legendre(NODES)
    square = np.sin(np.pi / 2 * nodes) ** 2
    values = (1 - square) * np.sqrt((1 - first * square) * (1 - second * square))
    return float(2 * (weights @ values))


def _rotary(gauge: str, inner: int) -> Rotary | None:
    if gauge not in GAUGES:
        raise InputError(f"gauge {gauge!r}: expected one of {', '.join(GAUGES)}, or a Rotary object")
    if gauge != ROTARY:
        return None
    if inner % 2:
        raise InputError(f"factors with an inner size of {inner}: rotary positions need an even size")
    return Rotary(inner)
