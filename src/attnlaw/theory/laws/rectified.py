"""The rectified law: what is left of a blurred spectrum after soft thresholding.

`f(x) = (x - b)_+` applied to eigenvalues X of law mu_a: the spectrum of a trained, weight-decayed positive
semidefinite matrix (arXiv 2509.24914). The integrals that state evolution needs are `J = int f^2 dmu_a`,
`M1 = int f dmu_a` and `chi = 2 int f Re g_a dmu_a = (dJ/da) / (2a)`. With X the eigenvalues of `S + a Z` and
Q the second moment of S, the distance of the rectified matrix from S is `E = Q - J - 2 b M1 + 2 a^2 chi`.

For singular values with both signs, S square and Z of independent entries, `f(x) = sign(x) (abs(x) - b)_+`,
the integrals are over both sides, and the same formulas hold: a table of two sides.

A student of limited width keeps a share of the values only, those beyond a cut t > b:
`f(x) = (x - b) 1(x > t)`, and the same formulas hold with the integrals taken above t.

Where a and b are small, E is a difference of large terms. The integrals over all of mu_a are known (mass 1,
second moment `Q + a^2`, `2 int x Re g = 1`), and what lies below t (b without a cut) has the size of a. So

    E = b^2 mass + int_(x<t) x^2 - a^2 + 2 a^2 chi,    chi = 1 - 2 int_(x<t) x Re g - 2 b int_(x>t) Re g.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.settings import check_value
from attnlaw.theory.laws.convolution_nodes import Indices
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.law import Complexes, Law, Reals

# Up to this part of Q a^2 and b^2 are small.
SMALL = 1e-4


@dataclass(frozen=True)
class Rectification:
    """`J`, `M1`, `chi`, the mass above the threshold, E and `dchi/db`, a value for each member of a batch."""

    J: Reals
    M1: Reals
    chi: Reals
    mass: Reals
    E: Reals
    slope: Reals


def rectify(
    table: Truncated, b: Reals, which: Indices | None = None, cut: Reals | None = None
) -> Rectification:
    """Integrals of `(x - b)_+`, or of `(x - b) 1(x > cut)` where that is higher, against each mu_a.

    >>> from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
    >>> all_of_it = rectify(Truncated(MarchenkoPastur(0.5), np.array([1.0])), np.array([-9.0]))
    >>> all_of_it.J.round(9).tolist(), all_of_it.chi.round(9).tolist()  # J = Q* + a^2 + 18 mean + 81
    ([96.227922061], [1.0])
    """
    above, below = table.split(b if cut is None else np.maximum(b, cut), which)
    mass, first, second, plain, weighted = above
    J, M1, chi = second - 2 * b * first + b * b * mass, first - b * mass, 2 * (weighted - b * plain)
    Q, square = table.second_moment, (table.a if which is None else table.a[which]) ** 2
    small = np.maximum(square, b * b) < SMALL * Q
    mass = np.where(small, 1 - below[0], mass)
    chi = np.where(small, 1 - 2 * below[4] - 2 * b * plain, chi)
    chi = np.maximum(chi, 0.0)  # a mean of slopes, but for round-off
    E = np.where(small, b * b * mass + below[2] - square, Q - J - 2 * b * M1) + 2 * square * chi
    return Rectification(J, M1, chi, mass, E, -2 * plain)


@dataclass(frozen=True)
class Rectified(Law):
    """The law of `scale (X - threshold)_+`, X of the law `base`: an atom at zero and a shifted bulk.

    With `sides` 2 it is that of `scale (abs(X) - threshold)_+` for a symmetric base. A `cut` above the
    threshold sets what lies below it to zero: the bulk then starts at `scale (cut - threshold)`. `kept` is
    the weight of the bulk, where it is known already.

    >>> from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
    >>> law = Rectified(FreeConvolution(MarchenkoPastur(0.5), 1.0), threshold=0.5)
    >>> round(float(law.atoms[0][1] + law.nodes()[1].sum()), 9)
    1.0
    """

    base: FreeConvolution
    threshold: float
    scale: float = 1.0
    sides: int = 1
    cut: float | None = None
    kept: float | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_value("scale of a rectified law", self.scale, float, greater_than=0)

    @property
    def _lower_cut(self) -> float:
        """The least value of X that is kept."""
        return self.threshold if self.cut is None else max(self.threshold, self.cut)

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        kept = [
            (max(low, self._lower_cut), high) for low, high in self.base.intervals if high > self._lower_cut
        ]
        return tuple(
            (self.scale * (low - self.threshold), self.scale * (high - self.threshold)) for low, high in kept
        )

    @cached_property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        weight = 1.0 - (self._kept() if self.kept is None else self.kept)
        return ((0.0, weight),) if weight > 1e-12 else ()

    def _kept(self) -> float:
        base = self.base
        table = base.table if self.sides == 1 else Truncated(base.base, np.array([base.sigma]), self.sides)
        return float(table.above(np.array([self._lower_cut]))[0, 0])

    def density(self, x: ArrayLike) -> Reals:
        x = np.asarray(x, dtype=float) / self.scale
        value = self.base.density(np.maximum(x, 0.0) + self.threshold) * (self.sides / self.scale)
        return np.where((x > 0) & (x > self._lower_cut - self.threshold), value, 0.0)

    def stieltjes(self, z: ArrayLike) -> Complexes:
        return self.stieltjes_by_quadrature(z)
