r"""When float32 is precise enough to factorise a matrix: if it adds less error than storing the weights did.

| letter | meaning |
|---|---|
| W, n, m | a stored matrix, n x m, with singular values s_1 >= ... >= s and Frobenius norm \|W\|_F |
| u | root mean square of the relative errors of its entries: 0.42 times half a unit in the last place |
| c | the float32 route moves an eigenvalue of the Gram matrix by at most c eps s_1^2, with eps = 2^-23 |

Storing entries w (1 + d) with independent d moves a singular value by u \|W\|_F / (n m)^(1/2) in root mean
square. (0.42 is that of an error uniform in the last place, over magnitudes uniform in their logarithm: (3^-1
(3/8) / ln 2)^(1/2).) Arithmetic moves it by c eps s_1^2 / (2 s). Measured from 384 to 4096 rows, products in
float32 leave 0.5 to 1.6, and the reduction to a tridiagonal leaves 0.7 to 2.4 (see `numerics.symmetric`).
Together they are below c = 4. The second error is below the first for every value if it is for the smallest:

    s / s_1 >= c eps s_1 (n m)^(1/2) / (2 u |W|_F)

For a Gaussian matrix the right-hand side is c eps (n^(1/2) + m^(1/2)) / (2 u), in bfloat16 0.025 at 4096 x
11008, and for a trained matrix it is larger. Types with fewer bits than bfloat16 use the ratio of bfloat16. A
matrix with a smaller s / s_1 is factorised in float64. So float32 never decides a rank, because the tolerance
of ranks is far below the ratio.
"""

from __future__ import annotations

from math import prod

import numpy as np

from attnlaw.core.arrays import SMALLEST, Reals
from attnlaw.core.errors import InputError

FLOAT32, FLOAT64 = "float32", "float64"


class Underflow(ArithmeticError):
    """The error for a norm that is not zero, but too small for float64."""


EPS = 2.0**-23
CONSTANT = 4.0
# Half a unit in the last place. Types with fewer bits than bfloat16 count as bfloat16.
HALF_UNITS = {"float64": None, "float32": None, "float16": 2.0**-11}
COARSEST = 2.0**-8
UNIFORM = 0.42


def rounding(dtype: str) -> float | None:
    """Return the relative rounding error u of weights of type `dtype`, or None above 16 bits.

    >>> rounding("float32") is None, rounding("bfloat16") == 8 * rounding("float16") == rounding("Q4_K")
    (True, True)
    """
    half = HALF_UNITS.get(dtype, COARSEST)
    return None if half is None else UNIFORM * half


def least_ratio(eigenvalues: Reals, shape: tuple[int, int], rounding: float) -> float:
    """Return the smallest ratio s / s_1 at which float32 adds less error than storing the weights did.

    Pass the eigenvalues of the Gram matrix as `eigenvalues`. `rounding` is the relative rounding error u of
    the entries.

    >>> values = np.array([4.0, 1.0, 1.0, 1.0])
    >>> f"{least_ratio(values, (4, 16), 0.42 * 2**-8):.1e}"
    '8.8e-04'
    """
    frobenius = float(np.sqrt(eigenvalues.sum()))
    top = float(np.sqrt(eigenvalues.max()))
    stored = rounding * frobenius / float(np.sqrt(shape[0] * shape[1]))
    return CONSTANT * EPS * top / (2 * stored) if stored > 0 else 1.0


def single_errors(values: Reals) -> Reals:
    """Return an upper bound of the float32 error of each singular value (in descending order)."""
    return np.asarray(CONSTANT * EPS * values[0] ** 2 / (2 * values))


def power_scaled(matrix: Reals) -> tuple[Reals, float]:
    """Return a matrix divided by a power of two, and this power, which is 1 for ordinary matrices.

    Squares of the result, and of products of two results, then do not overflow or underflow.
    """
    if matrix.size == 0:
        raise InputError(
            f"a matrix of shape {list(matrix.shape)}: expected at least one entry; leave the matrix out"
        )
    peak = max(float(matrix.max()), -float(matrix.min()))
    if not np.isfinite(peak):
        raise InputError("a matrix with NaN or infinite entries; use weights from before training diverged")
    usual = 1e70 if matrix.dtype == np.float64 else 1e8
    if peak == 0 or 1 / usual < peak < usual:
        return matrix, 1.0
    scale = 2.0 ** min(max(int(np.frexp(peak)[1]), -1021), 1023)
    return matrix / np.float64(scale), scale


def require_resolved(value: float, *scales: float) -> None:
    """Raise an `Underflow` if a nonzero value times powers of two is too small for float64."""
    if value > 0 and value * prod(scales) < SMALLEST:
        raise Underflow(
            f"its norm is below {SMALLEST:.2g}, and numbers this small have fewer than 12 digits in float64"
        )
