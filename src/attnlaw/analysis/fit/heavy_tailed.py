"""Fit kappa of the high-temperature Marchenko-Pastur law by maximum likelihood (arXiv 2506.03470).

The shape of the matrix determines gamma, and the eigenvalues are scaled to mean 1. So kappa is the only
parameter to fit. A small kappa means a heavy tail, and kappa -> infinity is Marchenko-Pastur. The likelihood
treats the eigenvalues as independent. Those of a real matrix repel each other, so the interval is rather too
wide than too narrow.

A fit to draws of the null gives finite values of kappa too: about 2.3 to 3.4 for heads of equal sides, less
if the sides differ, infinite for most matrices. So attnlaw calls a matrix "heavier than the null" only if its
kappa is smaller than almost all of those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.fit.null import Null
from attnlaw.core.arrays import Reals
from attnlaw.theory.laws.heavy_tailed import HighTemperatureMP

Integers = NDArray[np.int64]
STEP = 0.25  # step of the grid of kappa, in octaves
LEAST_KAPPA, LARGEST_KAPPA = 2.0**-7, 2.0**12
FIRST, LAST = round(np.log2(LEAST_KAPPA) / STEP), round(np.log2(LARGEST_KAPPA) / STEP)
# At the ends of the interval the log-likelihood is lower by this: half the 95% point of chi-squared(1).
DROP = 1.9207
# Share of the null's draws that would be called "heavier than the null".
HEAVIER_LEVEL = 0.01


@dataclass(frozen=True)
class HeavyTail:
    """The fitted kappa with its 95% likelihood interval. Off the grid, kappa and one end are None."""

    gamma: float  # shorter side of the matrix divided by the longer
    place: float  # position on the grid, where kappa = 2^(place * STEP)
    kappa: float | None
    error: float | None  # standard error of kappa
    low: float | None
    high: float | None
    log_likelihood: float  # mean log-likelihood per eigenvalue

    @property
    def kappa_or_limit(self) -> float:
        """The fitted kappa, which is 0 below the grid and infinite above the grid."""
        return float(_extended(np.array(self.place)))

    def heavier(self, null_kappas: Reals) -> bool:
        """Return whether kappa is smaller than for almost all draws of the null: at most 1 in 100."""
        lower = np.count_nonzero(null_kappas <= self.kappa_or_limit)
        return bool((1 + lower) / (1 + null_kappas.size) <= HEAVIER_LEVEL)

    def cdf(self, x: Reals) -> Reals:
        return self._between(x, HighTemperatureMP.cdf)

    def density(self, x: Reals) -> Reals:
        return self._between(x, HighTemperatureMP.density)

    def _between(self, x: Reals, value: Callable[[HighTemperatureMP, Reals], Reals]) -> Reals:
        first = min(int(np.floor(self.place)), LAST - 1)
        weight = self.place - first
        sides = (value(_law(first + side, self.gamma), x) for side in (0, 1))
        return np.asarray((1 - weight) * next(sides) + weight * next(sides))


def fit_kappa(eigenvalues: Reals, gamma: float) -> HeavyTail:
    """Fit kappa to positive eigenvalues of mean 1, for `0 < gamma < 1`.

    The search starts at the kappa that matches the second moment m2, `2 gamma / (m2 - 1 - gamma)`. The search
    climbs the likelihood on a grid of quarter octaves, and ends with a parabola in log kappa.
    """
    known: dict[int, float] = {}

    def at(place: int) -> float:
        if place not in known:
            known[place] = float(_law(place, gamma).log_density(eigenvalues).sum())
        return known[place]

    best = _match_second_moment(float(np.mean(eigenvalues**2)) - 1.0 - gamma, gamma)
    while neighbours := [
        side for side in (best - 1, best + 1) if FIRST <= side <= LAST and at(side) > at(best)
    ]:
        best = max(neighbours, key=at)
    kappa = error = None
    place, peak = float(best), at(best)
    if FIRST < best < LAST:
        below, above = at(best - 1), at(best + 1)
        curvature = 2 * peak - below - above
        shift = 0.5 * (above - below) / curvature
        place += shift
        kappa = 2.0 ** (place * STEP)
        error = kappa * STEP * float(np.log(2.0) / np.sqrt(curvature))
        peak += 0.5 * curvature * shift**2
    low, high = (_crossing(at, best, side, peak - DROP) for side in (-1, 1))
    return HeavyTail(gamma, place, kappa, error, low, high, peak / eigenvalues.size)


@lru_cache(maxsize=64)
def kappas_of_null(null: Null, gamma: float) -> Reals:
    """Return the kappa of every draw, 0 below the grid and infinity above, found for all draws together."""
    eigenvalues = null.draws**2
    draws, size = eigenvalues.shape
    # A row for each place of the grid. The first and the last row are -inf, so that no draw leaves the grid.
    known = np.full((LAST - FIRST + 3, draws), np.nan)
    known[[0, -1]] = -np.inf

    def at(places: Integers) -> Reals:
        """Return the log-likelihood of each draw at its place on the grid."""
        for place in np.unique(places):
            row = place - FIRST + 1
            asking = (places == place) & np.isnan(known[row])
            if asking.any():
                logs = _law(int(place), gamma).log_density(eigenvalues[asking].ravel())
                known[row, asking] = logs.reshape(-1, size).sum(axis=1)
        return np.asarray(known[places - FIRST + 1, np.arange(draws)])

    best = np.array([_match_second_moment(m2 - 1.0 - gamma, gamma) for m2 in np.mean(eigenvalues**2, axis=1)])
    while True:
        below, peak, above = (at(best + side) for side in (-1, 0, 1))
        step = np.where(np.maximum(below, above) > peak, np.where(above > below, 1, -1), 0)
        if not step.any():
            break
        best = best + step
    inner = (best > FIRST) & (best < LAST)
    place = best.astype(float)
    place[inner] += 0.5 * (above - below)[inner] / (2 * peak - below - above)[inner]
    return _extended(place)


def _extended(place: Reals) -> Reals:
    ends = np.where(place <= FIRST, 0.0, np.inf)
    return np.asarray(np.where((place > FIRST) & (place < LAST), 2.0 ** (place * STEP), ends))


def _match_second_moment(excess: float, gamma: float) -> int:
    """Return the place on the grid whose kappa has the second moment `1 + gamma + excess`."""
    matched = np.log2(2 * gamma / excess) / STEP if excess > 0 else LAST
    return int(np.clip(np.round(matched), FIRST, LAST))


def _crossing(at: Callable[[int], float], best: int, side: int, level: float) -> float | None:
    """Return the kappa in the direction `side` where the log-likelihood falls to `level`, or None."""
    place = best
    while at(place) > level:
        place += side
        if not FIRST <= place <= LAST:
            return None
    inner, outer = at(place - side), at(place)
    return float(2.0 ** ((place - side * (level - outer) / (inner - outer)) * STEP))


@lru_cache(maxsize=2048)
def _law(place: int, gamma: float) -> HighTemperatureMP:
    return HighTemperatureMP(2.0 ** (place * STEP), gamma)
