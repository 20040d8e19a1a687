"""Drawn spectra of random matrices: all values of small ones, and counts of values of large ones.

A Gaussian matrix is drawn as a tridiagonal T whose eigenvalues are its squared singular values. All of them
take 28 s of a core for 100 draws of 4096 x 11008. To compare spectra, it is enough to know how many values of
each draw are below each point x of a grid. That is the number of negative pivots of T - x^2 (Sturm), and
takes a fiftieth of the time.

| word | formula, N(x) the number of values below x |
|---|---|
| distance of a spectrum | integral of the gap between N(x) and its mean over all draws and this spectrum |
| middle sum | sum of the middle half of the values: integral of b - clip(N(x), a, b) for the ranks a to b |
| relative top | largest value of a draw over its middle sum |

Integrals are trapezoidal sums over the grid. The grid depends on the shape alone, so the distances of the
draws and of a spectrum that follows the null are exchangeable, and p-values are exact ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.numerics.symmetric import count_eigenvalues_below, tridiagonal_eigenvalues

# Matrices with more values than this are counted. Below it, all values cost less than the counts.
SMALL = 128
# Points of the grid where the values of random matrices are, below them and above them.
POINTS, POINTS_BELOW, POINTS_ABOVE = 256, 16, 32
# The even part of the grid exceeds the limit law by this many n^(-2/3), which is how far its ends fluctuate.
MARGIN = 3.0


def middle_half(size: int) -> slice:
    """Return the middle half of the ranks of `size` values."""
    low = size // 4
    return slice(low, max(size - low, low + 1))


def upper_quantile(values: Reals, level: float) -> float:
    """Return the value that one more draw exceeds with probability 1 - level."""
    place = min(int(np.ceil(level * (values.size + 1))), values.size)
    return float(np.sort(values)[place - 1])


@dataclass(frozen=True, eq=False)
class DrawnSpectra:
    """Draws with all their normalised singular values in descending order, of shape (draws, values)."""

    values: Reals

    @property
    def count(self) -> int:
        return int(self.values.shape[0])

    @property
    def size(self) -> int:
        return int(self.values.shape[1])

    @cached_property
    def middle_sums(self) -> Reals:
        return np.asarray(self.values[:, middle_half(self.size)].sum(axis=1))

    def relative_edge(self, level: float) -> float:
        """Return the relative top that a draw exceeds with probability 1 - level."""
        return upper_quantile(self.values[:, 0] / self.middle_sums, level)

    def distances(self, normalised: Reals) -> tuple[Reals, float]:
        """Return the mean |s_(i) - m_(i)| of each draw, and of descending values; m is the mean of all."""
        mean = (self.values.sum(axis=0) + normalised) / (self.count + 1)
        return np.abs(self.values - mean).mean(axis=1), float(np.abs(normalised - mean).mean())


@dataclass(frozen=True, eq=False)
class CountedSpectra:
    """Draws as tridiagonals, whose eigenvalues are the squared normalised singular values."""

    diagonal: Reals  # of shape (draws, n)
    off_diagonal: Reals  # of shape (draws, n - 1)
    grid: Reals  # ascending points from 0 to the largest possible value

    @property
    def count(self) -> int:
        return int(self.diagonal.shape[0])

    @property
    def size(self) -> int:
        return int(self.diagonal.shape[1])

    @cached_property
    def counts(self) -> Reals:
        """The number of values below each point of the grid, of shape (draws, points)."""
        return count_eigenvalues_below(self.diagonal, self.off_diagonal, self.grid**2).astype(np.float64)

    @cached_property
    def middle_sums(self) -> Reals:
        middle = middle_half(self.size)
        low, high = self.size - middle.stop, self.size - middle.start
        return np.asarray(np.trapezoid(high - np.clip(self.counts, low, high), self.grid, axis=1))

    def relative_edge(self, level: float) -> float:
        """Return the relative top that a draw exceeds with probability 1 - level; exact where it matters."""
        cells, sums = np.argmax(self.counts == self.size, axis=1), self.middle_sums
        low, tops = self.grid[cells - 1] / sums, self.grid[cells] / sums
        # A count is off by 12^(-1/2) on average in each cell of the even part of the grid.
        near = 4 * float(np.diff(self.grid).min()) * np.sqrt(POINTS / 12) / sums.min()
        least, most = (upper_quantile(ends, level) for ends in (low, tops))
        for draw in np.flatnonzero((tops >= least * (1 - near)) & (low <= most * (1 + near))).tolist():
            tops[draw] = self._top(draw) / sums[draw]
        edge = upper_quantile(tops, level)
        for draw in np.flatnonzero(np.abs(tops / edge - 1) < near).tolist():
            values = self._exact_values(draw)
            tops[draw] = values[0] / values[middle_half(self.size)].sum()
        return upper_quantile(tops, level)

    @cached_property
    def values(self) -> Reals:
        """The normalised singular values of each draw in descending order. An audit does not need them."""
        return np.array([self._exact_values(draw) for draw in range(self.count)])

    def distances(self, normalised: Reals) -> tuple[Reals, float]:
        """Return the distances of each draw, and of descending values, to the mean of all of them."""
        counts = np.searchsorted(normalised[::-1], self.grid)
        mean = (self._total + counts) / (self.count + 1)
        gaps = np.diff(self.grid, prepend=self.grid[0], append=self.grid[-1])
        weights = (gaps[1:] + gaps[:-1]) / 2
        return np.abs(self.counts - mean) @ weights, float(np.abs(counts - mean) @ weights)

    @cached_property
    def _total(self) -> Reals:
        return np.asarray(self.counts.sum(axis=0))

    def _top(self, draw: int) -> float:
        last = (self.size - 1, self.size - 1)
        tridiagonal = self.diagonal[draw], self.off_diagonal[draw]
        top = scipy.linalg.eigvalsh_tridiagonal(
            *tridiagonal, select="i", select_range=last, check_finite=False
        )
        return float(np.sqrt(top[0]))

    def _exact_values(self, draw: int) -> Reals:
        squares = tridiagonal_eigenvalues(self.diagonal[draw], self.off_diagonal[draw])
        return np.sqrt(np.maximum(squares[::-1], 0.0))


def draw_matrices(low: int, high: int, draws: int, rng: np.random.Generator) -> DrawnSpectra | CountedSpectra:
    """Draw Gaussian low x high matrices by the tridiagonal Gram matrices of their bidiagonal forms."""
    steps = np.arange(low)
    diagonals, off_diagonals = np.empty((draws, low)), np.empty((draws, low - 1))
    for draw in range(draws):
        diagonal = rng.chisquare(high - steps)
        below = rng.chisquare(low - 1 - steps[:-1])
        diagonals[draw] = diagonal + np.concatenate([[0.0], below])
        off_diagonals[draw] = np.sqrt(diagonal[:-1] * below)
    squares = diagonals.mean(axis=1, keepdims=True)
    sample = CountedSpectra(diagonals / squares, off_diagonals / squares, _grid(low, high))
    return sample if low > SMALL else DrawnSpectra(sample.values)


def _grid(low: int, high: int) -> Reals:
    """Return points that are even where a Gaussian low x high matrix has its values, and fewer elsewhere."""
    spread, margin = np.sqrt(low / high), MARGIN * low ** (-2 / 3)
    inside = np.linspace(max(1 - spread - margin, 0.0), 1 + spread + margin, POINTS)
    below = np.linspace(0.0, inside[0], POINTS_BELOW)
    above = np.geomspace(inside[-1], max(np.sqrt(low), 2 * inside[-1]), POINTS_ABOVE + 1)[1:]
    return np.unique(np.concatenate([below, inside, above]))


def draw_products(rows: int, cols: int, inner: int, draws: int, rng: np.random.Generator) -> DrawnSpectra:
    """Draw products of Gaussian rows x inner and inner x cols matrices."""
    smallest, *others = sorted((rows, cols, inner))
    left, right = (_bartlett(size, smallest, draws, rng) for size in others)
    values = np.linalg.svd(left @ right.transpose(0, 2, 1), compute_uv=False)
    return DrawnSpectra(values / np.sqrt(np.mean(values**2, axis=1, keepdims=True)))


def _bartlett(rows: int, cols: int, draws: int, rng: np.random.Generator) -> Reals:
    """Draw triangular factors of Gaussian rows x cols matrices, for rows >= cols."""
    factor = np.triu(rng.standard_normal((draws, cols, cols)), 1)
    diagonal = np.arange(cols)
    factor[:, diagonal, diagonal] = np.sqrt(rng.chisquare(rows - diagonal, (draws, cols)))
    return factor
