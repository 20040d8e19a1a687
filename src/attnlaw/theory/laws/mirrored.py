"""The law of -X: what an even output may learn instead of its target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.theory.laws.law import Complexes, Law, Reals


@dataclass(frozen=True)
class Mirrored(Law):
    """The law of `-X`, X of the law `base`: `g(z) = -g_base(-z)`.

    >>> from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
    >>> law = Mirrored(MarchenkoPastur(0.5))
    >>> round(law.moment(1) + MarchenkoPastur(0.5).moment(1), 12), law.atoms
    (0.0, ((-0.0, 0.5),))
    """

    base: Law

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return tuple((-high, -low) for low, high in reversed(self.base.intervals))

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        return tuple((-place, weight) for place, weight in reversed(self.base.atoms))

    def density(self, x: ArrayLike) -> Reals:
        return self.base.density(-np.asarray(x, dtype=float))

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """At a real point inside the support -z + i0 is the conjugate of what the base means by -z."""
        z = np.asarray(z)
        g = -self.base.stieltjes(-z)
        return np.asarray(g if np.iscomplexobj(z) else g.conj())
