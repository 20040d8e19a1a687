"""The singular values of one matrix, and what follows from them.

| word | formula, with singular values s_1 >= s_2 >= ... |
|---|---|
| spectral, Frobenius, nuclear norm | s_1, (sum s_i^2)^(1/2), sum s_i |
| (2,1) norm | sum over columns of their Euclidean norms |
| (1,1) norm | sum of absolute entries |
| stable rank | sum s_i^2 / s_1^2 |
| effective rank | exp of the entropy of s_i / sum s_j (Roy and Vetterli 2007) |
| numerical rank | #{s_i > 1e-10 * min(rows, cols) * max(s_1, 1)} (arXiv 2605.07297) |
| condition | s_1 / s_k, k the number of values kept |

An exact spectrum lists every value once. An approximate one (see `lanczos`) lists the nodes of a quadrature
rule with multiplicities; every sum over values then carries an error. So does one that was found in float32,
a much smaller one (see `precision`).

Sizes of a map as the model applies it, C diag(g) M, without a second factorisation.

With B = C diag(g) the largest singular value of B M is the root of the largest eigenvalue of B M M^T B^T,
whose products with vectors are those of M M^T between two cheap ones. Its Frobenius norm is summed entry by
entry: the trace of that matrix would lose digits where C takes most of M off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.checkpoints.blocks import NormFold
from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate
from attnlaw.spectra.head_sizes import FactorSizes, ScoreSizes
from attnlaw.spectra.krylov import largest_value
from attnlaw.spectra.precision import FLOAT32, FLOAT64, power_scaled, single_errors

RANK_TOLERANCE = 1e-10
# Entries that are worked on at a time if a copy is needed: 2 MB, which stay in the cache of a core.
BLOCK = 2**18
PAST_FLOAT64 = "with the gain of the norm before it, it exceeds float64"


@dataclass(frozen=True, eq=False)
class Multiplicities:
    """How often each node of an approximate spectrum counts, once per random probe.

    `weights` has shape (probes, nodes): each row alone is an estimate of the multiplicities, for a rule that
    bounds Schatten sums from above. `lower_values` and `lower_weights` are those of a rule that bounds them
    from below; `spectral_error` bounds the error of the largest value.
    """

    weights: Reals
    lower_values: Reals
    lower_weights: Reals
    spectral_error: float

    @property
    def mean(self) -> Reals:
        return np.asarray(self.weights.mean(axis=0))


@dataclass(frozen=True, eq=False)
class Applied:
    """Sizes of a matrix as the model applies it: the norm before it folded in (see `checkpoints.norms`).

    `values` are all its singular values, of thin factors alone. The error of the spectral norm bounds how far
    above it may lie; None where it is exact.
    """

    spectral: Estimate
    frobenius: float
    values: Reals | None = None

    @property
    def stable_rank(self) -> float | None:
        """None of a zero matrix, and without all values."""
        top = self.spectral.value
        if self.values is None or top == 0:
            return None
        return (self.frobenius / top) ** 2

    def rescale(self, scale: float) -> Applied:
        """Those of the matrix times a power of two; OverflowError where they exceed float64."""
        if scale == 1:
            return self
        error = self.spectral.error
        spectral = Estimate(self.spectral.value * scale, None if error is None else error * scale)
        if not np.isfinite(self.frobenius * scale):
            raise OverflowError(PAST_FLOAT64)
        return Applied(spectral, self.frobenius * scale, None if self.values is None else self.values * scale)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """All singular values that can differ from zero, in descending order, with two norms of the entries.

    A matrix keeps min(rows, cols) values; a product through d dimensions keeps min(rows, cols, d).
    `route` says how they were computed: "gram", "svd", "qr" or "cholesky" (of thin factors) or "lanczos"
    (approximate: then `multiplicities` says how often each of `values` counts), `precision` in which type.
    `norm_11_error` is a standard error; None where every entry was summed. `inner` is the d of a product,
    None of a matrix; `latent` says that a factor of it is a product itself (latent attention). `applied` has
    its sizes with the norm before it folded in; None where that norm is not known. `scores` has the sizes of
    queries and keys; None where they are not known, and of what is no QK. `factors` has those of the factors
    of a head; None where it has no gauge.

    >>> spectrum = Spectrum(np.array([2.0, 1.0]), (2, 2), norm_21=3.0, norm_11=3.0, route="svd")
    >>> spectrum.spectral, spectrum.nuclear, spectrum.stable_rank, spectrum.numerical_rank
    (2.0, 3.0, 1.25, 2)
    """

    values: Reals
    shape: tuple[int, int]
    norm_21: float
    norm_11: float
    route: str
    multiplicities: Multiplicities | None = None
    inner: int | None = None
    latent: bool = False
    applied: Applied | None = None
    scores: ScoreSizes | None = None
    factors: FactorSizes | None = None
    precision: str = FLOAT64
    norm_11_error: float | None = None

    @property
    def is_exact(self) -> bool:
        """Whether its values carry no error but float64's."""
        return self.multiplicities is None and self.precision == FLOAT64

    @property
    def spectral_error(self) -> float | None:
        """Of the largest value; None for an exact spectrum."""
        if self.multiplicities is not None:
            return self.multiplicities.spectral_error
        return float(single_errors(self.values)[0]) if self.precision == FLOAT32 else None

    @property
    def counts(self) -> Reals:
        """How often each value counts: once, unless the spectrum is approximate."""
        return np.ones_like(self.values) if self.multiplicities is None else self.multiplicities.mean

    @property
    def spectral(self) -> float:
        return float(self.values[0])

    @property
    def frobenius(self) -> float:
        return self.spectral * float(np.sqrt(np.sum(self.counts * self._relative**2)))

    @property
    def as_stored(self) -> Applied:
        """Its sizes as applied where no norm stands before it."""
        return Applied(Estimate(self.spectral, self.spectral_error), self.frobenius)

    @property
    def nuclear(self) -> float:
        return float(np.sum(self.counts * self.values))

    @property
    def stable_rank(self) -> float | None:
        """None for a zero matrix."""
        return float(np.sum(self.counts * self._relative**2)) if self.spectral > 0 else None

    @property
    def effective_rank(self) -> float | None:
        """None for a zero matrix."""
        if self.spectral == 0:
            return None
        positive = self._relative > 0
        values, counts = self._relative[positive], self.counts[positive]
        total = np.sum(counts * values)
        return float(np.exp(np.log(total) - np.sum(counts * values * np.log(values)) / total))

    @property
    def tolerance(self) -> float:
        """Values at or below it are round-off and count as zero in ranks and Schatten sums."""
        return RANK_TOLERANCE * min(self.shape) * max(self.spectral, 1.0)

    @property
    def above_tolerance(self) -> Reals:
        """The values that count."""
        return self.values[self.values > self.tolerance]

    @property
    def counts_above_tolerance(self) -> Reals:
        """How often each of them counts."""
        return self.counts[self.values > self.tolerance]

    @property
    def numerical_rank(self) -> int:
        return round(float(self.counts_above_tolerance.sum()))

    @property
    def condition(self) -> float | None:
        """None where the smallest value is zero, unknown, or so small that the ratio leaves float64."""
        smallest = float(self.values[-1])
        ratio = self.spectral / smallest if smallest > 0 and self.multiplicities is None else np.inf
        return ratio if ratio < np.inf else None

    def schatten_sum(self, p: float) -> float:
        """sum s_i^p over the values above the tolerance; the numerical rank at p = 0."""
        return float(np.sum(self.counts_above_tolerance * self.above_tolerance**p))

    def error(self, quantity: Callable[[Spectrum], float | None]) -> float | None:
        """The error of a quantity computed from an approximate or float32 spectrum; None for an exact one.

        The standard error over the probes and the width of the bracket, in quadrature.

        >>> exact = Spectrum(np.array([2.0]), (1, 1), 2.0, 2.0, "svd")
        >>> exact.error(lambda spectrum: spectrum.nuclear) is None
        True
        """
        spread, width = self.spread(quantity), self.bracket(quantity)
        return None if spread is None or width is None else float(np.hypot(spread, width))

    def spread(self, quantity: Callable[[Spectrum], float | None]) -> float | None:
        """The standard error of a quantity over the probes: the random part of its error."""
        multiplicities = self.multiplicities
        if multiplicities is None:
            return None if self.is_exact else 0.0
        per_probe = [
            quantity(replace(self, multiplicities=replace(multiplicities, weights=row[None])))
            for row in multiplicities.weights
        ]
        if None in per_probe:
            return None
        estimates = np.array(per_probe, dtype=float)
        scale = float(np.abs(estimates).max()) or 1.0  # squares of very large and small values leave float64
        return scale * float(np.std(estimates / scale, ddof=1) / np.sqrt(len(per_probe)))

    def bracket(self, quantity: Callable[[Spectrum], float | None]) -> float | None:
        """How far the rule from below lies from the rule from above: the part that all probes share.

        In float32: how far all values moved by their errors, the same way, move the quantity.
        """
        if self.is_exact:
            return None
        multiplicities = self.multiplicities
        if multiplicities is None:
            lower = replace(self, values=self.values + single_errors(self.values))
        else:
            lower = replace(
                self,
                values=multiplicities.lower_values,
                multiplicities=replace(multiplicities, weights=multiplicities.lower_weights),
            )
        above, below = quantity(self), quantity(lower)
        return None if above is None or below is None else abs(above - below)

    @property
    def _relative(self) -> Reals:
        """Values over the largest: squares of them neither overflow nor vanish."""
        return self.values / self.spectral if self.spectral > 0 else self.values


def root_sum_of_squares(values: Reals) -> float:
    """The Frobenius norm of descending singular values; no square of them overflows or vanishes."""
    top = float(values[0])
    return top * float(np.sqrt(np.sum((values / top) ** 2))) if top > 0 else 0.0


def applied_matrix(matrix: Reals, fold: NormFold, gram: Reals | None = None) -> Applied:
    """The spectral norm with its error and the Frobenius norm of a folded matrix, of `power_scaled` entries.

    `gram` is M M^T where it is there anyway (of float32 its upper triangle is enough); without it products go
    through M twice, in the precision of M.

    >>> folded = applied_matrix(np.array([[3.0, 0.0], [0.0, 4.0]]), NormFold(np.array([2.0, 1.0]), False))
    >>> round(folded.spectral.value, 9), round(folded.frobenius, 9)
    (6.0, 7.211102551)
    """
    gain, scale = power_scaled(fold.gain)
    frobenius = _frobenius(matrix, NormFold(gain, fold.centred))
    if frobenius == 0:
        return Applied(Estimate(0.0), 0.0)
    # The Frobenius norm about one, by a power of two: Lanczos squares what it meets.
    size = 2.0 ** int(np.frexp(frobenius)[1])
    unit = NormFold(gain / size, fold.centred)

    def product(block: Reals) -> Reals:
        inside = unit.transposed(block).astype((matrix if gram is None else gram).dtype, copy=False)
        return unit(matrix @ (matrix.T @ inside) if gram is None else _symmetric(gram, inside))

    spectral = largest_value(product, matrix.shape[0])
    return Applied(spectral, frobenius / size).rescale(size).rescale(scale)


def _symmetric(gram: NDArray[Any], vector: NDArray[Any]) -> NDArray[Any]:
    """The product with one column; of float32 from the upper triangle, which is half of what memory gives."""
    if gram.dtype == np.float64:
        return np.asarray(gram @ vector)
    return np.asarray(scipy.linalg.blas.ssymv(1.0, gram.T, vector[:, 0], lower=1))[:, None]


def _frobenius(matrix: Reals, fold: NormFold) -> float:
    columns = max(1, BLOCK // matrix.shape[0])
    starts = range(0, matrix.shape[1], columns)
    # Float64 in one order, so that the sum does not depend on how the matrix lies in memory.
    float64 = matrix.dtype == np.float64
    blocks = (matrix[:, at : at + columns] for at in starts)
    parts = (fold(np.ascontiguousarray(part) if float64 else part.astype(np.float64)) for part in blocks)
    return float(np.sqrt(sum(float(np.einsum("ij,ij->", part, part)) for part in parts)))
