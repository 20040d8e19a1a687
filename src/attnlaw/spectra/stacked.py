"""Spectra of all heads of a block at once, in a few calls for stacks of small matrices.

One call factorises the Gram matrices A A^T of all heads, and one computes all singular values. A norm before
the block is folded into the Gram matrix. With A_g = A diag(g) and the sums s of its rows,

    A_g C A_g^T = A_g A_g^T - s s^T / N        if the norm subtracts the mean

If that removes more than half of a Gram matrix, the mean is subtracted from A_g itself, so that no digits are
lost. Heads whose factors have a condition above 1e3 are left to `factored`, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from attnlaw.checkpoints.blocks import NONE, Attention, NormFold
from attnlaw.checkpoints.model import Model
from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate
from attnlaw.numerics.lapack import triangular_condition
from attnlaw.spectra.factored import (
    CHOLESKY_LIMIT,
    HeadSpectrum,
    absolute_product_sum,
    in_product_precision,
    sampled_absolute_sum,
)
from attnlaw.spectra.spectrum import Applied, Spectrum

# Bytes of a block's factors in float64 up to which its heads are stacked. Larger stacks save no time
# (measured at 32 heads of 4096 x 128) and need more memory.
LARGEST_STACK = 64 * 10**6
# Traces of Gram matrices up to which entries of a product stay in the range of float32, and their squares in
# that of float64.
LARGEST = 1e30


@dataclass(frozen=True, eq=False)
class FactorStack:
    """The left or the right factors of a block's heads, an array (heads, d, N).

    `groups` has the index of the factor that each head of the block uses. `roots` are the triangular factors,
    NaN if one would not be precise enough. `folded` has the same factors after the norm layer before the
    block.
    """

    factors: Reals
    groups: list[int]
    roots: Reals
    folded: Reals

    @classmethod
    def of(cls, factors: Reals, groups: list[int], fold: NormFold | None) -> FactorStack:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            roots = _cholesky_factors(np.stack([_gram(factor) for factor in factors]))
            folded = roots
            if fold is not None:
                folded = _cholesky_factors(np.stack([_folded_gram(factor, fold) for factor in factors]))
        return cls(factors, groups, roots, folded)


def stacked_spectra(
    model: Model, block: Attention, kind: str, seed: Callable[[int], int | None]
) -> Iterator[tuple[tuple[Reals, Reals], HeadSpectrum | None]]:
    """Yield each head's two factors and its spectrum, or None if it needs QR factorisations.

    `seed` returns a head's seed for the sampled columns of the (1,1) norm, or None to use all entries.
    """
    (left, right), known = _factor_stacks(model, block, kind)
    stored, folded = (
        (pair[0][left.groups], pair[1][right.groups])
        for pair in ((left.roots, right.roots), (left.folded, right.folded))
    )
    shape = left.factors.shape[2], right.factors.shape[2]
    values = _singular_values(*stored)
    same = left.folded is left.roots and right.folded is right.roots
    applied = values if same else _singular_values(*folded)
    usable = np.isfinite(applied[:, 0]) & np.isfinite(values[:, 0])
    for head, (i, j) in enumerate(zip(left.groups, right.groups, strict=True)):
        pair = left.factors[i].T, right.factors[j]
        first, second = (factor.astype(np.float64, copy=False) for factor in pair)
        if not usable[head]:
            yield (first, second), None
            continue
        columns = stored[0][head] @ second
        lengths = np.sqrt(np.einsum("ij,ij->j", columns, columns))
        chosen = seed(head)
        norm_11 = (
            Estimate(absolute_product_sum(*(in_product_precision(factor, shape) for factor in pair)))
            if chosen is None
            else sampled_absolute_sum(first, second, lengths, chosen)
        )
        spectrum = Spectrum(
            values[head],
            shape,
            float(lengths.sum()),
            norm_11.value,
            "cholesky",
            inner=first.shape[1],
            norm_11_error=norm_11.error,
            applied=Applied.of(applied[head]) if known else None,
        )
        roots, folded_roots = (((pair[0][head], 1.0), (pair[1][head], 1.0)) for pair in (stored, folded))
        yield (first, second), (spectrum, roots, folded_roots if known else None)


def _factor_stacks(model: Model, block: Attention, kind: str) -> tuple[tuple[FactorStack, FactorStack], bool]:
    """Return the stacks of both sides, and whether the norms of both sides are known."""
    norms = block.norms(kind)
    known = None not in norms
    heads, shared = list(range(block.heads)), [block.kv_head(head) for head in range(block.heads)]
    tensors = block.stacks(model, kind)
    groups = (heads if len(factors) == block.heads else shared for factors in tensors)
    left, right = (
        FactorStack.of(factors, numbers, model.fold(norm) if known and norm and norm.kind != NONE else None)
        for factors, numbers, norm in zip(tensors, groups, norms, strict=True)
    )
    return (left, right), known


def _gram(factor: Reals) -> Reals:
    double = factor.astype(np.float64, copy=False)
    return np.asarray(double @ double.T)


def _folded_gram(factor: Reals, fold: NormFold) -> Reals:
    scaled = factor * fold.gain
    gram = scaled @ scaled.T
    if not fold.centred:
        return np.asarray(gram)
    sums = scaled.sum(axis=1)
    centred = gram - np.multiply.outer(sums, sums) / scaled.shape[1]
    if np.trace(centred) > np.trace(gram) / 2:
        return np.asarray(centred)
    return _gram(scaled - scaled.mean(axis=1, keepdims=True))


def _cholesky_factors(grams: Reals) -> Reals:
    traces = np.trace(grams, axis1=1, axis2=2)
    inside = (traces > 1 / LARGEST) & (traces < LARGEST)
    roots = np.full_like(grams, np.nan)
    roots[inside] = _cholesky_or_nan(grams[inside])
    for root in roots:
        if not triangular_condition(root) >= CHOLESKY_LIMIT:
            root[...] = np.nan
    return roots


def _cholesky_or_nan(grams: Reals) -> Reals:
    try:
        return np.asarray(np.linalg.cholesky(grams, upper=True), dtype=np.float64)
    except np.linalg.LinAlgError:  # at least one of them has no factor
        if len(grams) == 1:
            return np.full_like(grams, np.nan)
        half = len(grams) // 2
        return np.concatenate([_cholesky_or_nan(grams[:half]), _cholesky_or_nan(grams[half:])])


def _singular_values(left: Reals, right: Reals) -> Reals:
    products = left @ right.transpose(0, 2, 1)
    values = np.full(products.shape[:2], np.nan)
    known = np.isfinite(products).all(axis=(1, 2))
    values[known] = np.linalg.svd(products[known], compute_uv=False)
    return np.asarray(values)
