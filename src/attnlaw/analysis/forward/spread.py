"""The spread of hidden states over inputs: the pooled standard deviation of a token at its position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.errors import InputError

MIN_RELATIVE_SPREAD = 1e-12  # of the size of a token: below it spread is rounding

Array = NDArray[np.float64]


@dataclass
class HiddenSpread:
    """s^2 = sum_t sum_{i: T_i > t} |h_it - mu_t|^2 / sum_t (c_t - 1)_+, batch after batch.

    c_t inputs reach position t, mu_t is their mean. Counts, means and sums of squares of two sets are merged
    exactly, so that no batch is kept: memory grows with the longest input and not with their number.

    >>> spread = HiddenSpread()
    >>> for one in ([[3.0, 1.0]], [[1.0, -1.0]], [[-1.0, 1.0]], [[-3.0, -1.0]]):
    ...     spread.add(np.array([one]), np.array([[True]]))
    >>> round(spread.value() ** 2, 12)
    8.0
    """

    counts: Array | None = None
    means: Array | None = None
    squares: float = 0.0
    size: float = 0.0

    def add(self, states: Any, mask: Any) -> None:
        """States (B x T x N) with the tokens that count (B x T)."""
        x, kept = np.asarray(states), np.asarray(mask)[..., None]
        counts = kept.sum(axis=0)[:, 0].astype(np.float64)
        means = np.where(kept, x, 0.0).sum(axis=0) / np.maximum(counts, 1)[:, None]
        self.squares += float((np.where(kept, x - means, 0.0) ** 2).sum())
        self.size += float((np.where(kept, x, 0.0) ** 2).sum())
        old_counts, old_means = self._pad_to(len(counts), x.shape[-1])
        here = slice(0, len(counts))
        total = np.maximum(old_counts[here] + counts, 1)
        shift = means - old_means[here]
        self.squares += float((old_counts[here] * counts / total * (shift**2).sum(axis=1)).sum())
        old_means[here] += shift * (counts / total)[:, None]
        old_counts[here] += counts
        self.counts, self.means = old_counts, old_means

    def value(self) -> float:
        """s; an `InputError` where the inputs do not determine it."""
        freedom = 0.0 if self.counts is None else float(np.maximum(self.counts - 1, 0).sum())
        if freedom == 0:
            raise InputError(
                "inputs: no position is reached by two of them, so they have no spread; give more"
            )
        if self.squares <= MIN_RELATIVE_SPREAD**2 * self.size:
            raise InputError("inputs: all are alike, so they have no spread; give inputs that differ")
        return float(np.sqrt(self.squares / freedom))

    def _pad_to(self, length: int, width: int) -> tuple[Array, Array]:
        if self.counts is None or self.means is None:
            return np.zeros(length), np.zeros((length, width))
        more = max(0, length - len(self.counts))
        return np.pad(self.counts, (0, more)), np.pad(self.means, ((0, more), (0, 0)))
