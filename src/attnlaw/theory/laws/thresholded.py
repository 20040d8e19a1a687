"""The thresholded law: what is left of a blurred spectrum after hard thresholding.

`f(x) = x` where `|x| > tau`, else 0, applied to eigenvalues X of law mu_a: the spectrum of factors trained
from a vanishing start and stopped early (arXiv 2007.08322; that the flow is a threshold is ours). With X the
eigenvalues of `S + a Z` and Q the second moment of S, the distance of the thresholded matrix from S is

    E = Q + int_(|x|>tau) (4 a^2 x Re g_a - x^2) dmu_a
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.settings import check_value
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.law import Complexes, Law, Reals


@dataclass(frozen=True)
class Thresholded(Law):
    """The law of `X 1(|X| > tau)`, X of the law `base`: an atom at zero, and the base beyond tau.

    >>> from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
    >>> law = Thresholded(FreeConvolution(MarchenkoPastur(0.5), 1.0), tau=0.5)
    >>> round(float(law.atoms[0][1] + law.nodes()[1].sum()), 9)
    1.0
    """

    base: FreeConvolution
    tau: float

    def __post_init__(self) -> None:
        check_value("tau of a thresholded law", self.tau, float, minimum=0)

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        below = [(low, min(high, -self.tau)) for low, high in self.base.intervals]
        above = [(max(low, self.tau), high) for low, high in self.base.intervals]
        return tuple((low, high) for low, high in (*below, *above) if high > low)

    @cached_property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        weight = 1.0 - float(self._beyond[0])
        return ((0.0, weight),) if weight > 1e-12 else ()

    @property
    def distance(self) -> float:
        """E, of the thresholded matrix from the one under the noise, per dimension.

        >>> from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
        >>> noise, far = FreeConvolution(MarchenkoPastur(0.5), 1.0), 99.0
        >>> [round(Thresholded(noise, tau).distance, 9) for tau in (0.0, far)]  # a^2, and Q = 1 + kappa0
        [1.0, 1.5]
        """
        _, _, second, _, weighted = self._beyond
        return float(self._truncated.second_moment + 4 * self.base.sigma**2 * weighted - second)

    def density(self, x: ArrayLike) -> Reals:
        x = np.asarray(x, dtype=float)
        return np.where(np.abs(x) > self.tau, self.base.density(x), 0.0)

    def stieltjes(self, z: ArrayLike) -> Complexes:
        return self.stieltjes_by_quadrature(z)

    @cached_property
    def _truncated(self) -> Truncated:
        return Truncated(self.base.base, np.array([self.base.sigma]))

    @cached_property
    def _beyond(self) -> Reals:
        """Integrals of 1, x, x^2, Re g and x Re g over |x| > tau."""
        above, _ = self._truncated.split(np.array([self.tau]))
        _, below = self._truncated.split(np.array([-self.tau]))
        return np.asarray((above + below)[:, 0])
