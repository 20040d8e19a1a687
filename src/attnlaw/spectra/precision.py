r"""How precisely a matrix is factorised: float32 where that adds less than storing the weights took away.

| letter | meaning |
|---|---|
| W, n, m | a matrix as it is stored, n x m; s_1 >= ... >= s its singular values, \|W\|_F its Frobenius norm |
| u | root mean square of the relative errors of its entries: 0.42 times half a unit in the last place |
| c | what the float32 route leaves in an eigenvalue of the Gram matrix: at most c eps s_1^2, eps = 2^-23 |

Storing. Entries w (1 + d) with independent d move a singular value by x^T (w d) y to first order, x and y
its singular vectors: by u \|W\|_F / (n m)^(1/2) in the root mean square. (0.42 is the root mean square of an
error uniform in the last place, over magnitudes uniform in their logarithm: (3^-1 (3/8) / ln 2)^(1/2).)

Arithmetic. An eigenvalue s^2 that is off by c eps s_1^2 is a singular value off by c eps s_1^2 / (2 s),
relative c eps (s_1 / s)^2 / 2. Measured from 384 to 4096 rows: products of float32 leave 0.5 to 1.6, the
reduction to a tridiagonal 0.7 to 2.4 (see `numerics.symmetric`), together below c = 4.

The second stays below the first for every value where it does for the smallest:

    s / s_1 >= c eps s_1 (n m)^(1/2) / (2 u |W|_F)

Of a Gaussian matrix the right-hand side is c eps (n^(1/2) + m^(1/2)) / (2 u): for bfloat16 0.012 at 768 x
3072 and 0.025 at 4096 x 11008; of a trained one larger, by what its largest value has over the rest. float16
keeps three bits more, so its ratio is eight times as large. What is stored in less than bfloat16 is held to
bfloat16's ratio. Below the ratio a matrix goes the float64 way. A rank is then never counted in float32: the
tolerance of ranks lies far below the ratio.

Heads are another matter: their thin factors are small, and float64 is the faster way (see `factored`).

Powers of two that keep squares of entries within float64: exact, and undone in the end.
"""

from __future__ import annotations

import numpy as np

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError

FLOAT32, FLOAT64 = "float32", "float64"
EPS = 2.0**-23
CONSTANT = 4.0
# Half a unit in the last place: of float16, and of bfloat16, which all that is narrower is held to.
HALF_UNITS = {"float64": None, "float32": None, "float16": 2.0**-11}
COARSEST = 2.0**-8
UNIFORM = 0.42


def rounding(dtype: str) -> float | None:
    """u of weights that are stored so; None where they are stored in more than 16 bits.

    >>> rounding("float32") is None, rounding("bfloat16") == 8 * rounding("float16") == rounding("Q4_K")
    (True, True)
    """
    half = HALF_UNITS.get(dtype, COARSEST)
    return None if half is None else UNIFORM * half


def least_ratio(eigenvalues: Reals, shape: tuple[int, int], rounding: float) -> float:
    """The s / s_1 down to which float32 adds less than storing did, from the eigenvalues of the Gram matrix.

    >>> values = np.array([4.0, 1.0, 1.0, 1.0])
    >>> f"{least_ratio(values, (4, 16), 0.42 * 2**-8):.1e}"
    '8.8e-04'
    """
    frobenius = float(np.sqrt(eigenvalues.sum()))
    top = float(np.sqrt(eigenvalues.max()))
    stored = rounding * frobenius / float(np.sqrt(shape[0] * shape[1]))
    return CONSTANT * EPS * top / (2 * stored) if stored > 0 else 1.0


def single_errors(values: Reals) -> Reals:
    """What float32 may have moved each singular value by, descending ones: c eps s_1^2 / (2 s)."""
    return np.asarray(CONSTANT * EPS * values[0] ** 2 / (2 * values))


def power_scaled(matrix: Reals) -> tuple[Reals, float]:
    """The matrix over a power of two (exact), and that power; ordinary matrices come back as they are.

    Squares of the result, and of a product of two such results, stay in range: of float64, or of float32 if
    the matrix is such and comes back so.
    """
    if matrix.size == 0:
        raise InputError(f"a matrix of shape {list(matrix.shape)}: expected at least one entry; leave it out")
    peak = max(float(matrix.max()), -float(matrix.min()))
    if not np.isfinite(peak):
        raise InputError("a matrix with NaN or infinite entries; use weights from before training diverged")
    usual = 1e70 if matrix.dtype == np.float64 else 1e8
    if peak == 0 or 1 / usual < peak < usual:
        return matrix, 1.0
    scale = 2.0 ** min(max(int(np.frexp(peak)[1]), -1021), 1023)
    return matrix / np.float64(scale), scale
