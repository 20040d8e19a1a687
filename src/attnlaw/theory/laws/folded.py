"""The positive half of a symmetric law: singular values without their signs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.theory.laws.law import Complexes, Law, Reals
from attnlaw.theory.laws.pieces import Bounded, Piece


@dataclass(frozen=True)
class Folded(Law):
    """The law of `abs(X)`, X of a symmetric law `base`.

    >>> from attnlaw.theory.laws.semicircle import Semicircle
    >>> round(Folded(Semicircle(1.0)).mean, 6)  # the quarter circle: 8/(3 pi)
    0.848826
    """

    base: Law

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        return tuple((max(low, 0.0), high) for low, high in self.base.intervals if high > 0)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(
            piece if piece.low >= 0 else Bounded(0.0, piece.high)
            for piece in self.base.pieces
            if piece.high > 0
        )

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        weights = ((place, (1 if place == 0 else 2) * weight) for place, weight in self.base.atoms)
        return tuple((place, weight) for place, weight in weights if place >= 0)

    def density(self, x: ArrayLike) -> Reals:
        x = np.asarray(x, dtype=float)
        return np.where(x >= 0, 2 * self.base.density(x), 0.0)

    def stieltjes(self, z: ArrayLike) -> Complexes:
        return self.stieltjes_by_quadrature(z)
