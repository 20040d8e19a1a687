"""The spectrum that attention learns in theory, fitted to the singular values of a real head: an extension.

Theory (arXiv 2509.24914): a trained positive semidefinite N x N matrix has eigenvalues `r (X - b)_+`, where X
has the law `mu_delta`: Marchenko-Pastur of rank ratio k0, blurred by a semicircle. A real head is neither
symmetric nor positive semidefinite: its N singular values are fitted, the zeros among them as the atom.

| letter | meaning | in units of |
|---|---|---|
| N, k, rho | size, values above round-off, `rho = k/N`: the rank fraction | |
| k0 | rank ratio of the target | |
| delta, b | noise level and threshold | the target's deviation |
| r | scale; `noise_level = r delta`, `threshold = r b` | singular values |

Fit: least Wasserstein-2 distance of the k values to the law's quantiles over a grid of (k0, delta), b from
`mu_delta(x > b) = rho` (anywhere in the gap where that leaves it free), r by least squares. Below rho the
grid holds every rank (up to k = 512), since a gap of the law tells ranks apart that differ by one; around the
best law it is finer in delta. A parameter is identified where the law fits and all laws that fit about as
well agree on it within a factor of three, none of them at an end of its grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlaw.base.estimate import Range
from attnlaw.fits.angle_table import AngleTable, angle_tables
from attnlaw.laws.free_convolution import FreeConvolution
from attnlaw.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.laws.rectified import Rectified

Reals = NDArray[np.float64]
STEP = 0.25  # octaves
FINE_STEP = STEP / 8
TARGET_RANKS: Reals = 2.0 ** np.arange(-5.0, 2.0 + STEP, STEP)
NOISES: Reals = 2.0 ** np.arange(-4.0, 2.5 + STEP, STEP)
LEAST_VALUES = 8
MOST_RANKS = 512
# How far spectra drawn from the law lie from it: see `resolution`.
NEAR, NEAR_PER_OCTAVE = 0.55, 0.09
# Laws no further than this (in 1/k, added in squares) from the best fit about as well.
ALIKE = 1.5
AGREEMENT = 3.0


@dataclass(frozen=True)
class Learned:
    """The best law, its distance, and what the data say about its parameters.

    `distance` is relative: the root mean square distance of quantiles over that of the values; `plausible`
    says that spectra drawn from the law lie as far from it. A parameter ranges over all laws that fit about
    as well; its value is that of the best law, None where it is not identified, all None where no law fits.
    """

    law: Rectified
    table: AngleTable
    rank_fraction: float
    distance: float
    plausible: bool
    noise_level: Range
    threshold: Range
    target_rank: Range
    scale: Range

    @property
    def top(self) -> float:
        """The upper edge of the law."""
        return self.law.scale * (float((self.table.middle + self.table.half).max()) - self.law.threshold)

    def cdf(self, values: Reals) -> Reals:
        """The share of the law's positive part that lies below each value."""
        cuts = np.append(values / self.law.scale, 0.0) + self.law.threshold
        below = self.table.cdf(cuts)
        return np.asarray((below[:-1] - below[-1]) / (1.0 - below[-1]))

    def density(self, values: Reals) -> Reals:
        """The density of the law's positive part."""
        x = values / self.law.scale + self.law.threshold
        atom = self.table.cdf(np.array([self.law.threshold]))[0]
        height = np.where(values > 0, self.table.density(x), 0.0)
        return np.asarray(height / (self.law.scale * (1.0 - atom)))


@dataclass(frozen=True, eq=False)
class _Family:
    """The grid of laws for k of N values: upper quantiles X of shape (laws, k), and where b may lie."""

    target_rank: Reals
    noise: Reals
    quantiles: Reals
    lowest: Reals
    highest: Reals


def fit_learned(singular_values: ArrayLike, size: int) -> Learned | None:
    """Fit the learned-spectrum law to the positive singular values of a size x size matrix.

    None where the law has no say: fewer than 8 values, or no zeros among the N (full rank: nothing was cut).
    """
    values = np.sort(np.asarray(singular_values, dtype=float))
    values = values[values > 0]
    k = values.size
    if k < LEAST_VALUES or k >= size:
        return None
    family = _family(k, size)
    first = int(_fitted(family, values)[2].argmin())
    family = _joined([family, _finer(family, first, k, size)])
    r, b, squares = _fitted(family, values)
    best = int(squares.argmin())
    alike = squares <= squares[best] + (ALIKE / k) ** 2
    distance = float(np.sqrt(squares[best]))
    plausible = distance <= resolution(values)

    def parameter(of_laws: Reals, inside: bool = True) -> Range:
        return _parameter(of_laws[best], of_laws[alike], inside) if plausible else Range(None, None, None)

    noise_inside = not np.isin(family.noise[alike], NOISES[[0, -1]]).any()
    rank_inside = not np.isin(family.target_rank[alike], TARGET_RANKS[[0, -1]]).any()
    k0, delta = float(family.target_rank[best]), float(family.noise[best])
    return Learned(
        law=Rectified(FreeConvolution(MarchenkoPastur(k0), delta), float(b[best]), float(r[best])),
        table=_table(k0, delta),
        rank_fraction=k / size,
        distance=distance,
        plausible=plausible,
        noise_level=parameter(r * family.noise, noise_inside),
        threshold=parameter(r * b),
        target_rank=parameter(family.target_rank, rank_inside),
        scale=parameter(r),
    )


def resolution(values: Reals) -> float:
    """The distance within which 98% of spectra drawn from the law lie: `(0.55 + 0.09 log2(k/8))/n`.

    `n = (sum s^2)^2 / sum s^4` is the number of values that the distance is made of: few large ones fluctuate
    as few. Measured on 1800 draws with k from 8 to 256, k/N from 1/12 to 1/2 and parameters from all over
    the grid; beyond k = 256 an extrapolation.

    >>> round(resolution(np.ones(8)), 4), round(resolution(np.ones(64)), 4)
    (0.0688, 0.0128)
    """
    squares = (values / values.max()) ** 2
    many = float(squares.sum() ** 2 / (squares**2).sum())
    return (NEAR + NEAR_PER_OCTAVE * math.log2(values.size / LEAST_VALUES)) / many


def _fitted(family: _Family, values: Reals) -> tuple[Reals, Reals, Reals]:
    """r, b and the relative squared distance of every law."""
    # Regress the values on r X - r b, then keep b where the rank fraction allows it.
    centre = family.quantiles.mean(axis=1)
    spread = family.quantiles - centre[:, None]
    slope = np.maximum(spread @ values / (spread**2).sum(axis=1), 1e-12 * values.mean())
    b = np.clip(centre - values.mean() / slope, family.lowest, family.highest)
    shifted = family.quantiles - b[:, None]
    r = shifted @ values / (shifted**2).sum(axis=1)
    return r, b, ((values - r[:, None] * shifted) ** 2).mean(axis=1) / (values**2).mean()


def _parameter(best: float, alike: Reals, inside: bool) -> Range:
    """The range over laws alike, half a step of the grid further; the value where the ends agree."""
    half_step = 2.0 ** (STEP / 2)
    low, high = float(alike.min() / half_step), float(alike.max() * half_step)
    return Range(float(best) if inside and high <= AGREEMENT * low else None, low, high)


@lru_cache(maxsize=1024)
def _table(k0: float, delta: float) -> AngleTable:
    return angle_tables(k0, np.array([delta]))[0]


@lru_cache(maxsize=512)
def _tables(k0: float) -> list[AngleTable]:
    return angle_tables(k0, NOISES)


@lru_cache(maxsize=16)
def _family(k: int, size: int) -> _Family:
    ranks = np.arange(k, 0, -math.ceil(k / MOST_RANKS)) / size
    target_ranks = np.union1d(TARGET_RANKS, ranks[ranks > TARGET_RANKS[0]])
    return _joined([_members(float(k0), NOISES, _tables(float(k0)), k, size) for k0 in target_ranks])


def _finer(family: _Family, best: int, k: int, size: int) -> _Family:
    """Laws between the one and its neighbours in delta."""
    k0, delta = float(family.target_rank[best]), family.noise[best]
    noises = delta * 2.0 ** np.arange(-STEP + FINE_STEP, STEP, FINE_STEP)
    noises = noises[(noises > NOISES[0]) & (noises < NOISES[-1])]
    return _members(k0, noises, angle_tables(k0, noises), k, size)


def _joined(families: list[_Family]) -> _Family:
    columns = zip(*(vars(family).values() for family in families), strict=True)
    return _Family(*(np.concatenate(column) for column in columns))


def _members(k0: float, noises: Reals, tables: list[AngleTable], k: int, size: int) -> _Family:
    """The laws of one target rank at these noise levels that leave k of N values."""
    rho = k / size
    levels = 1.0 - rho + rho * np.append(0.0, np.arange(k) + 0.5) / k
    quantiles = np.empty((noises.size, k))
    ends = np.empty((2, noises.size))
    for row, table in enumerate(tables):
        found = table.quantile(levels)
        cut, quantiles[row] = found[0], found[1:]
        in_gap = abs(table.mass[0, -1] - (1.0 - rho)) < 1e-9 and table.half[1] > 0
        gap = (table.middle[0] + table.half[0], table.middle[1] - table.half[1])
        ends[:, row] = gap if in_gap else (cut, cut)
    # Weight decay cuts from above: a threshold is not negative.
    allowed = ends[1] >= 0
    lowest, highest = ends[:, allowed]
    k0s = np.full(lowest.size, k0)
    return _Family(k0s, noises[allowed], quantiles[allowed], np.maximum(lowest, 0.0), highest)
