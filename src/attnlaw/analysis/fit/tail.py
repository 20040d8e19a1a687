"""Fit power-law tails to eigenvalues, and test how far they can be trusted.

The density is `p(x) = (alpha - 1) / x_min (x / x_min)^(-alpha)` for `x >= x_min` (Clauset, Shalizi and Newman
2009). The exponent has the maximum likelihood, and the cut-off x_min has the least Kolmogorov-Smirnov
distance. A bootstrap tests the goodness of fit, and a lognormal on the same tail is compared.

| letter | meaning |
|---|---|
| x | eigenvalues of W^T W (squared singular values), ascending, without zeros |
| y | logarithms of x |
| a | `alpha - 1`: the rate at which y - ln x_min decays, an exponential law |
| i, k | candidate cut-off `x_min = x_i`, and the number of values from it on |
| D | Kolmogorov-Smirnov distance |
| t | `mu/s`: mean of the logarithms above ln x_min over their standard deviation s, before truncation |

D is `max_j |1 - (x_j/x_min)^(1-alpha) - (share of the tail below x_j)|`. The package `powerlaw` and
WeightWatcher use the same convention, so all three choose the same x_min.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Indices, Reals, require_spectral_values

# Number of places that bound the distance of a candidate from below, and number of candidates that are
# computed
# in full at a time.
COARSE, AT_ONCE = 12, 8
LEAST_VALUES = 4
# Largest number of entries in a temporary array, so that it stays in the processor's cache.
BLOCK = 100_000


@dataclass(frozen=True)
class PowerLawTail:
    """A power law fitted to the `size` largest eigenvalues, which start at `x_min`."""

    alpha: float
    error: float  # standard error `(alpha - 1)/sqrt(size)`, which ignores that x_min was chosen
    x_min: float
    size: int
    ks: float  # Kolmogorov-Smirnov distance over the tail


def ks_distance(cdf: Reals) -> float:
    """Return the Kolmogorov-Smirnov distance, given the law's distribution function at ascending data."""
    steps = np.arange(cdf.size + 1) / cdf.size
    return float(max(np.abs(cdf - steps[:-1]).max(), np.abs(cdf - steps[1:]).max()))


def positive_sorted(eigenvalues: ArrayLike) -> Reals:
    x = np.sort(
        require_spectral_values("eigenvalues", eigenvalues, "pass the squared singular values", empty=True)
    )
    return x[x > 0]


def power_law_tail(eigenvalues: ArrayLike) -> PowerLawTail | None:
    """Fit a power law to the tail above x_min, where x_min has the least Kolmogorov-Smirnov distance.

    `alpha = 1 + k / sum ln(x_i / x_min)` over the k values from x_min on (Clauset et al. 2009, eq. 3.1).
    Every value is a candidate for x_min except the two largest.

    Returns None if there are fewer than 4 distinct values.

    >>> tail = power_law_tail((1 - np.arange(200) / 200) ** -2.0)  # quantiles of alpha = 1.5, x_min = 1
    >>> tail.size, tail.x_min, round(tail.alpha, 2)
    (200, 1.0, 1.51)
    """
    return power_law_tails([eigenvalues])[0]


def power_law_tails(spectra: Iterable[ArrayLike]) -> list[PowerLawTail | None]:
    """Fit as `power_law_tail` does, but fit spectra of equal size together, which is faster."""
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
    """Return Hill's exponent of the upper half: `1 + k / sum_{i<=k} ln(x_i / x_{k+1})`, k = floor(n/2).

    Here x_1 >= x_2 >= ... are the n positive eigenvalues. Heavy-tailed regularisation penalises this
    estimator (arXiv 2304.02911).

    Returns None for fewer than two values, or if the upper half is constant.

    >>> round(hill([4.0, 2.0, 1.0, 1.0]), 9)  # 1 + 2 / (ln 4 + ln 2)
    1.961796694
    """
    x = positive_sorted(eigenvalues)[::-1]
    k = x.size // 2
    total = float(np.log(x[:k] / x[k]).sum()) if k else 0.0
    return 1.0 + k / total if total > 0 else None


def least_distance(y: Reals, enough: float = 0.0) -> tuple[Indices, Reals, Reals]:
    """Find the candidate cut-off of least distance D in each row of log eigenvalues.

    The result is exact, although most candidates are never computed in full. The maximum over some places is
    a lower bound of D, and a candidate whose bound exceeds the least D cannot win.

    Args:
        y: logarithms, ascending in each row, of shape (rows, n).
        enough: stop the search of a row once it is known whether its D is above or below this value. The
            returned distance is only a bound if the search stops early.

    Returns:
        For each row, the index of the best candidate, its rate a and its distance D.
    """
    rows, n = y.shape
    start = np.arange(n)
    new = np.concatenate([np.ones((rows, 1), dtype=bool), np.diff(y, axis=1) > 0], axis=1)
    rank = np.maximum.accumulate(np.where(new, start, 0), axis=1)  # how many values are below each one
    count = n - start
    excess = y[:, ::-1].cumsum(axis=1)[:, ::-1] - count * y
    # The two largest distinct values are not candidates, because too little is left above them.
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
    """Return a lower bound of D for every candidate, from at most `COARSE` places spread over its tail."""
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
    """Return the exact D of the chosen candidates of each row."""
    starts = np.take_along_axis(y, chosen, axis=1)
    fitted = 1.0 - np.exp(-rate[:, :, None] * np.maximum(y[:, None, :] - starts[:, :, None], 0.0))
    below = np.maximum(rank[:, None, :] - chosen[:, :, None], 0) / (y.shape[1] - chosen)[:, :, None]
    return np.asarray(np.abs(fitted - below).max(axis=2))


DRAWS = 100
# Below LEAST_T the truncated normal agrees with an exponential law to four digits, so no lognormal is fitted.
LEAST_T, LARGEST_T = -100.0, 1e6
MOST_STEPS = 100
SIGNIFICANT = 0.1


def goodness_of_fit(
    eigenvalues: ArrayLike, tail: PowerLawTail, seed: int | np.random.SeedSequence = 0, draws: int = DRAWS
) -> float:
    """Return the p-value of the hypothesis that the tail is a power law.

    A small p-value means that the tail is not a power law.

    This test is the semi-parametric bootstrap of Clauset et al. (2009, 4.1). Each draw takes every value from
    the fitted power law with probability k/n, and otherwise from the values below x_min. The function then
    fits a power law to the draw, with a new x_min. The p-value is the share of draws, the data among them,
    whose distance is at least that of the data. Its standard error is at most `1/(2 sqrt(draws))`.
    """
    rng = np.random.default_rng(seed)
    x = positive_sorted(eigenvalues)
    y, k = np.log(x), tail.size
    from_tail = rng.random((draws, x.size)) < k / x.size
    synthetic = np.log(tail.x_min) + rng.exponential(1.0 / (tail.alpha - 1.0), (draws, x.size))
    if k < x.size:
        synthetic = np.where(from_tail, synthetic, y[rng.integers(0, x.size - k, (draws, x.size))])
    distances = least_distance(np.sort(synthetic, axis=1), enough=tail.ks)[2]
    return float((1 + np.count_nonzero(distances >= tail.ks)) / (1 + draws))


@dataclass(frozen=True)
class LognormalTail:
    """`ln x` is normal(mu, sigma) above ln x_min. All is None if mu -> -infinity, the power law itself."""

    mu: float | None = None
    mu_error: float | None = None
    sigma: float | None = None
    sigma_error: float | None = None
    ks: float | None = None
    log_likelihood: float | None = None
    ratio: float = 0.0  # log-likelihood of the power law minus that of the lognormal
    p_value: float | None = None  # two-sided significance of the ratio (Vuong 1989)

    @property
    def better(self) -> bool:
        """Whether the lognormal is significantly better than the power law, at level 0.1."""
        return self.p_value is not None and self.ratio < 0 and self.p_value < SIGNIFICANT


def lognormal_tail(eigenvalues: ArrayLike, tail: PowerLawTail) -> LognormalTail:
    """Fit a lognormal above the power law's x_min by maximum likelihood, and compare the two.

    With `v = ln(x/x_min)`, the truncated normal is an exponential family in v and v^2. Therefore maximum
    likelihood matches the means of v and v^2, and the ratio `E v^2 / (E v)^2` determines t alone. Standard
    errors come from the inverse of the covariance of (v, v^2), converted to mu and sigma.
    """
    x = positive_sorted(eigenvalues)
    v = np.log(x[-tail.size :] / tail.x_min)
    mean, wanted = float(v.mean()), float((v * v).mean() / v.mean() ** 2)
    if not _moment_ratio(LARGEST_T) < wanted < _moment_ratio(LEAST_T):
        return LognormalTail()
    t = _match_moment_ratio(wanted)
    sigma = mean / (t + _mills(t))
    normal = -0.5 * (v / sigma - t) ** 2 - np.log(sigma * np.sqrt(2 * np.pi)) - log_normal_cdf(t)
    rate = tail.alpha - 1.0
    difference = (np.log(rate) - rate * v) - normal
    ratio, spread = float(difference.sum()), float(difference.std())
    errors = sigma * _errors(t) / np.sqrt(v.size)
    above = np.exp([log_normal_cdf(place) - log_normal_cdf(t) for place in (t - v / sigma).tolist()])
    return LognormalTail(
        mu=float(np.log(tail.x_min)) + t * sigma,
        mu_error=float(errors[0]),
        sigma=sigma,
        sigma_error=float(errors[1]),
        ks=ks_distance(1 - above),
        log_likelihood=float(normal.mean() - np.log(x[-tail.size :]).mean()),
        ratio=ratio,
        p_value=math.erfc(abs(ratio) / math.sqrt(2 * v.size) / spread) if spread > 0 else 1.0,
    )


def _errors(t: float) -> Reals:
    """Return the standard errors of (mu, sigma), in units of sigma, for one observation."""
    m = [1.0, t + _mills(t)]
    for order in range(2, 5):  # m_n = t m_(n-1) + (n-1) m_(n-2), by parts; the boundary adds to m_1 only
        m.append(t * m[-1] + (order - 1) * m[-2])
    covariance = np.array([[m[2] - m[1] ** 2, m[3] - m[1] * m[2]], [m[3] - m[1] * m[2], m[4] - m[2] ** 2]])
    jacobian = np.array([[1.0, -2 * t], [0.0, 1.0]])
    information = jacobian.T @ covariance @ jacobian
    return np.asarray(np.sqrt(np.diag(np.linalg.inv(information))))


def _mills(t: float) -> float:
    """Return `phi(t)/Phi(t)`, by which truncation to positive values raises the mean of a normal(t, 1)."""
    return math.exp(-0.5 * t * t - 0.5 * math.log(2 * math.pi) - log_normal_cdf(t))


FAR = -20.0  # below it, ten terms of the asymptotic series are accurate up to rounding


def log_normal_cdf(z: float) -> float:
    """Return the logarithm of the normal distribution function, without importing scipy.special (0.17 s)."""
    if z > -1.0:
        return math.log1p(-0.5 * math.erfc(z / math.sqrt(2.0)))
    if z > FAR:
        return math.log(0.5 * math.erfc(-z / math.sqrt(2.0)))
    term = series = 1.0
    for order in range(1, 20, 2):
        term *= -order / (z * z)
        series += term
    return -0.5 * z * z - math.log(-z) - 0.5 * math.log(2 * math.pi) + math.log(series)


def _moment_ratio(t: float) -> float:
    """Return `E v^2 / (E v)^2` of the truncated normal, which falls from 2 to 1 as t grows."""
    mean = t + _mills(t)
    return (1.0 + t * mean) / mean**2


def _match_moment_ratio(wanted: float) -> float:
    """Return the t with this `_moment_ratio`, by Newton's method: scipy.optimize takes 0.1 s to import."""
    low, high, t = LEAST_T, LARGEST_T, 0.0
    for _ in range(MOST_STEPS):
        hazard = _mills(t)
        mean = t + hazard
        rise = 1.0 - hazard * mean  # derivative of the mean
        value = (1.0 + t * mean) / mean**2
        slope = (mean + t * rise) / mean**2 - 2 * value * rise / mean
        low, high = (t, high) if value > wanted else (low, t)
        newton = t - (value - wanted) / slope if slope < 0 else high
        following = newton if low < newton < high else (low + high) / 2
        step, t = abs(following - t), following
        if step <= 1e-12 * max(1.0, abs(t)):
            break
    return t
