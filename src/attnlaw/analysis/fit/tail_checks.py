"""How far a power-law tail can be trusted: goodness of fit by bootstrap, and a lognormal beside it.

Letters as in `attnlaw.analysis.fit.tail`; `t = mu/s` is the mean of the logarithms above ln x_min in units
of their standard deviation s, before truncation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc, log_ndtr

from attnlaw.analysis.fit.tail import PowerLawTail, Reals, least_distance, positive_sorted

DRAWS = 100
# Below this t the truncated normal is an exponential law to four digits: no lognormal of its own.
LEAST_T, LARGEST_T = -100.0, 1e6
SIGNIFICANT = 0.1


def goodness_of_fit(
    eigenvalues: ArrayLike, tail: PowerLawTail, seed: int | np.random.SeedSequence = 0, draws: int = DRAWS
) -> float:
    """p-value of "the tail is a power law", by the semi-parametric bootstrap of Clauset et al. (2009, 4.1).

    Each draw takes every value from the fitted power law with probability k/n, and else from the values below
    x_min; it is fitted anew, x_min included. The p-value is the share of draws, the data among them, whose
    distance is at least that of the data; its standard error is at most `1/(2 sqrt(draws))`. Small means:
    not a power law.
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
    """A lognormal fitted to the same tail, `ln x` normal(mu, sigma) above ln x_min, against the power law.

    `ratio` is the log-likelihood of the power law minus that of the lognormal, `p_value` its two-sided
    significance (Vuong 1989); `better` says that the lognormal wins at level 0.1. The others are None where
    the best lognormal is the power law itself, its limit of large negative mu.
    """

    mu: float | None = None
    mu_error: float | None = None
    sigma: float | None = None
    sigma_error: float | None = None
    ks: float | None = None
    log_likelihood: float | None = None
    ratio: float = 0.0
    p_value: float | None = None

    @property
    def better(self) -> bool:
        return self.p_value is not None and self.ratio < 0 and self.p_value < SIGNIFICANT


def lognormal_tail(eigenvalues: ArrayLike, tail: PowerLawTail) -> LognormalTail:
    """Fit a lognormal above the power law's x_min by maximum likelihood and compare the two.

    With `v = ln(x/x_min)` the truncated normal is an exponential family in v and v^2: its maximum likelihood
    matches the two means, and their ratio `E v^2 / (E v)^2` fixes t alone. Standard errors are those of the
    family: the inverse of the covariance of (v, v^2), carried over to mu and sigma.
    """
    x = positive_sorted(eigenvalues)
    v = np.log(x[-tail.size :] / tail.x_min)
    mean, wanted = float(v.mean()), float((v * v).mean() / v.mean() ** 2)
    if not _moment_ratio(LARGEST_T) < wanted < _moment_ratio(LEAST_T):
        return LognormalTail()
    from scipy.optimize import brentq  # here: an audit without fits imports this module

    t = float(brentq(lambda t: _moment_ratio(t) - wanted, LEAST_T, LARGEST_T, xtol=1e-12, rtol=1e-12))
    sigma = mean / (t + _mills(t))
    normal = -0.5 * (v / sigma - t) ** 2 - np.log(sigma * np.sqrt(2 * np.pi)) - log_ndtr(t)
    rate = tail.alpha - 1.0
    difference = (np.log(rate) - rate * v) - normal
    ratio, spread = float(difference.sum()), float(difference.std())
    errors = sigma * _errors(t) / np.sqrt(v.size)
    above = np.exp(log_ndtr(t - v / sigma) - log_ndtr(t))
    steps = np.arange(v.size + 1) / v.size
    return LognormalTail(
        mu=float(np.log(tail.x_min)) + t * sigma,
        mu_error=float(errors[0]),
        sigma=sigma,
        sigma_error=float(errors[1]),
        ks=float(max(np.abs(1 - above - steps[:-1]).max(), np.abs(1 - above - steps[1:]).max())),
        log_likelihood=float(normal.mean() - np.log(x[-tail.size :]).mean()),
        ratio=ratio,
        p_value=float(erfc(abs(ratio) / np.sqrt(2 * v.size) / spread)) if spread > 0 else 1.0,
    )


def _errors(t: float) -> Reals:
    """Standard errors of (mu, sigma) in units of sigma for one value of a unit normal(t) above zero.

    In the natural parameters `(mu/sigma^2, -1/(2 sigma^2))` the information is the covariance of (v, v^2);
    their derivatives by (mu, sigma) at sigma = 1 are `(1, 0)` and `(-2t, 1)`.
    """
    m = [1.0, t + _mills(t)]
    for order in range(2, 5):  # m_n = t m_(n-1) + (n-1) m_(n-2), by parts; the boundary adds to m_1 only
        m.append(t * m[-1] + (order - 1) * m[-2])
    covariance = np.array([[m[2] - m[1] ** 2, m[3] - m[1] * m[2]], [m[3] - m[1] * m[2], m[4] - m[2] ** 2]])
    jacobian = np.array([[1.0, -2 * t], [0.0, 1.0]])
    information = jacobian.T @ covariance @ jacobian
    return np.asarray(np.sqrt(np.diag(np.linalg.inv(information))))


def _mills(t: float) -> float:
    """`phi(t)/Phi(t)`: how far truncation at zero lifts the mean of a unit normal of mean t."""
    return float(np.exp(-0.5 * t * t - 0.5 * np.log(2 * np.pi) - log_ndtr(t)))


def _moment_ratio(t: float) -> float:
    """`E v^2 / (E v)^2` of the truncated normal: falls from 2 (exponential) to 1 (a point) as t grows."""
    mean = t + _mills(t)
    return (1.0 + t * mean) / mean**2
