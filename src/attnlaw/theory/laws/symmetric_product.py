"""Singular values of a product of two Gaussian factors, each with both signs.

The product is `S = scale W_Q W_K^T / sqrt(m d)`, with independent standard Gaussian factors d x m. Write k
for m/d. Half the mass is at each singular value and half at its negative, so the law is symmetric. Its free
convolution with a semicircle gives the singular values of `S + a Z`, where Z has independent entries of
variance 1/d. The variance is `scale^2` for every k. If k < 1, there is an atom of weight 1 - k at zero.

The transform solves `(z/k) g^3 + (1 - 1/k) g^2 - z g + 1 = 0`. For k <= 1, the squares times k have the law
`HeadNull(k)` with mass k. As k -> infinity, the law becomes the semicircle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.numerics.polynomial_roots import monic_roots, smallest_root
from attnlaw.theory.laws.head_null import HeadNull
from attnlaw.theory.laws.law import Bounded, Piece
from attnlaw.theory.laws.marchenko_pastur import RankLaw


@dataclass(frozen=True)
class SymmetricProduct(RankLaw):
    """The law of the singular values of `scale W_Q W_K^T / sqrt(m d)`, each with both signs."""

    subject = "product of factors"

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        if self.rank_ratio > 1:
            return ((-self._top, self._top),)
        side = self._side
        return ((-side.high, -side.low), (side.low, side.high))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        if self.rank_ratio > 1:
            return (Bounded(-self._top, self._top),)
        return (_Mirror(self._side), self._side)

    def density(self, x: ArrayLike) -> Reals:
        """Return the density `k^2 abs(x) rho(k x^2)`, where rho is the density of `HeadNull(k)`."""
        x, k = np.asarray(x, dtype=float), self.rank_ratio
        if k > 1:
            return super().density(x)
        x = x / self.scale
        return np.asarray(k * k * np.abs(x) * HeadNull(k).density(k * x * x) / self.scale)

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the transform `(1 - k)/z + k^2 z G(k z^2)`, where G is the transform of `HeadNull(k)`."""
        k, scale = self.rank_ratio, self.scale
        z = np.asarray(z) / scale
        if k > 1:
            ends = tuple((low / scale, high / scale) for low, high in self.intervals)
            return np.asarray(smallest_root(self._candidates, z, ends) / scale)
        if np.iscomplexobj(z):
            return np.asarray(((1 - k) / z + k * k * z * HeadNull(k).stieltjes(k * z * z)) / scale)
        x = np.abs(np.asarray(z, dtype=float))
        with np.errstate(divide="ignore", invalid="ignore"):
            g = (1 - k) / x + k * k * x * HeadNull(k).stieltjes(k * x * x)
        return np.asarray(np.where(z < 0, -g.conj(), g) / scale)

    def _candidates(self, z: Complexes) -> Complexes:
        k, at = self.rank_ratio, np.where(z == 0, 1e-150, z)
        return monic_roots(np.stack([(k - 1) / at, -k * np.ones_like(at), k / at], axis=-1))

    @cached_property
    def _side(self) -> _Side:
        (squares,) = HeadNull(self.rank_ratio).pieces
        return _Side(squares, self.rank_ratio, self.scale)

    @cached_property
    def _top(self) -> float:
        """The upper edge if k > 1: the least `(1 + c W)/(sqrt(W) (1 - W/k))` over `W = g^2`, c = 1 - 1/k."""
        k = self.rank_ratio
        c = 1 - 1 / k
        # dx/dW = 0: c W^2/k + (3/k + c) W - 1 = 0.
        half = (3 / k + c) / 2
        W = 1 / (half + np.sqrt(half * half + c / k))
        return float(self.scale * (1 + c * W) / (np.sqrt(W) * (1 - W / k)))


@dataclass(frozen=True)
class _Side:
    """The quadrature piece of the positive singular values `scale sqrt(x/k)`."""

    squares: Piece  # the piece of x
    k: float
    scale: float

    @property
    def low(self) -> float:
        return float(self.scale * np.sqrt(max(self.squares.low, 0.0) / self.k))

    @property
    def high(self) -> float:
        return float(self.scale * np.sqrt(self.squares.high / self.k))

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        x, slope = self.squares.at(theta)
        s = np.sqrt(np.maximum(x, 0.0) / self.k)
        return self.scale * s, self.scale * slope / (2 * self.k * np.where(s > 0, s, np.inf))


@dataclass(frozen=True)
class _Mirror:
    """The mirror image of a piece under `x -> -x`."""

    piece: Piece

    @property
    def low(self) -> float:
        return -self.piece.high

    @property
    def high(self) -> float:
        return -self.piece.low

    def at(self, theta: Reals) -> tuple[Reals, Reals]:
        x, slope = self.piece.at(np.pi - theta)
        return -x, slope
