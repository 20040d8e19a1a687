"""Spectra of products A B of thin factors, N x d and d x M, without forming the N x M product.

With QR factorisations A = Q_A R_A and B^T = Q_B R_B, the singular values of A B are those of the d x d matrix
R_A R_B^T, and the (2,1) norm of A B is that of R_A B. R is also the Cholesky factor of A^T A, which costs a
sixth of a QR factorisation at 4096 x 128. Its error is eps (s_1 / s)^2 in float64, and that of QR is eps s_1
/ s. For factors with a condition below 1e3 the error is at most 1e-10.

The (1,1) norm of a large product is estimated from columns j that are drawn with probabilities l_j / sum l,
where l_j is the Euclidean norm and a_j the sum of absolute entries: (sum l) mean(a_j / l_j) is an unbiased
estimate of sum a. For Gaussian entries a_j / l_j is (2 N / pi)^(1/2), with a relative spread of (pi / 2 -
1)^(1/2) / N^(1/2). Columns are added until the standard error is at most `ACCURACY`, or all are summed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate
from attnlaw.numerics.lapack import cholesky_factor, singular_values, triangular_condition
from attnlaw.spectra.exact import rescale_spectrum
from attnlaw.spectra.head_sizes import Root
from attnlaw.spectra.precision import power_scaled, require_resolved
from attnlaw.spectra.spectrum import BLOCK, Applied, Spectrum

# Products with more entries than LARGE are sampled, COLUMNS columns at a time.
LARGE = 2**20
COLUMNS = 32
# Products with this many entries are formed in float32.
MANY_ENTRIES = 2**16
# Largest relative standard error of a sample.
ACCURACY = 0.005


def sampled_absolute_sum(left: Reals, right: Reals, lengths: Reals, seed: int) -> Estimate:
    """Estimate the sum of absolute entries of `left @ right` from a random sample of columns.

    The argument `lengths` has the Euclidean norms of the product's columns.
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


# Smallest reciprocal condition (1-norm) at which a Cholesky factor is used as R.
CHOLESKY_LIMIT = 1e-3


def product_spectrum(left: Reals, right: Reals, folded: tuple[Reals, Reals] | None = None) -> Spectrum:
    """Compute the spectrum of `left @ right`: its singular values and several norms.

    Args:
        left: the left factor, rows x inner.
        right: the right factor, inner x cols.
        folded: both factors multiplied by the norm layers before them. If given, the spectrum also describes
            their product.

    Raises:
        OverflowError: if a norm of a product exceeds float64.
        Underflow: if a norm of a product is not zero, but too small for float64.

    >>> rank_one = product_spectrum(np.array([[3.0], [4.0]]), np.array([[0.0, 2.0]]))
    >>> rank_one.values, rank_one.norm_21, rank_one.norm_11
    (array([10.]), 10.0, 14.0)
    """
    return spectrum_and_roots(left, right, folded)[0]


# The spectrum of a head, the triangular factors of its factors (the second one transposed), and those of the
# folded pair; None if a norm is unknown.
HeadSpectrum = tuple[Spectrum, tuple[Root, Root], tuple[Root, Root] | None]


def spectrum_and_roots(
    left: Reals,
    right: Reals,
    folded: tuple[Reals, Reals] | None,
    quick: bool = False,
    seed: int | None = None,
) -> HeadSpectrum:
    """Compute the spectrum of a product, and the triangular factors of both of its sides.

    If `quick` is true, the function uses Cholesky factors where they are precise enough. It always uses them
    for `folded`. With a `seed`, the (1,1) norm is estimated from a random sample of columns.
    """
    scaled_left, left_scale = power_scaled(left)
    scaled_right, right_scale = power_scaled(right)
    left_root, left_route = _factorise_scaled(scaled_left, quick)
    right_root, right_route = _factorise_scaled(scaled_right.T, quick)
    columns = left_root @ scaled_right
    lengths = np.sqrt(np.einsum("ij,ij->j", columns, columns))
    if seed is None:
        norm_11 = Estimate(_scaled_absolute_product_sum(scaled_left, scaled_right))
    else:
        norm_11 = sampled_absolute_sum(scaled_left, scaled_right, lengths, seed)
    values = singular_values(left_root @ right_root.T)
    route = max(left_route, right_route)  # "qr" if one of both is
    shape, norms = (left.shape[0], right.shape[1]), (float(lengths.sum()), norm_11.value)
    spectrum = Spectrum(values, shape, *norms, route, inner=left.shape[1], norm_11_error=norm_11.error)
    require_resolved(spectrum.spectral, left_scale, right_scale)
    true_spectrum = rescale_spectrum(spectrum, left_scale * right_scale)
    roots = (left_root, left_scale), (right_root, right_scale)
    if folded is None:
        return true_spectrum, roots, None
    # A factor without a fold has its triangular factor already.
    first = roots[0] if folded[0] is left else triangular_factor(folded[0], quick=True)
    second = roots[1] if folded[1] is right else triangular_factor(folded[1].T, quick=True)
    return replace(true_spectrum, applied=_applied_sizes(first, second)), roots, (first, second)


def _applied_sizes(left: Root, right: Root) -> Applied:
    values = singular_values(left[0] @ right[0].T)
    require_resolved(float(values[0]), left[1], right[1])
    return Applied.of(values).rescale(left[1] * right[1])


def triangular_factor(tall: Reals, quick: bool = False) -> Root:
    """Divide a matrix by a power of two, and return its triangular factor R and this power."""
    scaled, scale = power_scaled(tall)
    return _factorise_scaled(scaled, quick)[0], scale


def _factorise_scaled(matrix: Reals, quick: bool) -> tuple[Reals, str]:
    """Return R and the method. It calls LAPACK itself, because NumPy's wrapper blocks other threads."""
    if quick and matrix.shape[0] >= matrix.shape[1]:
        root = cholesky_factor(matrix.T @ matrix)
        if root is not None and triangular_condition(root) >= CHOLESKY_LIMIT:
            return root, "cholesky"
    factored = scipy.linalg.lapack.dgeqrf(matrix)[0]
    return np.triu(factored[: min(matrix.shape)]), "qr"


def absolute_product_sum(left: NDArray[Any], right: NDArray[Any]) -> float:
    """Return the sum of absolute entries of a product, computed block by block in the factors' type.

    In float32 the rounding errors average out, so the sum is accurate to about 1e-8.
    """
    rows = max(4, BLOCK // right.shape[1] // 4 * 4)
    buffer = np.empty((min(rows, left.shape[0]), right.shape[1]), left.dtype)
    total = 0.0
    for start in range(0, left.shape[0], rows):
        factor = left[start : start + rows]
        block = np.matmul(factor, right, out=buffer[: factor.shape[0]])
        np.abs(block, out=block)
        if block.dtype == np.float32 and len(block) % 4 == 0:
            block = block.reshape(-1, 4, block.shape[1]).sum(axis=1)
        total += float(block.sum(dtype=np.float64))
    return total


def in_product_precision(factor: Reals, shape: tuple[int, int]) -> NDArray[Any]:
    """Return a factor in float32 or float64, as the sum of absolute entries of a product needs it."""
    dtype = np.float32 if shape[0] * shape[1] >= MANY_ENTRIES else np.float64
    return factor.astype(dtype, copy=False)


def _scaled_absolute_product_sum(left: Reals, right: Reals) -> float:
    shape, total_scale, factors = (left.shape[0], right.shape[1]), 1.0, []
    for factor in (left, right):
        # Powers of two keep the product in the range of float32.
        scale = 2.0 ** int(np.frexp(max(float(factor.max()), -float(factor.min())))[1])
        factors.append(in_product_precision(factor / scale, shape))
        total_scale *= scale
    return absolute_product_sum(*factors) * total_scale
