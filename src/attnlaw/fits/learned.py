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
`mu_delta(x > b) = rho` (anywhere in the gap where that leaves it free), r by least squares. A parameter is
identified where the law fits and all laws that fit about as well agree on it within a factor of three, none
of them at an end of its grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlaw.fits.angle_table import AngleTable, angle_tables
from attnlaw.laws.free_convolution import FreeConvolution
from attnlaw.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.laws.rectified import Rectified

Reals = NDArray[np.float64]
STEP = 0.25  # octaves
TARGET_RANKS: Reals = 2.0 ** np.arange(-5.0, 2.0 + STEP, STEP)
NOISES: Reals = 2.0 ** np.arange(-4.0, 2.5 + STEP, STEP)
LEAST_VALUES = 8
# A spectrum drawn from the law lies within about 2/k of it (relative Wasserstein-2; see docs/fit.md).
RESOLUTION = 2.0
# Laws no further than this (in 1/k, added in squares) from the best fit about as well.
ALIKE = 1.5
AGREEMENT = 3.0


@dataclass(frozen=True)
class Parameter:
    """What the data say about one parameter: from `low` to `high` in all laws that fit about as well.

    `value` is that of the best law, None where it is not identified; all are None where no law fits.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Learned:
    """The best law, its distance, and what the data say about its parameters.

    `distance` is relative: the root mean square distance of quantiles over that of the values; `plausible`
    says that spectra drawn from the law lie as far from it.
    """

    law: Rectified
    table: AngleTable
    rank_fraction: float
    distance: float
    plausible: bool
    noise_level: Parameter
    threshold: Parameter
    target_rank: Parameter
    scale: Parameter

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
    # Regress the values on r X - r b, then keep b where the rank fraction allows it.
    centre = family.quantiles.mean(axis=1)
    spread = family.quantiles - centre[:, None]
    slope = np.maximum(spread @ values / (spread**2).sum(axis=1), 1e-12 * values.mean())
    b = np.clip(centre - values.mean() / slope, family.lowest, family.highest)
    shifted = family.quantiles - b[:, None]
    r = shifted @ values / (shifted**2).sum(axis=1)
    squares = ((values - r[:, None] * shifted) ** 2).mean(axis=1) / (values**2).mean()
    best = int(squares.argmin())
    alike = squares <= squares[best] + (ALIKE / k) ** 2
    distance = float(np.sqrt(squares[best]))
    plausible = distance <= RESOLUTION / k

    def parameter(of_laws: Reals, inside: bool = True) -> Parameter:
        return _parameter(of_laws[best], of_laws[alike], inside) if plausible else Parameter()

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


def _parameter(best: float, alike: Reals, inside: bool) -> Parameter:
    """The range over laws alike, half a step of the grid further; the value where the ends agree."""
    half_step = 2.0 ** (STEP / 2)
    low, high = float(alike.min() / half_step), float(alike.max() * half_step)
    return Parameter(float(best) if inside and high <= AGREEMENT * low else None, low, high)


@lru_cache(maxsize=1024)
def _table(k0: float, delta: float) -> AngleTable:
    return angle_tables(k0, np.array([delta]))[0]


@lru_cache(maxsize=64)
def _family(k: int, size: int) -> _Family:
    rho = k / size
    levels = 1.0 - rho + rho * (np.arange(k) + 0.5) / k
    parts = [_members(float(k0), rho, levels) for k0 in np.unique(np.append(TARGET_RANKS, rho))]
    joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    # Weight decay cuts from above: a threshold is not negative.
    allowed = joined[4] >= 0
    target_rank, noise, quantiles, lowest, highest = (column[allowed] for column in joined)
    return _Family(target_rank, noise, quantiles, np.maximum(lowest, 0.0), highest)


def _members(k0: float, rho: float, levels: Reals) -> tuple[Reals, Reals, Reals, Reals, Reals]:
    """For one target rank and all noise levels: k0, delta, quantiles at the levels, and the ends of b."""
    quantiles = np.empty((NOISES.size, levels.size))
    ends = np.empty((2, NOISES.size))
    for row, table in enumerate(angle_tables(k0, NOISES)):
        quantiles[row] = table.quantile(levels)
        in_gap = abs(table.mass[0, -1] - (1.0 - rho)) < 1e-9 and table.half[1] > 0
        cut = table.quantile(np.array([1.0 - rho]))[0]
        gap = (table.middle[0] + table.half[0], table.middle[1] - table.half[1])
        ends[:, row] = gap if in_gap else (cut, cut)
    return np.full(NOISES.size, k0), NOISES, quantiles, ends[0], ends[1]
