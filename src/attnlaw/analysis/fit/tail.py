"""Power-law tails of eigenvalues: exponent by maximum likelihood, cut-off by the least KS distance.

Density `p(x) = (alpha - 1) / x_min (x / x_min)^(-alpha)` for `x >= x_min` (Clauset, Shalizi and Newman 2009).

| letter | meaning |
|---|---|
| x | eigenvalues of W^T W (squared singular values), ascending, zeros left out |
| y | logarithms of x |
| a | `alpha - 1`: the rate at which y - ln x_min decays, an exponential law |
| i, k | candidate cut-off `x_min = x_i`, and the number of values from it on |
| D | Kolmogorov-Smirnov distance |

D is `max_j |1 - (x_j/x_min)^(1-alpha) - (share of the tail below x_j)|`, the convention of the package
`powerlaw` and of WeightWatcher, so that all three choose the same x_min.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlaw.core.arrays import require_spectral_values

Reals = NDArray[np.float64]
Indices = NDArray[np.intp]
# Places per candidate at which its distance is bounded from below, and candidates computed in full at a time.
COARSE, AT_ONCE = 12, 8
LEAST_VALUES = 4
# Numbers in one temporary array of a pass, so that it stays in the processor's cache.
BLOCK = 100_000


@dataclass(frozen=True)
class PowerLawTail:
    """A power law fitted to the largest `size` of the eigenvalues, those from `x_min` on.

    `error` is the standard error `(alpha - 1)/sqrt(size)` at the chosen x_min; `ks` the distance there.
    """

    alpha: float
    error: float
    x_min: float
    size: int
    ks: float


def positive_sorted(eigenvalues: ArrayLike) -> Reals:
    """The positive values in ascending order, one axis."""
    x = np.sort(
        require_spectral_values("eigenvalues", eigenvalues, "give squared singular values", empty=True)
    )
    return x[x > 0]


def power_law_tail(eigenvalues: ArrayLike) -> PowerLawTail | None:
    """Fit a continuous power law above the x_min of least KS distance; None below 4 distinct values.

    `alpha = 1 + k / sum ln(x_i / x_min)` over the k values from x_min on (Clauset et al. 2009, eq. 3.1).
    Every value is a candidate x_min but the two largest. `error` ignores that x_min was chosen.

    >>> tail = power_law_tail((1 - np.arange(200) / 200) ** -2.0)  # quantiles of alpha = 1.5, x_min = 1
    >>> tail.size, tail.x_min, round(tail.alpha, 2)
    (200, 1.0, 1.51)
    """
    return power_law_tails([eigenvalues])[0]


def power_law_tails(spectra: Iterable[ArrayLike]) -> list[PowerLawTail | None]:
    """`power_law_tail` of many spectra, those of equal size all at once."""
    sorted_spectra = [positive_sorted(eigenvalues) for eigenvalues in spectra]
    groups: dict[int, list[int]] = {}
    for place, x in enumerate(sorted_spectra):
        if np.unique(x).size >= LEAST_VALUES:
            groups.setdefault(x.size, []).append(place)
    tails: list[PowerLawTail | None] = [None] * len(sorted_spectra)
    for n, members in groups.items():
        starts, rates, distances = least_distance(np.log([sorted_spectra[place] for place in members]))
        for place, start, rate, distance in zip(members, starts, rates, distances, strict=True):
            tails[place] = PowerLawTail(
                alpha=1.0 + float(rate),
                error=float(rate / np.sqrt(n - start)),
                x_min=float(sorted_spectra[place][start]),
                size=n - int(start),
                ks=float(distance),
            )
    return tails


def hill(eigenvalues: ArrayLike) -> float | None:
    """Hill's exponent of the upper half: `1 + k / sum_{i<=k} ln(x_i / x_{k+1})`, k = floor(n/2).

    The estimator that heavy-tailed regularisation penalises (arXiv 2304.02911); None below two values.

    >>> round(hill([4.0, 2.0, 1.0, 1.0]), 9)  # 1 + 2 / (ln 4 + ln 2)
    1.961796694
    """
    x = positive_sorted(eigenvalues)[::-1]
    k = x.size // 2
    total = float(np.log(x[:k] / x[k]).sum()) if k else 0.0
    return 1.0 + k / total if total > 0 else None


def least_distance(y: Reals, enough: float = 0.0) -> tuple[Indices, Reals, Reals]:
    """The best candidate of each row of log eigenvalues: its index, its rate and its distance.

    `y` has shape (rows, n), ascending. Exact, yet most candidates are never computed in full: D over some
    places bounds D from below, and a candidate whose bound exceeds the least D cannot win. With `enough`
    the search ends as soon as it knows on which side of it D lies; D itself is then a bound only.
    """
    rows, n = y.shape
    start = np.arange(n)
    new = np.concatenate([np.ones((rows, 1), dtype=bool), np.diff(y, axis=1) > 0], axis=1)
    rank = np.maximum.accumulate(np.where(new, start, 0), axis=1)  # values below each one, ties as one
    count = n - start
    excess = y[:, ::-1].cumsum(axis=1)[:, ::-1] - count * y
    # The two largest distinct values are no candidates: too little is left above them.
    usable = new & (new[:, ::-1].cumsum(axis=1)[:, ::-1] >= 3) & (excess > 0)
    rate = count / np.where(usable, excess, np.inf)
    bound = np.where(usable, _coarse_distances(y, rank, rate), np.inf)
    exact = ~usable
    every = np.arange(rows)
    while True:
        best = bound.argmin(axis=1)
        least = bound[every, best]
        least_exact = np.where(exact, bound, np.inf).min(axis=1)
        pending = np.flatnonzero(
            (least < least_exact) & (least_exact >= enough) & ((enough == 0) | (least < enough))
        )
        if not pending.size:
            return best, rate[every, best], least
        for rows_now in np.array_split(pending, -(-pending.size * AT_ONCE * n // BLOCK)):
            at = rows_now[:, None]
            waiting = np.where(exact[rows_now], np.inf, bound[rows_now])
            chosen = np.argpartition(waiting, min(AT_ONCE, n - 1), axis=1)[:, :AT_ONCE]
            distance = _distances(y[rows_now], rank[rows_now], rate[at, chosen], chosen)
            bound[at, chosen] = np.where(usable[at, chosen], distance, np.inf)
            exact[at, chosen] = True


def _coarse_distances(y: Reals, rank: Indices, rate: Reals) -> Reals:
    """For every candidate, D over at most `COARSE` places spread over its tail."""
    rows, n = y.shape
    start = np.arange(n)
    places = start[:, None] + np.linspace(0, n - 1 - start, min(COARSE, n), axis=1).round().astype(np.intp)
    bound = np.empty((rows, n))
    step = max(1, BLOCK // places.size)
    for low in range(0, rows, step):
        part = slice(low, low + step)
        fitted = 1.0 - np.exp(-rate[part, :, None] * (y[part][:, places] - y[part, :, None]))
        below = (rank[part][:, places] - start[:, None]) / (n - start)[:, None]
        bound[part] = np.abs(fitted - below).max(axis=2)
    return bound


def _distances(y: Reals, rank: Indices, rate: Reals, chosen: Indices) -> Reals:
    """D of the chosen candidates of each row, over all places of their tails."""
    starts = np.take_along_axis(y, chosen, axis=1)
    fitted = 1.0 - np.exp(-rate[:, :, None] * np.maximum(y[:, None, :] - starts[:, :, None], 0.0))
    below = np.maximum(rank[:, None, :] - chosen[:, :, None], 0) / (y.shape[1] - chosen)[:, :, None]
    return np.asarray(np.abs(fitted - below).max(axis=2))
