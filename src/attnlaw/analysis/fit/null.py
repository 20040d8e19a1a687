"""The null "independent Gaussian entries" at finite size: draw it exactly for each shape, and test spectra.

The null of a matrix is a Gaussian matrix of its shape. The null of a head is the product of two such factors,
rows x d and d x cols. attnlaw forms neither, because smaller random matrices have the same singular values.
A Gaussian rows x d factor has a triangular factor R of independent entries (Bartlett: chi on the diagonal,
normal above), and the d x d matrix `R_A R_B^T` has the singular values of the product. Gaussian factors are
invariant under rotations, so the law of these values is symmetric in rows, d and cols. If d is not the
smallest of the three, the smallest takes its place. A Gaussian p x q matrix is equivalent to a p x p
bidiagonal one of independent chi variables (Golub and Kahan; Dumitriu and Edelman 2002). Large matrices are
compared by counting the values of each draw on a grid (see `null_draws`).

| word | meaning |
|---|---|
| normalised | singular values divided by their root mean square |
| Wasserstein-1 | `(1/n) sum_i |s_(i) - m_(i)|`, m_(i) the mean over draws of the i-th largest value |
| scale | factor from the middle half of the null's values to that of the spectrum (outliers do not matter) |
| edge | value that the null's largest value, in units of its own scale, exceeds once in a hundred draws |
| edge scale | standard deviation of the null's largest value / 1.268, that of Tracy and Widom's law |

The null has full rank. A spectrum with zeros in its middle half has no scale, hence no edge and no outliers.

Singular values up to `1e-10 min(rows, cols) s_1` are round-off and count as zero, so that no fit depends on
the scale of the weights. Laws of eigenvalues are fitted to the squares of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from threading import Lock

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.analysis.fit.null_draws import (
    CountedSpectra,
    DrawnSpectra,
    draw_matrices,
    draw_products,
    middle_half,
)
from attnlaw.core.arrays import Reals
from attnlaw.spectra.spectrum import RANK_TOLERANCE, Spectrum
from attnlaw.theory.laws.head_null import HeadNull
from attnlaw.theory.laws.law import Law
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur

LARGEST = 1e140


def obstacle(spectrum: Spectrum) -> str | None:
    """Return the reason why no law can be fitted to a spectrum, or None if laws can be fitted."""
    if spectrum.route == "lanczos":
        return (
            "the spectrum was approximated, but this needs all singular values; audit without --approximate"
        )
    if spectrum.values[0] and not 1 / LARGEST < spectrum.values[0] < LARGEST:
        return (
            f"squares of singular values near {spectrum.values[0]:.0e} are out of the range of "
            "float64; rescale the weights"
        )
    return None


def is_head(spectrum: Spectrum) -> bool:
    return spectrum.route in ("qr", "cholesky")


def inner_size(spectrum: Spectrum) -> int | None:
    """Return the inner dimension of a product of factors, or None for a single matrix."""
    return (spectrum.inner or spectrum.values.size) if is_head(spectrum) else None


def shape_ratio(spectrum: Spectrum) -> float:
    """Return the smallest dimension of a matrix divided by the largest: d_head / N for a head."""
    dimensions = (*spectrum.shape, inner_size(spectrum) or spectrum.shape[0])
    return min(dimensions) / max(dimensions)


def without_round_off(spectrum: Spectrum) -> Reals:
    """Return all singular values in descending order, with round-off set to zero."""
    tolerance = RANK_TOLERANCE * min(spectrum.shape) * spectrum.spectral
    return np.where(spectrum.values > tolerance, spectrum.values, 0.0)


def positive_values(spectrum: Spectrum) -> Reals:
    """Return the singular values above round-off in ascending order."""
    values = without_round_off(spectrum)[::-1]
    return np.asarray(values[values > 0])


def eigenvalues(spectrum: Spectrum) -> Reals:
    """Return the squares of the singular values above round-off in ascending order."""
    return np.asarray(positive_values(spectrum) ** 2)


DRAWS, DRAWS_OF_LARGE, LARGE = 200, 100, 512
# A matrix is called not random if its p-value is at most this. So small a p-value needs at least 99 draws.
LEVEL = 0.01
EDGE_LEVEL = 1 - LEVEL
# Square root of the variance 1.6078 of the Tracy-Widom law of real symmetric matrices (Bornemann 2010).
TRACY_WIDOM_DEVIATION = 1.2680
CURVE_POINTS, CURVE_BINS = 64, 512


@dataclass(frozen=True)
class NullComparison:
    """A spectrum against its null. Scale and edge are None if zeros reach into the middle half."""

    p_value: float | None  # None if all values are zero, or if there is only one
    scale: float | None
    edge: float | None
    outliers: int | None  # number of values beyond the edge; None if there is no edge


@dataclass(frozen=True, eq=False)
class Null:
    """The null for one shape.

    Args:
        sample: the drawn spectra.
        law: the limit law of the squared values: Marchenko-Pastur for a matrix, the free product of two such
            laws for a head. `law` is None if the two larger of rows, inner and cols differ.
    """

    sample: DrawnSpectra | CountedSpectra
    law: Law | None

    @property
    def draws(self) -> Reals:
        """The normalised singular values of every draw in descending order, of shape (draws, values)."""
        return self.sample.values

    @property
    def size(self) -> int:
        return self.sample.size

    def compare(self, singular_values: ArrayLike) -> NullComparison:
        """Compare singular values with the null. The caller sets round-off to zero first.

        The p-value is `(1 + #{draws at least as far})/(1 + draws)`. The distance of each spectrum, drawn or
        measured, is its distance to the mean of all spectra. So the p-value is a rank among exchangeable
        numbers if the null is true, and `P(p <= level) <= level` holds exactly for any size.
        """
        values = np.sort(np.asarray(singular_values, dtype=float))[::-1]
        p_value = None
        square = float(np.mean(np.square(values / (values[0] or 1.0))))
        if square > 0 and self.size > 1:
            drawn, distance = self.sample.distances(values / values[0] / np.sqrt(square))
            p_value = float((1 + np.count_nonzero(drawn >= distance)) / (1 + drawn.size))
        middle = values[middle_half(self.size)]
        if not middle.all():
            return NullComparison(p_value, scale=None, edge=None, outliers=None)
        edge = float(middle.sum()) * self._edge
        scale = float(middle.sum() / self.sample.middle_sums.mean())
        return NullComparison(p_value, scale, edge, int(np.count_nonzero(values > edge)))

    def wasserstein(self, singular_values: Reals) -> float:
        """Return the Wasserstein-1 distance of descending values, once normalised, to the null's mean."""
        normalised = singular_values / np.sqrt(np.mean(np.square(singular_values)))
        return float(np.abs(normalised - self.mean).mean())

    @cached_property
    def pooled(self) -> Reals:
        return np.sort(self.draws, axis=None)

    @cached_property
    def mean(self) -> Reals:
        """The mean over draws of the i-th largest value, for each i."""
        return np.asarray(self.draws.mean(axis=0))

    @cached_property
    def curve(self) -> tuple[Reals, Reals]:
        """The density of the limit law, or a smoothed histogram of the draws, at 64 ascending points."""
        if self.law is not None:
            low, high = np.sqrt(self.law.intervals[0])
            x = 0.5 * (low + high) - 0.5 * (high - low) * np.cos(np.linspace(0.0, np.pi, CURVE_POINTS))
            return x, np.asarray(2 * x * self.law.density(x**2))
        top = 1.05 * float(self.draws.max())
        counts, edges = np.histogram(self.draws, bins=CURVE_BINS, range=(0.0, top), density=True)
        smooth = scipy.ndimage.gaussian_filter1d(counts, CURVE_BINS / 100, mode="reflect")
        x = np.linspace(0.0, top, CURVE_POINTS)
        return x, np.interp(x, 0.5 * (edges[1:] + edges[:-1]), smooth)

    @cached_property
    def scale_deviation(self) -> float:
        """Relative standard deviation of the scale if the null is true."""
        return float(self._scales.std(ddof=1))

    @cached_property
    def edge_scale(self) -> float:
        """The edge of the null at scale 1."""
        return float((self.draws[:, 0] / self._scales).std(ddof=1) / TRACY_WIDOM_DEVIATION)

    @property
    def _scales(self) -> Reals:
        sums = self.draws[:, middle_half(self.size)].sum(axis=1)
        return np.asarray(sums / sums.mean())

    @cached_property
    def _edge(self) -> float:
        """The edge over the sum of the middle half of the values."""
        return self.sample.relative_edge(EDGE_LEVEL)


@dataclass(frozen=True)
class NullTest:
    p_value: float
    outliers: int | None
    draws: int  # number of random matrices that it was compared with
    shape: str  # name of the null's shape


def null_test(spectrum: Spectrum, seed: int = 0) -> NullTest | None:
    """Compare a matrix with its null; None if it has no null, or an approximate or a constant spectrum."""
    null = None if obstacle(spectrum) else null_of_spectrum(spectrum, seed)
    if null is None:
        return None
    comparison = null.compare(without_round_off(spectrum))
    if comparison.p_value is None:
        return None
    return NullTest(comparison.p_value, comparison.outliers, null.sample.count, null_shape(spectrum))


class NullPreparer:
    """Draws the null of each shape once for `null_test`, without waiting for other threads that draw."""

    def __init__(self) -> None:
        self._lock, self._shapes = Lock(), set[str]()

    def __call__(self, spectrum: Spectrum) -> None:
        if obstacle(spectrum):
            return
        shape = null_shape(spectrum)
        with self._lock:
            known = shape in self._shapes
            self._shapes.add(shape)
        if not known:
            null_test(spectrum)


@dataclass(frozen=True)
class Rejections:
    """The number of matrices that are not random at level 0.01, and the probability of that many by chance.

    If query heads share keys and values, their false alarms come together: the probability is too small.
    """

    tested: int  # number of matrices with a p-value
    rejected: int  # number of p-values up to 0.01
    expected: float  # mean number of rejections in an untrained model, where every matrix is random
    p_value: float  # probability that an untrained model has so many rejections or more

    @classmethod
    def count(cls, tests: Iterable[tuple[float | None, str | None, int | None]]) -> Rejections:
        """Count rejections among tests, given as (p-value or None, shape of the null, number of draws)."""
        tested = [(p_value, (shape, draws or 0)) for p_value, shape, draws in tests if p_value is not None]
        rejected = sum(p_value <= LEVEL for p_value, _ in tested)
        groups = Counter(group for _, group in tested)
        chances = false_alarms((spectra, draws) for (_, draws), spectra in groups.items())
        mean = float(chances @ np.arange(chances.size))
        return cls(len(tested), rejected, mean, min(float(chances[rejected:].sum()), 1.0))


def false_alarms(groups: Iterable[tuple[int, int]], level: float = LEVEL) -> Reals:
    """Return the probabilities of 0, 1, 2, ... p-values up to `level` if every spectrum comes from its null.

    All spectra of one shape are compared with the same B draws. Given these draws, a false alarm occurs when
    a distance exceeds the m-th largest of B distances, m = floor(level (B + 1)). The probability of a false
    alarm is a Beta(m, B + 1 - m) variable, so the count of a shape is beta-binomial.

    Args:
        groups: a pair (number of spectra, number of draws B) for each shape.

    >>> round(float(false_alarms([(201, 200)]) @ np.arange(202)), 9)  # 201 spectra, m/(B + 1) = 2/201
    2.0
    """
    chances = np.ones(1)
    for spectra, draws in groups:
        m = int(level * (draws + 1))
        group_chances = _beta_binomial(spectra, m, draws + 1 - m) if m else np.eye(spectra + 1)[0]
        chances = np.convolve(chances, group_chances)
    return chances


def _beta_binomial(n: int, a: int, b: int) -> Reals:
    """Return `binom(n, k) B(k + a, n - k + b) / B(a, b)`, the chances of k = 0 to n successes."""
    k = np.arange(n + 1)
    # From k to k + 1 the probability changes by (n - k) (a + k) / ((k + 1) (b + n - k - 1)).
    steps = np.log((n - k[:-1]) * (a + k[:-1]) / ((k[:-1] + 1) * (b + n - k[:-1] - 1.0)))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    chances = np.exp(logs - logs.max())
    return np.asarray(chances / chances.sum())


def null_of_spectrum(spectrum: Spectrum, seed: int = 0) -> Null | None:
    """Return the null of a matrix; None for latent attention, whose factors have parts of unknown scale."""
    return None if spectrum.latent else null_of_shape(*spectrum.shape, inner_size(spectrum), seed=seed)


def null_shape(spectrum: Spectrum) -> str:
    """Return the name of the shape whose null is compared with a spectrum.

    >>> null_shape(Spectrum(np.ones(2), (8, 4), 1.0, 1.0, "qr", inner=2))
    '4 x 8 through 2'
    """
    low, high = sorted(spectrum.shape)
    inner = inner_size(spectrum)
    return f"{low} x {high}" + ("" if inner is None else f" through {inner}")


def null_of_shape(
    rows: int, cols: int, inner: int | None = None, draws: int | None = None, seed: int = 0
) -> Null:
    """Return the null of a rows x cols matrix, or of a product through `inner` dimensions.

    The null of each shape is drawn once and kept in memory.

    By default it has 200 draws, or 100 for more than 512 values, because large spectra fluctuate less.

    >>> null = null_of_shape(64, 64, inner=8, draws=50)
    >>> null.size, null.compare(np.ones(8)).p_value  # 8 equal values are farther than all 50 draws
    (8, 0.0196...)
    """
    low, high = sorted((rows, cols))
    count = low if inner is None else min(inner, low)
    chosen = draws if draws is not None else DRAWS if count <= LARGE else DRAWS_OF_LARGE
    return _null(low, high, inner, chosen, seed)


@lru_cache(maxsize=64)
def _null(low: int, high: int, inner: int | None, draws: int, seed: int) -> Null:
    rng = np.random.default_rng([seed, low, high, inner or 0])
    sample = (
        draw_matrices(low, high, draws, rng) if inner is None else draw_products(low, high, inner, draws, rng)
    )
    return Null(sample, _limit(low, high, inner))


def _limit(low: int, high: int, inner: int | None) -> Law | None:
    if inner is None:
        return MarchenkoPastur(high / low, scale=np.sqrt(low / high))
    smallest, left, right = sorted((low, high, inner))
    return HeadNull(smallest / left) if left == right else None
