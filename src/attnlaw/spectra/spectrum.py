"""The singular values of one matrix, and what follows from them.

| word | formula, with singular values s_1 >= s_2 >= ... |
|---|---|
| spectral, Frobenius, nuclear norm | s_1, (sum s_i^2)^(1/2), sum s_i |
| (2,1) norm | sum over columns of their Euclidean norms |
| (1,1) norm | sum of absolute entries |
| stable rank | sum s_i^2 / s_1^2 |
| effective rank | exp of the entropy of s_i / sum s_j (Roy and Vetterli 2007) |
| numerical rank | #{s_i > 1e-10 * min(rows, cols) * max(s_1, 1)} (arXiv 2605.07297) |
| condition | s_1 / s_k, k the number of values kept |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Spectrum:
    """All singular values that can differ from zero, in descending order, with two norms of the entries.

    A matrix keeps min(rows, cols) values; a product through d dimensions keeps min(rows, cols, d).
    `route` says how they were computed: "gram", "svd" or "qr" (of thin factors).

    >>> spectrum = Spectrum(np.array([2.0, 1.0]), (2, 2), norm_21=3.0, norm_11=3.0, route="svd")
    >>> spectrum.spectral, spectrum.nuclear, spectrum.stable_rank, spectrum.numerical_rank
    (2.0, 3.0, 1.25, 2)
    """

    values: NDArray[np.float64]
    shape: tuple[int, int]
    norm_21: float
    norm_11: float
    route: str

    @property
    def spectral(self) -> float:
        return float(self.values[0])

    @property
    def frobenius(self) -> float:
        return self.spectral * float(np.sqrt(np.sum(self._relative**2)))

    @property
    def nuclear(self) -> float:
        return float(self.values.sum())

    @property
    def stable_rank(self) -> float | None:
        """None for a zero matrix."""
        return float(np.sum(self._relative**2)) if self.spectral > 0 else None

    @property
    def effective_rank(self) -> float | None:
        """None for a zero matrix."""
        if self.spectral == 0:
            return None
        weights = self._relative / self._relative.sum()
        weights = weights[weights > 0]
        return float(np.exp(-np.sum(weights * np.log(weights))))

    @property
    def tolerance(self) -> float:
        """Values at or below it are round-off and count as zero in ranks and Schatten sums."""
        return RANK_TOLERANCE * min(self.shape) * max(self.spectral, 1.0)

    @property
    def above_tolerance(self) -> NDArray[np.float64]:
        """The values that count."""
        return self.values[self.values > self.tolerance]

    @property
    def numerical_rank(self) -> int:
        return int(np.count_nonzero(self.values > self.tolerance))

    @property
    def condition(self) -> float | None:
        """None where the smallest value is zero, or so small that the ratio leaves float64."""
        smallest = float(self.values[-1])
        ratio = self.spectral / smallest if smallest > 0 else np.inf
        return ratio if ratio < np.inf else None

    def schatten_sum(self, p: float) -> float:
        """sum s_i^p over the values above the tolerance; the numerical rank at p = 0."""
        return float(np.sum(self.above_tolerance**p))

    @property
    def _relative(self) -> NDArray[np.float64]:
        """Values over the largest: squares of them neither overflow nor vanish."""
        return self.values / self.spectral if self.spectral > 0 else self.values
