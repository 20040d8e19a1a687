"""The law of one output coordinate as a mixture of normals, with estimates and their standard errors.

| here  | means                                                                                 |
|-------|---------------------------------------------------------------------------------------|
| v, mu | variance and mean of the coordinate given all but the last normals; mu = 0 without a residual |
| K     | batches of the jackknife                                                              |
| h     | width of a cell of `log v`                                                             |
| s     | `log v` of a draw, measured from the centre of its cell                                |
| m, w  | mean and variance of s within a cell; k is its third central moment                    |
| a     | y^2 / (2 v), the distance of a point from the mean in units of the draw                |

`p(y) = E N(y; mu, v)`: the density needs no kernel estimate, only an average over draws of (mu, v)
(Rao-Blackwell). Moments follow in closed form: `E y^3 = E[mu^3 + 3 mu v]`,
`E y^4 = E[mu^4 + 6 mu^2 v + 3 v^2]`.

If mu = 0, draws of nearly equal v are merged first: the draws in a cell of `log v` of width h become the two
points of its Gauss quadrature, `m + t -+ sqrt(t^2 + w)` with `t = k / (2 w)`, which keep the moments of s up
to the third. An average of f(log v) has an error of at most `h^4 / 1536` times the largest fourth derivative.
At h = 0.05 this is about 1e-8 of a normal's density at a = 1, and 1e-5 at a = 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.core.settings import check_value
from attnlaw.theory.limit.wishart import Array, streams

BATCHES = 40  # in the jackknife, so also the fewest draws
CELL = 0.05


def merge_variances(variances: Array) -> tuple[Array, Array]:
    """Replace many variances of equal weight by a few variances that have weights."""
    positive = variances[variances > 0]
    log_v = np.log(positive)
    numbers, place, counts = np.unique(np.floor(log_v / CELL), return_inverse=True, return_counts=True)
    centres = (numbers + 0.5) * CELL
    s = log_v - centres[place]
    m, second, third = (np.bincount(place, s**order, len(counts)) / counts for order in (1, 2, 3))
    w = second - m**2
    # One draw, or equal ones: a single point, at the mean.
    spread = w > 1e-12 * CELL**2
    t = np.where(spread, third - m * (3 * second - 2 * m**2), 0.0) / np.where(spread, 2 * w, 1.0)
    root = np.where(spread, np.sqrt(t**2 + np.maximum(w, 0.0)), 1.0)
    upper = np.where(spread, (root - t) / (2 * root), 0.0)
    low = centres + np.where(spread, m + t - root, m)
    high = (centres + m + t + root)[spread]
    zeros = len(variances) - len(positive)
    nodes = np.concatenate([np.zeros(min(zeros, 1)), np.exp(low), np.exp(high)])
    shares = np.concatenate([np.full(min(zeros, 1), zeros), counts * (1 - upper), (counts * upper)[spread]])
    return nodes, shares / len(variances)


# No sampler uses this chunk, so the normals of `draw` are independent of (mu, v) at equal seeds.
_LAST_CHUNK = 2**32 - 1
# Numbers in one slab of the (draws x points) tables below.
_SLAB = 2**17


@dataclass(frozen=True, eq=False)
class OutputLaw:
    """The distribution of an output coordinate: an average of normals N(mu, v) over draws of (mu, v)."""

    variances: Array  # the variances v, (draws,). An `InputError` is raised if all are zero.
    means: Array | None  # the means mu, (draws,), or None if all are zero
    score_variances: Array  # the variance of the score p_ii given the tokens, for the same draws

    def __post_init__(self) -> None:
        if not (self.variances > 0).any():
            raise InputError(
                "the output is zero in every draw; choose a token that sees at least one token that is "
                "not zero"
            )

    @property
    def has_density(self) -> bool:
        """Whether the variance is positive in every draw. It is zero if ReLU makes all tokens zero."""
        return bool((self.variances > 0).all())

    def score_variance(self) -> Estimate:
        """Return the variance of the score p_ii of a token with itself, also over random inputs."""
        return mean_of(self.score_variances)

    def mean(self) -> Estimate:
        """Return the mean E y."""
        return Estimate(0.0, 0.0) if self.means is None else mean_of(self.means)

    def variance(self) -> Estimate:
        return jackknife(lambda mean: float(mean[1] - mean[0] ** 2), self._moments())

    def kurtosis(self) -> Estimate:
        """Return the kurtosis E (y - E y)^4 / (Var y)^2, which is 3 for a Gaussian."""
        return jackknife(_kurtosis, self._moments())

    def _moments(self) -> Array:
        """Return E y, E y^2, E y^3 and E y^4 given (mu, v), from the mean of all draws, (draws, 4)."""
        v = self.variances
        mu = np.zeros_like(v) if self.means is None else self.means - self.means.mean()
        return np.stack([mu, mu**2 + v, mu**3 + 3 * mu * v, mu**4 + 6 * mu**2 * v + 3 * v**2], axis=-1)

    def draw(self, seed: int) -> Array:
        """Draw one value of the coordinate for each draw of (mu, v)."""
        normals = streams(seed, _LAST_CHUNK).normals.standard_normal(len(self.variances))
        y: Array = np.sqrt(self.variances) * normals
        return y if self.means is None else y + self.means

    def log_density(self, y: Array) -> Array:
        """Return the logarithm of the density for each of K batches of draws, of shape (K, points)."""
        return _by_batch(self, y, _log_normals, log_mean)

    def distribution(self, y: Array) -> Array:
        """Return P(Y <= y) for each of K batches of draws, of shape (K, points)."""
        return _by_batch(self, y, _normal_distribution, lambda table, weights: weights @ table)

    def density(self, y: Array) -> Array:
        """Return the density p(y). It does not include draws of zero variance."""
        return np.asarray(np.exp(self.log_density(np.asarray(y, dtype=np.float64))).mean(axis=0))


def jackknife(statistic: Callable[[Array], float], values: Array) -> Estimate:
    """Estimate a smooth function of means, and its standard error by the jackknife.

    The standard error is `sqrt((K-1)/K sum_k (theta_(k) - mean)^2)`, theta_(k) the result without batch k.
    """
    check_value("draws", len(values), int, minimum=BATCHES)
    parts = np.array_split(values, BATCHES)
    sums = np.stack([part.sum(axis=0) for part in parts])
    counts = np.array([len(part) for part in parts], dtype=np.float64)[:, None]
    total = sums.sum(axis=0)
    if bool((values == values[:1]).all()):
        return Estimate(statistic(values[0]), 0.0)
    left_out = [statistic(mean) for mean in (total - sums) / (len(values) - counts)]
    return combine(statistic(total / len(values)), left_out)


def mean_of(values: Array) -> Estimate:
    """Return the mean of `values` (draws,) with its standard error from the jackknife."""
    return jackknife(lambda mean: float(mean[0]), values[:, None])


def combine(whole: float, left_out: list[float], corrected: bool = True) -> Estimate:
    """Return the jackknife's estimate, without its bias if the statistic is smooth (`corrected`)."""
    k = len(left_out)
    centre = sum(left_out) / k
    spread = math.fsum((value - centre) ** 2 for value in left_out)
    value = k * whole - (k - 1) * centre if corrected else whole
    return Estimate(value, math.sqrt((k - 1) / k * spread))


def gaussian_law(variance: float, mean: float = 0.0) -> OutputLaw:
    """Return the normal distribution N(mean, variance) as an `OutputLaw`."""
    constant = np.full(BATCHES, variance)
    return OutputLaw(constant, np.full(BATCHES, mean) if mean else None, constant)


def _kurtosis(mean: Array) -> float:
    """Return the kurtosis, computed from the first four moments about any point."""
    first, two, three, four = (float(moment) for moment in mean)
    return (four - 4 * first * three + 6 * first**2 * two - 3 * first**4) / (two - first**2) ** 2


def _by_batch(
    law: OutputLaw,
    y: Array,
    table: Callable[[Array, Array, Array], Array],
    reduce: Callable[[Array, Array], Array],
) -> Array:
    """Average `table(y, mu, v)` of the normals by `reduce(table, weights)` over batches, (K, points)."""
    check_value("draws", len(law.variances), int, minimum=BATCHES)
    none = [None] * BATCHES
    means: list[Array] | list[None] = none if law.means is None else np.array_split(law.means, BATCHES)
    rows = []
    for draws, centres in zip(np.array_split(law.variances, BATCHES), means, strict=True):
        if centres is None:
            v, weights = merge_variances(draws)
            mu = np.zeros_like(v)
        else:
            v, weights, mu = draws, np.full(len(draws), 1 / len(draws)), centres
        step = max(1, _SLAB // len(v))
        slabs = [reduce(table(y[i : i + step], mu, v), weights) for i in range(0, len(y), step)]
        rows.append(np.concatenate(slabs))
    return np.stack(rows)


def _log_normals(y: Array, mu: Array, v: Array) -> Array:
    """Return log N(y; mu, v), (draws, points). A row with v = 0 is minus infinity."""
    positive = np.where(v > 0, v, 1.0)
    table: Array = (y - mu[:, None]) ** 2
    table *= (-0.5 / positive)[:, None]
    table -= 0.5 * np.log(2 * math.pi * positive)[:, None]
    table[v == 0] = -np.inf
    return table


def log_mean(table: Array, weights: Array | None = None) -> Array:
    """Return the logarithm of the mean of exp(table) over its rows. It does not underflow."""
    top = np.maximum(table.max(axis=0), -1e300)
    with np.errstate(divide="ignore"):
        result: Array = top + np.log(np.average(np.exp(table - top), axis=0, weights=weights))
    return result


def _normal_distribution(y: Array, mu: Array, v: Array) -> Array:
    distance = y - mu[:, None]
    result: Array = scipy.special.ndtr(distance / np.sqrt(np.where(v > 0, v, 1.0))[:, None])
    result[v == 0] = distance[v == 0] >= 0
    return result
