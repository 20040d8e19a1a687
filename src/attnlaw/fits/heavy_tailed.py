"""kappa of the high-temperature Marchenko-Pastur law, by maximum likelihood (arXiv 2506.03470).

gamma is known from the shape, and the eigenvalues are scaled to mean 1, so kappa alone is fitted: small kappa
is a heavy tail, kappa -> infinity is Marchenko-Pastur. The likelihood takes the eigenvalues as independent;
those of a real matrix repel each other, so the interval is rather too wide than too narrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnlaw.laws.htmp import HighTemperatureMP

Reals = NDArray[np.float64]
STEP = 0.25  # octaves of kappa
FIRST, LAST = round(-7 / STEP), round(12 / STEP)
# Half the 95% point of chi-squared with one degree of freedom: a drop of the log-likelihood.
DROP = 1.9207


@dataclass(frozen=True)
class HeavyTail:
    """The law of greatest likelihood, the standard error of kappa, and its 95% likelihood interval.

    An end of the interval is None where it lies off the grid (kappa from 1/128 to 4096), and so is `error` if
    the greatest likelihood does: then the law is the last one of the grid.
    """

    law: HighTemperatureMP
    error: float | None
    low: float | None
    high: float | None
    log_likelihood: float


def fit_kappa(eigenvalues: Reals, gamma: float) -> HeavyTail:
    """Fit kappa to positive eigenvalues of mean 1; `0 < gamma < 1`.

    Climbs a grid of quarter octaves from the value that matches the second moment,
    `2 gamma / (m2 - 1 - gamma)`, and ends with a parabola in log kappa.
    """
    known: dict[int, float] = {}

    def at(place: int) -> float:
        if place not in known:
            known[place] = float(_law(place, gamma).log_density(eigenvalues).sum())
        return known[place]

    excess = float(np.mean(eigenvalues**2)) - 1.0 - gamma
    matched = np.log2(2 * gamma / excess) / STEP if excess > 0 else LAST
    best = int(np.clip(np.round(matched), FIRST, LAST))
    while neighbours := [
        side for side in (best - 1, best + 1) if FIRST <= side <= LAST and at(side) > at(best)
    ]:
        best = max(neighbours, key=at)
    if best in (FIRST, LAST):
        law, error, peak = _law(best, gamma), None, at(best)
    else:
        below, here, above = at(best - 1), at(best), at(best + 1)
        curvature = 2 * here - below - above
        shift = 0.5 * (above - below) / curvature
        kappa = 2.0 ** ((best + shift) * STEP)
        law = HighTemperatureMP(kappa, gamma)
        error = kappa * STEP * float(np.log(2.0) / np.sqrt(curvature))
        peak = float(law.log_density(eigenvalues).sum())
    low, high = (_crossing(at, best, side, max(peak, at(best)) - DROP) for side in (-1, 1))
    return HeavyTail(law, error, low, high, peak / eigenvalues.size)


def _crossing(at: Callable[[int], float], best: int, side: int, level: float) -> float | None:
    """Where the log-likelihood falls to `level` on one side of its peak; None where the grid ends before."""
    place = best
    while at(place) > level:
        place += side
        if not FIRST <= place <= LAST:
            return None
    if place == best:
        return None
    inner, outer = at(place - side), at(place)
    return float(2.0 ** ((place - side * (level - outer) / (inner - outer)) * STEP))


@lru_cache(maxsize=2048)
def _law(place: int, gamma: float) -> HighTemperatureMP:
    return HighTemperatureMP(2.0 ** (place * STEP), gamma)
