"""Effective ranks of a spectrum: how long its tail is for n samples (arXiv 1906.11300).

| here | formula, with eigenvalues l_1 >= l_2 >= ... of a covariance |
|---|---|
| r | r_k = sum_{i>k} l_i / l_{k+1} |
| R | R_k = (sum_{i>k} l_i)^2 / sum_{i>k} l_i^2 |
| k | k* = min{k >= 0: r_k >= b n}, where the theory leaves the constant b open |
| noise terms | k*/n and n/R_{k*}: small if a model can fit noisy labels without much harm |

Up to a constant, the noise terms bound the noise's share of the risk. They are not a risk; `ridge_risk`
computes one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals, require_spectral_values
from attnlaw.core.settings import check_value


@dataclass(frozen=True)
class Split:
    """A split of a spectrum into k leading directions and a tail, with the tail's effective ranks.

    All numbers are None if no tail is long enough. In this case `remark` names a remedy. The noise terms are
    k/n and n/R for n samples.
    """

    k: int | None
    r: float | None
    R: float | None
    noise_terms: tuple[float, float] | None
    remark: str | None = None


@dataclass(frozen=True, eq=False)
class EffectiveRanks:
    """The effective ranks r_k and R_k of a spectrum for every k.

    If the eigenvalues are squared singular values of a matrix, r_0 is the stable rank of that matrix.
    """

    r: Reals
    R: Reals

    def at(self, k: int) -> tuple[float, float]:
        """Return the effective ranks r_k and R_k of the tail after k directions."""
        place = check_value("k", k, int, minimum=0, maximum=self.r.size - 1)
        return float(self.r[place]), float(self.R[place])

    @property
    def largest(self) -> float:
        """The largest r_k. If there are more than `largest / b` samples, no split exists."""
        return float(self.r.max())

    def split(self, samples: int, b: float = 1.0) -> Split:
        """Return the split at the smallest k with r_k >= b n, where n is the number of samples.

        >>> split = effective_ranks([10.0] * 5 + [0.02] * 2000).split(100)
        >>> split.k, [round(term, 9) for term in split.noise_terms]
        (5, [0.05, 0.05])
        """
        n = check_value("samples", samples, int, minimum=1)
        needed = check_value("b", b, float, greater_than=0) * n
        # r_k is not monotone in k, so all of them are compared.
        long_enough = np.flatnonzero(self.r >= needed)
        if not long_enough.size:
            remark = (
                f"no tail of this spectrum has an effective rank of {needed:g}, the longest has "
                f"{self.largest:.4g}: {n} samples cannot be fitted without harm; use fewer samples, or "
                "add a ridge"
            )
            return Split(None, None, None, None, remark)
        k = int(long_enough[0])
        r, R = self.at(k)
        return Split(k, r, R, (k / n, n / R))


def effective_ranks(eigenvalues: ArrayLike) -> EffectiveRanks:
    """Compute the effective ranks of a spectrum, which do not depend on its scale.

    Args:
        eigenvalues: eigenvalues of a covariance, in any order. Zero eigenvalues are left out. For activations
            X (tokens x width), pass `np.linalg.svd(X - X.mean(0), compute_uv=False) ** 2`. For a `Spectrum`,
            pass `spectrum.values ** 2`.

    >>> ranks = effective_ranks([4.0, 1.0, 1.0, 0.0])
    >>> ranks.r.tolist(), ranks.R.tolist()
    ([1.5, 2.0, 1.0], [2.0, 2.0, 1.0])
    """
    remedy = "give the eigenvalues of a covariance; if you have singular values, square them first"
    values = np.sort(require_spectral_values("effective ranks", eigenvalues, remedy, positive=True))
    relative = values[values > 0] / values[-1]
    # In ascending order, sums over tails are running sums that add the smallest values first.
    sums, squares = np.cumsum(relative), np.cumsum(relative**2)
    return EffectiveRanks((sums / relative)[::-1], (sums**2 / squares)[::-1])
