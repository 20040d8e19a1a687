"""The singular values of one matrix, numbers that follow from them, and sizes of the matrix as applied.

| word | formula, with singular values s_1 >= s_2 >= ... |
|---|---|
| spectral, Frobenius, nuclear norm | s_1, (sum s_i^2)^(1/2), sum s_i |
| (2,1) norm | sum over columns of their Euclidean norms |
| (1,1) norm | sum of absolute entries |
| stable rank | sum s_i^2 / s_1^2 |
| effective rank | exp of the entropy of s_i / sum s_j (Roy and Vetterli 2007) |
| numerical rank | #{s_i > 1e-10 * min(rows, cols) * max(s_1, 1)} (arXiv 2605.07297) |
| condition | s_1 / s_k, k the number of values kept |

A model applies a matrix M as B M with B = C diag(g), where g is the gain of the norm before M and C subtracts
the mean if the norm does. The largest singular value of B M is the root of the largest eigenvalue of B M M^T
B^T. The squared Frobenius norm is the trace of diag(g) M M^T diag(g), minus g^T M M^T g / n if C subtracts
the mean. If less than 1% of the trace is left, or if M M^T is not known in float64, the entries of B M are
summed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from attnlaw.checkpoints.blocks import NormFold
from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate
from attnlaw.numerics.lapack import symmetric_product
from attnlaw.spectra.head_sizes import FactorSizes, ScoreSizes
from attnlaw.spectra.krylov import largest_value
from attnlaw.spectra.precision import FLOAT32, FLOAT64, power_scaled, single_errors

RANK_TOLERANCE = 1e-10
# Entries that are worked on at a time if a copy is needed: 2 MB, which stay in the cache of a core.
BLOCK = 2**18
PAST_FLOAT64 = "including the gain of the norm layer before it, its norm is too large for float64"


@dataclass(frozen=True, eq=False)
class Multiplicities:
    """The multiplicity of each node of an approximate spectrum, estimated by each random probe.

    `weights` (probes, nodes) gives upper bounds of sums over powers of singular values.
    """

    weights: Reals
    lower_values: Reals  # nodes of a rule that bounds Schatten sums from below
    lower_weights: Reals  # multiplicities of these nodes, shape (probes, nodes)
    spectral_error: float  # bound on the error of the largest value


@dataclass(frozen=True, eq=False)
class Applied:
    """Sizes of a matrix as the model applies it, together with the norm layer before it.

    The error of `spectral` says how far the true norm may be above it. `values` has all singular values, only
    for a product of thin factors.
    """

    spectral: Estimate
    frobenius: float
    values: Reals | None = None

    @classmethod
    def of(cls, values: Reals) -> Applied:
        """Return the sizes of a product with these descending singular values."""
        top = float(values[0])
        # No square overflows.
        frobenius = top * float(np.sqrt(np.sum((values / top) ** 2))) if top > 0 else 0.0
        return cls(Estimate(top), frobenius, values)

    @property
    def stable_rank(self) -> float | None:
        """The squared ratio of Frobenius norm to spectral norm, or None if it is unknown."""
        top = self.spectral.value
        if self.values is None or top == 0:
            return None
        return (self.frobenius / top) ** 2

    def rescale(self, scale: float) -> Applied:
        """Return the sizes times a power of two, or raise an `OverflowError` if they exceed float64."""
        if scale == 1:
            return self
        error = self.spectral.error
        spectral = Estimate(self.spectral.value * scale, None if error is None else error * scale)
        if not np.isfinite(self.frobenius * scale):
            raise OverflowError(PAST_FLOAT64)
        return Applied(spectral, self.frobenius * scale, None if self.values is None else self.values * scale)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The singular values of a matrix in descending order, and norms of its entries.

    The list has only values that can differ from zero: min(rows, cols) for a matrix, min(rows, cols, d) for a
    product through d dimensions.

    Args:
        route: the method that computed the values: "gram", "svd", "qr" or "cholesky" (for products), or
            "lanczos" (approximate).
        applied: sizes of the matrix as the model applies it, or None if the norm layer before it is unknown.

    >>> spectrum = Spectrum(np.array([2.0, 1.0]), (2, 2), norm_21=3.0, norm_11=3.0, route="svd")
    >>> spectrum.spectral, spectrum.nuclear, spectrum.stable_rank, spectrum.numerical_rank
    (2.0, 3.0, 1.25, 2)
    """

    values: Reals  # singular values, or the nodes of an approximate spectrum
    shape: tuple[int, int]  # rows and columns of the matrix
    norm_21: float  # sum over columns of their Euclidean norms
    norm_11: float  # sum of absolute entries
    route: str
    multiplicities: Multiplicities | None = None  # how often each value counts; None for an exact spectrum
    inner: int | None = None  # d of a product; None for a matrix
    latent: bool = False  # whether a factor of the product is a product itself (latent attention)
    applied: Applied | None = None
    scores: ScoreSizes | None = None  # sizes of queries and keys; only for QK, and None if they are unknown
    factors: FactorSizes | None = None  # sizes of the factors of a head; None if the head has no gauge
    precision: str = FLOAT64  # type of the arithmetic, "float64" or "float32"
    norm_11_error: float | None = None  # standard error of `norm_11`; None if every entry was summed

    @property
    def is_exact(self) -> bool:
        """Whether rounding errors of float64 are the only errors of the values."""
        return self.multiplicities is None and self.precision == FLOAT64

    @property
    def spectral_error(self) -> float | None:
        """The error of the largest value, or None for an exact spectrum."""
        if self.multiplicities is not None:
            return self.multiplicities.spectral_error
        return float(single_errors(self.values)[0]) if self.precision == FLOAT32 else None

    @property
    def counts(self) -> Reals:
        """The multiplicity of each value. It is 1 unless the spectrum is approximate."""
        many = self.multiplicities
        return np.ones_like(self.values) if many is None else np.asarray(many.weights.mean(axis=0))

    @property
    def spectral(self) -> float:
        return float(self.values[0])

    @property
    def frobenius(self) -> float:
        return self.spectral * float(np.sqrt(np.sum(self.counts * self._relative**2)))

    @property
    def as_stored(self) -> Applied:
        """The sizes of the matrix as stored, without the norm layer before it."""
        return Applied(Estimate(self.spectral, self.spectral_error), self.frobenius)

    @property
    def nuclear(self) -> float:
        return float(np.sum(self.counts * self.values))

    @property
    def stable_rank(self) -> float | None:
        """The sum of squared values divided by the largest square, or None for a zero matrix."""
        return float(np.sum(self.counts * self._relative**2)) if self.spectral > 0 else None

    @property
    def effective_rank(self) -> float | None:
        """The exponential of the entropy of the normalised values, or None for a zero matrix."""
        if self.spectral == 0:
            return None
        positive = self._relative > 0
        values, counts = self._relative[positive], self.counts[positive]
        total = np.sum(counts * values)
        return float(np.exp(np.log(total) - np.sum(counts * values * np.log(values)) / total))

    @property
    def tolerance(self) -> float:
        """The tolerance below which a singular value counts as a rounding error."""
        return RANK_TOLERANCE * min(self.shape) * max(self.spectral, 1.0)

    @property
    def above_tolerance(self) -> Reals:
        """The singular values above the tolerance. Ranks and Schatten sums use only these."""
        return self.values[self.values > self.tolerance]

    @property
    def counts_above_tolerance(self) -> Reals:
        """The multiplicity of each value of `above_tolerance`."""
        return self.counts[self.values > self.tolerance]

    @property
    def numerical_rank(self) -> int:
        return round(float(self.counts_above_tolerance.sum()))

    @property
    def condition(self) -> float | None:
        """The largest value divided by the smallest, or None if it is infinite or unknown."""
        smallest = float(self.values[-1])
        ratio = self.spectral / smallest if smallest > 0 and self.multiplicities is None else np.inf
        return ratio if ratio < np.inf else None

    def schatten_sum(self, p: float) -> float:
        """Return the sum of s_i^p over the values above the tolerance, the numerical rank if p = 0."""
        return float(np.sum(self.counts_above_tolerance * self.above_tolerance**p))

    def error(self, quantity: Callable[[Spectrum], float | None]) -> float | None:
        """Return the error of a quantity (a function of a spectrum), or None for an exact spectrum.

        It is the root of the summed squares of its random part (`spread`) and systematic part (`bracket`).
        """
        spread, width = self.spread(quantity), self.bracket(quantity)
        return None if spread is None or width is None else float(np.hypot(spread, width))

    def spread(self, quantity: Callable[[Spectrum], float | None]) -> float | None:
        """Return the random part of a quantity's error: its standard error over the probes."""
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
        scale = float(np.abs(estimates).max()) or 1.0  # so that squares do not overflow or vanish
        return scale * float(np.std(estimates / scale, ddof=1) / np.sqrt(len(per_probe)))

    def bracket(self, quantity: Callable[[Spectrum], float | None]) -> float | None:
        """Return the systematic part of a quantity's error, which all probes share.

        It is the difference between the lower and the upper quadrature rule. In float32 it is the change of
        the quantity if all values move by their errors in one direction.
        """
        if self.is_exact:
            return None
        multiplicities = self.multiplicities
        if multiplicities is None:
            lower = replace(self, values=self.values + single_errors(self.values))
        else:
            weights = replace(multiplicities, weights=multiplicities.lower_weights)
            lower = replace(self, values=multiplicities.lower_values, multiplicities=weights)
        above, below = quantity(self), quantity(lower)
        return None if above is None or below is None else abs(above - below)

    @property
    def _relative(self) -> Reals:
        """The values divided by the largest one, so that their squares do not overflow or vanish."""
        return self.values / self.spectral if self.spectral > 0 else self.values


def applied_matrix(matrix: Reals, fold: NormFold, gram: Reals | None = None) -> Applied:
    """Compute the spectral norm, with its error, and the Frobenius norm of a matrix after a norm layer.

    The matrix must be scaled by `power_scaled`. Pass M M^T as `gram` if you have it. In float32 its upper
    triangle is enough. Without `gram`, every product multiplies by M and by M^T.

    >>> folded = applied_matrix(np.array([[3.0, 0.0], [0.0, 4.0]]), NormFold(np.array([2.0, 1.0]), False))
    >>> round(folded.spectral.value, 9), round(folded.frobenius, 9)
    (6.0, 7.211102551)
    """
    gain, scale = power_scaled(fold.gain)
    scaled_fold = NormFold(gain, fold.centred)
    frobenius = _frobenius_of_gram(gram, scaled_fold) or _frobenius(matrix, scaled_fold)
    if frobenius == 0:
        return Applied(Estimate(0.0), 0.0)
    # Scale the Frobenius norm to about one by a power of two, because Lanczos's method squares.
    size = 2.0 ** int(np.frexp(frobenius)[1])
    unit = NormFold(gain / size, fold.centred)

    def product(block: Reals) -> Reals:
        inside = unit.transposed(block).astype((matrix if gram is None else gram).dtype, copy=False)
        return unit(
            matrix @ (matrix.T @ inside) if gram is None else symmetric_product(gram, inside[:, 0])[:, None]
        )

    spectral = largest_value(product, matrix.shape[0])
    return Applied(spectral, frobenius / size).rescale(size).rescale(scale)


# Smallest part of the trace that the mean may leave.
KEPT = 0.01


def _frobenius_of_gram(gram: Reals | None, fold: NormFold) -> float | None:
    """Return the Frobenius norm of the folded matrix; None if digits would be lost."""
    if gram is None or gram.dtype != np.float64:
        return None
    gain = np.broadcast_to(fold.gain, len(gram))
    trace = float(gain**2 @ np.diagonal(gram))
    left = trace - float(gain @ gram @ gain) / len(gram) if fold.centred else trace
    return float(np.sqrt(left)) if left > KEPT * trace else None


def _frobenius(matrix: Reals, fold: NormFold) -> float:
    gain = np.broadcast_to(fold.gain, matrix.shape[0])
    columns = max(1, BLOCK // matrix.shape[0])
    trace = removed = 0.0
    for at in range(0, matrix.shape[1], columns):
        # A copy in float64 has a fixed order, so that the sum does not depend on the layout of the matrix.
        part = np.array(matrix[:, at : at + columns], dtype=np.float64, order="C")
        trace += float(gain**2 @ np.einsum("ij,ij->i", part, part))
        means = gain @ part
        removed += float(means @ means) / len(gain)
    if not fold.centred or trace - removed > KEPT * trace:
        return float(np.sqrt(trace - removed if fold.centred else trace))
    blocks = (matrix[:, at : at + columns] for at in range(0, matrix.shape[1], columns))
    parts = (fold(np.array(part, dtype=np.float64, order="C")) for part in blocks)
    return float(np.sqrt(sum(float(np.einsum("ij,ij->", part, part)) for part in parts)))
