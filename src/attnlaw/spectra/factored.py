"""Singular values of a product A B of thin factors, N x d and d x M, without forming the N x M product.

With QR factorisations A = Q_A R_A and B^T = Q_B R_B, the singular values of A B are those of the d x d
matrix R_A R_B^T: exactly d of them, and none of the N - d round-off values that a dense SVD leaves.
|A B|_21 is that of R_A B; |A B|_11 needs the entries: all of them in blocks, or some columns (sampled).

R is also the Cholesky factor of A^T A. That costs a sixth of a QR factorisation (at 4096 x 128; float32 QR
costs more than half), and is off by eps (s_1 / s)^2 of float64 where QR is off by eps s_1 / s: of factors
whose condition stays below 1e3, 1e-10 at most. That is far below what storing took from weights of 16 bits,
and is the way to sizes as applied of all weights.

The (1,1) norm of a large product A B, N x M, from some of its columns.

Column j of A B has the Euclidean norm l_j, known without forming it, and the sum of absolute entries a_j,
which needs 2 N d operations. Columns drawn with probabilities l_j / sum l, with replacement, give the
estimate (sum l) mean(a_j / l_j) of sum a: without bias, and with little variance, because a_j / l_j hardly
varies (of Gaussian entries it is (2 N / pi)^(1/2), give or take (pi / 2 - 1)^(1/2) / N^(1/2) of itself).
More are drawn until the standard error is at most `ACCURACY`; where that takes as many columns as there
are, all are summed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate
from attnlaw.spectra.exact import rescale_spectrum
from attnlaw.spectra.head_sizes import Root
from attnlaw.spectra.precision import power_scaled
from attnlaw.spectra.spectrum import BLOCK, Applied, Spectrum, root_sum_of_squares

# Products of more entries than this are sampled, in so many columns at a time.
LARGE = 2**20
COLUMNS = 32
# The largest standard error, relative.
ACCURACY = 0.005


def sampled_absolute_sum(left: Reals, right: Reals, lengths: Reals, seed: int) -> Estimate:
    """The sum of absolute entries of `left @ right` with its standard error; the same in every run.

    `lengths` are the Euclidean norms of the columns of the product.

    >>> ones = np.ones((3, 200))
    >>> found = sampled_absolute_sum(ones.T, ones, np.full(200, 3 * 200**0.5), seed=0)
    >>> round(found.value, 6), found.error
    (120000.0, 0.0)
    """
    total = float(lengths.sum())
    if total == 0:
        return Estimate(0.0)
    rng = np.random.default_rng(seed)
    ratios = np.empty(0)
    while ratios.size < lengths.size:
        drawn = rng.choice(lengths.size, COLUMNS, p=lengths / total)
        new_ratios = np.abs(left @ right[:, drawn]).sum(axis=0) / lengths[drawn]
        ratios = np.append(ratios, new_ratios)
        mean, error = float(ratios.mean()), float(ratios.std(ddof=1) / np.sqrt(ratios.size))
        if error <= ACCURACY * mean:
            return Estimate(total * mean, total * error)
    starts = range(0, lengths.size, COLUMNS)
    return Estimate(sum(float(np.abs(left @ right[:, at : at + COLUMNS]).sum()) for at in starts))


# The least 1-norm reciprocal condition of a Cholesky factor that is taken for R.
CHOLESKY_LIMIT = 1e-3


def product_spectrum(left: Reals, right: Reals, folded: tuple[Reals, Reals] | None = None) -> Spectrum:
    """The spectrum of `left @ right`; min(rows, inner, cols) singular values.

    `folded` are the factors with the norms before them folded in: the sizes of their product, without norms
    of its entries, stand beside it. Raises OverflowError where a norm of a product exceeds float64.

    >>> rank_one = product_spectrum(np.array([[3.0], [4.0]]), np.array([[0.0, 2.0]]))
    >>> rank_one.values, rank_one.norm_21, rank_one.norm_11
    (array([10.]), 10.0, 14.0)
    """
    return spectrum_and_roots(left, right, folded)[0]


def spectrum_and_roots(
    left: Reals,
    right: Reals,
    folded: tuple[Reals, Reals] | None,
    quick: bool = False,
    seed: int | None = None,
) -> tuple[Spectrum, tuple[Root, Root], tuple[Root, Root] | None]:
    """The same, with the triangular factors of both, and of the folded ones (of the second transposed).

    `quick` takes Cholesky factors where they are precise enough; folded ones are always such. With a `seed`
    the (1,1) norm is estimated from some columns.
    """
    scaled_left, left_scale = power_scaled(left)
    scaled_right, right_scale = power_scaled(right)
    (left_root, left_route), (right_root, right_route) = (
        _factorise_scaled(factor, quick) for factor in (scaled_left, scaled_right.T)
    )
    columns = left_root @ scaled_right
    lengths = np.sqrt(np.einsum("ij,ij->j", columns, columns))
    if seed is None:
        norm_11 = Estimate(_absolute_product_sum(scaled_left, scaled_right))
    else:
        norm_11 = sampled_absolute_sum(scaled_left, scaled_right, lengths, seed)
    spectrum = Spectrum(
        scipy.linalg.svdvals(left_root @ right_root.T, check_finite=False),
        (left.shape[0], right.shape[1]),
        norm_21=float(lengths.sum()),
        norm_11=norm_11.value,
        norm_11_error=norm_11.error,
        route=max(left_route, right_route),  # "qr" where one of both is
        inner=left.shape[1],
    )
    true_spectrum = rescale_spectrum(spectrum, left_scale * right_scale)
    roots = (left_root, left_scale), (right_root, right_scale)
    if folded is None:
        return true_spectrum, roots, None
    # A factor that nothing was folded into is triangular already.
    first = roots[0] if folded[0] is left else triangular_factor(folded[0], quick=True)
    second = roots[1] if folded[1] is right else triangular_factor(folded[1].T, quick=True)
    return replace(true_spectrum, applied=_applied_sizes(first, second)), roots, (first, second)


def _applied_sizes(left: Root, right: Root) -> Applied:
    """The sizes of a product, from its triangular factors and the powers of two that they lack."""
    values = scipy.linalg.svdvals(left[0] @ right[0].T, check_finite=False)
    sizes = Applied(Estimate(float(values[0])), root_sum_of_squares(values), values)
    return sizes.rescale(left[1]).rescale(right[1])


def triangular_factor(tall: Reals, quick: bool = False) -> Root:
    """R of a QR factorisation of the matrix over a power of two, and that power."""
    scaled, scale = power_scaled(tall)
    return _factorise_scaled(scaled, quick)[0], scale


def _factorise_scaled(matrix: Reals, quick: bool) -> tuple[Reals, str]:
    """R of the QR factorisation, by LAPACK itself: numpy's wrapper would keep other threads waiting."""
    if quick and matrix.shape[0] >= matrix.shape[1]:
        root, status = scipy.linalg.lapack.dpotrf(matrix.T @ matrix, overwrite_a=1)
        if status == 0 and scipy.linalg.lapack.dtrcon(root)[0] >= CHOLESKY_LIMIT:
            return root, "cholesky"
    factored = scipy.linalg.lapack.dgeqrf(matrix)[0]
    return np.triu(factored[: min(matrix.shape)]), "qr"


def _absolute_product_sum(left: Reals, right: Reals) -> float:
    """Sum of the absolute entries of the product, formed block by block in one small buffer."""
    rows = max(1, BLOCK // right.shape[1])
    buffer = np.empty((min(rows, left.shape[0]), right.shape[1]))
    total = 0.0
    for start in range(0, left.shape[0], rows):
        factor = left[start : start + rows]
        block = np.matmul(factor, right, out=buffer[: factor.shape[0]])
        total += float(np.abs(block, out=block).sum())
    return total
