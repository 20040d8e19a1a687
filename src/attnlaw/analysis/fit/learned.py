"""Fit the law of trained attention's spectrum to the singular values of a real head: an extension.

Theory (arXiv 2509.24914): a trained positive semidefinite N x N matrix has eigenvalues `r (X - b)_+`, where X
has the law `mu_delta`: Marchenko-Pastur of rank ratio k0, blurred by a semicircle. A real head is neither
symmetric nor positive semidefinite. So attnlaw fits its N singular values, and the zeros among them are the
atom. In the `untied` law, X comes from the singular values of a product of two factors, blurred (not in the
paper).

| letter | meaning | in units of |
|---|---|---|
| N, k, rho | size, number of values above round-off, and the rank fraction `rho = k/N` | |
| k0 | rank ratio of the target | |
| delta, b | noise level and threshold | the target's deviation |
| t | cut, `mu_delta(x > t) = rho`: values below it are zero | the target's deviation |
| r | scale; `noise_level = r delta`, `threshold = r b` | singular values |

Weight decay cuts at t = b. Factors narrower than what they would learn cut at t > b, and their spectrum `r (X
- b) 1(X > t)` ends at `r (t - b)` (`attnlaw.theory.learn.students.factorized`). So `b/t` shows what cut the
rank: weight decay (1) or width (below 1). Laws with b far below t come close to the law of an untrained head,
so fit only heads that are not random.

The fit minimises the Wasserstein-2 distance of the k values to the law's quantiles over a grid of (k0,
delta). rho determines t, b runs from 0 to t (in a gap of the law, to the end of the gap), and r follows by
least squares. Below rho the grid holds every rank from 4 on (up to k = 512), because a gap of the law
distinguishes ranks that differ by one. Around the best law the grid is finer in delta. A parameter is
identified if three conditions hold: the law fits, all laws that fit about as well agree on the parameter
within a factor of three, and none of them is at an end of its grid.

An `AngleTable` holds a blurred law: quantiles, distribution function and density. On each of at most two
intervals `x = middle - half cos(theta)`. The table holds the mass up to equally spaced angles and is linear
between them. Its error is a few parts in 10000. This is enough, because k values only resolve 1/k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Range
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.symmetric_product import SymmetricProduct
from attnlaw.theory.laws.transformed import Rectified


@dataclass(frozen=True, eq=False)
class AngleTable:
    """A law on one or two intervals, tabulated over the angle theta. A missing interval has `half = 0`."""

    theta: Reals  # the angles
    mass: Reals  # mass up to each angle, of shape (intervals, angles)
    slope: Reals  # derivative of the mass between angles, of shape (intervals, angles - 1)
    middle: Reals
    half: Reals

    @property
    def gap(self) -> tuple[float, float] | None:
        """The ends of the gap between two intervals, or None if there is only one interval."""
        low, high = self.middle - self.half, self.middle + self.half
        return (float(high[0]), float(low[1])) if self.half[1:].any() else None

    def quantile(self, p: Reals) -> Reals:
        """Return the point x with probability mass p below it, for 0 < p < 1."""
        place = np.searchsorted(self.mass[:-1, -1], p)
        angles = [np.interp(p, mass, self.theta) for mass in self.mass]
        return np.asarray(self.middle[place] - self.half[place] * np.cos(np.choose(place, angles)))

    def cdf(self, x: Reals) -> Reals:
        parts = [np.interp(self._angle(x, i), self.theta, mass - mass[0]) for i, mass in enumerate(self.mass)]
        return np.asarray(sum(parts))

    def density(self, x: Reals) -> Reals:
        """Return the density, which is zero outside the intervals."""
        total = np.zeros(x.shape)
        centres = 0.5 * (self.theta[1:] + self.theta[:-1])
        for i in range(self.half.size):
            inside = np.abs(x - self.middle[i]) < self.half[i]
            angle = self._angle(x[inside], i)
            height = np.interp(angle, centres, self.slope[i] / np.sin(centres) ** 2)
            total[inside] = height * np.sin(angle) / self.half[i]
        return total

    def _angle(self, x: Reals, i: int) -> Reals:
        if self.half[i] == 0:
            return np.zeros(x.shape)
        return np.asarray(np.arccos(np.clip((self.middle[i] - x) / self.half[i], -1.0, 1.0)))


def angle_tables(base: MarchenkoPastur | SymmetricProduct, noises: Reals) -> list[AngleTable]:
    """Return a table for each noise level: the base law, or its absolute value, blurred by a semicircle."""
    tables: dict[int, AngleTable] = {}
    sides = 2 if isinstance(base, SymmetricProduct) else 1
    for rows, (nodes,) in Truncated(base, noises, sides).node_groups():
        steps = nodes.x.shape[-1]
        theta = np.linspace(0.0, np.pi, steps + 1)
        slope = nodes.mass if sides == 1 else np.where(nodes.x > 0, 2 * nodes.mass, 0.0)
        mass = np.concatenate([np.zeros((*nodes.low.shape, 1)), slope.cumsum(axis=-1)], axis=-1)
        mass *= np.pi / steps
        mass[:, 1:] += mass[:, :1, -1:]
        middle, half = 0.5 * (nodes.low + nodes.high), 0.5 * (nodes.high - nodes.low)
        for place, row in enumerate(rows):
            tables[int(row)] = AngleTable(theta, mass[place], slope[place], middle[place], half[place])
    return [tables[row] for row in range(noises.size)]


STEP = 0.25  # step of the grids, in octaves
FINE_STEP = STEP / 8
TARGET_RANKS: Reals = 2.0 ** np.arange(-5.0, 2.0 + STEP, STEP)
NOISES: Reals = 2.0 ** np.arange(-4.0, 2.5 + STEP, STEP)
SHARES: Reals = np.linspace(0.0, 1.0, 21)  # values of b/t that are tried
LEAST_VALUES = 8
# A target of lower rank would fit every spectrum with one or two large values, such as 1/i.
LEAST_RANK, MOST_RANKS = 4, 512
TARGETS: dict[str, type[MarchenkoPastur] | type[SymmetricProduct]] = {
    "tied": MarchenkoPastur,
    "untied": SymmetricProduct,
}
# Distance of spectra drawn from the law (see `resolution`): a constant, and the growth per octave of k.
RESOLUTION_TERMS = {True: (0.53, 0.085), False: (0.55, 0.09)}
# A law fits about as well as the best one if its squared distance is larger by at most (ALIKE / k)^2.
ALIKE = 1.5
AGREEMENT = 3.0


@dataclass(frozen=True)
class LearnedFit:
    """The best learned-spectrum law, and the ranges of its parameters that the data allow.

    The range of a parameter covers all laws that fit about as well. The value of a parameter is that of the
    best law, or None if the data do not identify it. If no law fits, values and ranges are None.

    Args:
        cut_ratio: b/t, which shows whether weight decay (1) or width (below 1) cut the rank. `cut_ratio` has
            a value whenever a law fits.
    """

    attention: str  # "tied" or "untied"
    best_rank: float  # rank ratio of the target of the best law
    best_noise: float  # noise level delta of the best law, before its scale
    best_threshold: float
    best_scale: float
    best_cut: float | None  # the cut t, if it is above the threshold b
    table: AngleTable  # table of the blurred law, before the cut
    rank_fraction: float  # share rho of the values that are above round-off
    distance: float  # root mean square distance of quantiles, divided by the root mean square of the values
    plausible: bool  # whether the values are as close to the law as spectra drawn from it
    noise_level: Range
    threshold: Range
    target_rank: Range
    scale: Range
    cut_ratio: Range

    @cached_property
    def law(self) -> Rectified:
        blurred = FreeConvolution(TARGETS[self.attention](self.best_rank), self.best_noise)
        sides = 2 if self.attention == "untied" else 1
        return Rectified(blurred, self.best_threshold, self.best_scale, sides, self.best_cut)

    @property
    def _cut(self) -> Reals:
        """The smallest X that is not cut to zero."""
        return np.array([max(self.best_threshold, self.best_cut or 0.0)])

    @property
    def top(self) -> float:
        return self.best_scale * (float((self.table.middle + self.table.half).max()) - self.best_threshold)

    def cdf(self, values: Reals) -> Reals:
        """Return the distribution function of the law's positive values."""
        below = self.table.cdf(values / self.best_scale + self.best_threshold)
        atom = self.table.cdf(self._cut)
        return np.asarray(np.maximum(below - atom, 0.0) / (1.0 - atom))

    def density(self, values: Reals) -> Reals:
        """Return the density of the law's positive values."""
        x = values / self.best_scale + self.best_threshold
        atom = self.table.cdf(self._cut)[0]
        height = np.where((values > 0) & (x > self._cut), self.table.density(x), 0.0)
        return np.asarray(height / (self.best_scale * (1.0 - atom)))


@dataclass(frozen=True, eq=False)
class _Family:
    """Laws for k of N values: the k upper quantiles of each, and bounds of the cut t, equal without a gap."""

    target_rank: Reals
    noise: Reals
    quantiles: Reals
    lowest: Reals
    highest: Reals


def fit_learned(
    singular_values: ArrayLike, size: int, attention: str = "tied", limited: bool = True
) -> LearnedFit | None:
    """Fit the learned-spectrum law to the positive singular values of a size x size matrix.

    Args:
        attention: "tied" or "untied".
        limited: whether the width of the factors may have cut the rank. If false, only weight decay cut the
            rank, and b = t.

    Returns:
        The fit. None if there are fewer than 8 values, or if the rank is full, because then nothing was cut.
    """
    values = np.sort(np.asarray(singular_values, dtype=float))
    values = values[values > 0]
    k = values.size
    if k < LEAST_VALUES or k >= size:
        return None
    family = _family(attention, k, size)
    squares = _fit_family(family, values, limited)[2]
    first = int(squares.argmin()) % family.noise.size
    family = _join_families([family, _refine_family(attention, family, first, k, size)])
    r, b, squares = _fit_family(family, values, limited)
    best = np.unravel_index(int(squares.argmin()), squares.shape)
    alike = squares <= squares[best] + (ALIKE / k) ** 2
    distance = float(np.sqrt(squares[best]))
    plausible = distance <= resolution(values, limited)

    def parameter(of_laws: Reals, inside: bool = True) -> Range:
        of_laws = np.broadcast_to(of_laws, squares.shape)
        return _parameter(of_laws[best], of_laws[alike], inside) if plausible else Range(None, None, None)

    laws = alike.any(axis=0)
    noise_inside = not np.isin(family.noise[laws], NOISES[[0, -1]]).any()
    ranks = family.target_rank
    rank_inside = not np.isin(ranks[laws], [ranks.min(), ranks.max()]).any()
    k0, delta = float(family.target_rank[best[1]]), float(family.noise[best[1]])
    threshold, scale = float(b[best]), float(r[best])
    cut = max(threshold, float(family.lowest[best[1]]))
    ratio = np.minimum(b, family.lowest) / np.where(family.lowest > 0, family.lowest, 1.0)
    ratio = np.where(family.lowest > 0, ratio, 1.0)
    return LearnedFit(
        attention=attention,
        best_rank=k0,
        best_noise=delta,
        best_threshold=threshold,
        best_scale=scale,
        best_cut=cut if cut > threshold else None,
        table=_table(attention, k0, delta),
        rank_fraction=k / size,
        distance=distance,
        plausible=plausible,
        noise_level=parameter(r * family.noise, noise_inside),
        threshold=parameter(r * b),
        target_rank=parameter(family.target_rank, rank_inside),
        scale=parameter(r),
        cut_ratio=(
            Range(float(ratio[best]), float(ratio[alike].min()), float(ratio[alike].max()))
            if plausible
            else Range(None, None, None)
        ),
    )


def resolution(values: Reals, limited: bool = True) -> float:
    """Return the distance to the law that 98% of the spectra drawn from it do not exceed.

    This distance is `(0.53 + 0.085 log2(k/8))/n`, where `n = (sum s^2)^2 / sum s^4` is the effective number
    of singular values s. The numbers were measured on 1248 draws of the tied and the untied law with k from 8
    to 256, k/N from 1/12 to 1/2, b/t from 0 to 1 and parameters from all over the grid. For b = t the two
    numbers are 0.55 and 0.09, measured on 1800 draws. For k above 256 the formula is an extrapolation.

    >>> round(resolution(np.ones(8)), 4), round(resolution(np.ones(64)), 4)
    (0.0663, 0.0123)
    """
    squares = (values / values.max()) ** 2
    effective_count = float(squares.sum() ** 2 / (squares**2).sum())
    first, per_octave = RESOLUTION_TERMS[limited]
    return (first + per_octave * math.log2(values.size / LEAST_VALUES)) / effective_count


def _fit_family(family: _Family, values: Reals, limited: bool) -> tuple[Reals, Reals, Reals]:
    """Return scale r, threshold b and squared distance of each law (columns), with the best b in row 0."""
    X, k = family.quantiles, values.size
    first, second, product = X.sum(axis=1), (X**2).sum(axis=1), X @ values
    # Regress the values on r X - r b, then clip b to what the law allows.
    spread = second - first**2 / k
    slope = (product - first * values.mean()) / np.maximum(spread, 1e-12 * second)
    free = first / k - values.mean() / np.maximum(slope, 1e-12 * values.mean())
    shares = SHARES if limited else SHARES[-1:]
    at_best = np.clip(free, shares[0] * family.lowest, family.highest)
    b = np.vstack([at_best, shares[:, None] * family.lowest, family.highest])
    length = second - 2 * b * first + k * b * b
    along = product - b * values.sum()
    total = float(values @ values)
    return along / length, b, np.maximum(total - along**2 / length, 0.0) / total


def _parameter(best: float, alike: Reals, inside: bool) -> Range:
    """Return a parameter with its range, widened by half a grid step. It is None if not identified."""
    half_step = 2.0 ** (STEP / 2)
    low, high = float(alike.min() / half_step), float(alike.max() * half_step)
    return Range(float(best) if inside and high <= AGREEMENT * low else None, low, high)


@lru_cache(maxsize=1024)
def _table(attention: str, k0: float, delta: float) -> AngleTable:
    return angle_tables(TARGETS[attention](k0), np.array([delta]))[0]


@lru_cache(maxsize=1024)
def _tables(attention: str, k0: float) -> list[AngleTable]:
    return angle_tables(TARGETS[attention](k0), NOISES)


@lru_cache(maxsize=16)
def _family(attention: str, k: int, size: int) -> _Family:
    ranks = np.arange(k, 0, -math.ceil(k / MOST_RANKS)) / size
    least = min(TARGET_RANKS[0], (LEAST_RANK - 0.5) / size)
    target_ranks = np.union1d(TARGET_RANKS, ranks[ranks > least])
    laws = (float(k0) for k0 in target_ranks)
    return _join_families([_members(k0, NOISES, _tables(attention, k0), k, size) for k0 in laws])


def _refine_family(attention: str, family: _Family, best: int, k: int, size: int) -> _Family:
    """Return laws with the rank of the best law, at noise levels between those of its neighbours."""
    k0, delta = float(family.target_rank[best]), family.noise[best]
    noises = delta * 2.0 ** np.arange(-STEP + FINE_STEP, STEP, FINE_STEP)
    noises = noises[(noises > NOISES[0]) & (noises < NOISES[-1])]
    return _members(k0, noises, angle_tables(TARGETS[attention](k0), noises), k, size)


def _join_families(families: list[_Family]) -> _Family:
    columns = zip(*(vars(family).values() for family in families), strict=True)
    return _Family(*(np.concatenate(column) for column in columns))


def _members(k0: float, noises: Reals, tables: list[AngleTable], k: int, size: int) -> _Family:
    """Return the laws of rank ratio k0 at these noise levels, without those whose cut is negative."""
    rho = k / size
    levels = 1.0 - rho + rho * np.append(0.0, np.arange(k) + 0.5) / k
    quantiles = np.empty((noises.size, k))
    ends = np.empty((2, noises.size))
    for row, table in enumerate(tables):
        row_quantiles = table.quantile(levels)
        cut, quantiles[row] = row_quantiles[0], row_quantiles[1:]
        in_gap = abs(table.mass[0, -1] - (1.0 - rho)) < 1e-9
        ends[:, row] = (in_gap and table.gap) or (cut, cut)
    # Weight decay never gives a negative threshold.
    allowed = ends[1] >= 0
    lowest, highest = ends[:, allowed]
    k0s = np.full(lowest.size, k0)
    return _Family(k0s, noises[allowed], quantiles[allowed], np.maximum(lowest, 0.0), highest)
