"""The spectrum of a random attention matrix, and the number of directions that it uses.

Q and K are n x d_K with standard Gaussian entries, `S = Q K^T / sqrt(d_K)`, `A = softmax(beta S)` by rows,
and `A_perp = A - 1 1^T / n`. The law describes the squared singular values of `sqrt(n) A_perp`. In the limit
this matrix acts like `(beta S + sqrt(e^(beta^2) - 1 - beta^2) W)/sqrt(n)` with a Gaussian W (arXiv
2510.06685). The law has the mean `theta` and the second moment `2 theta^2 + beta^4 / t`.

| letter | meaning |
|---|---|
| n, d_K | tokens, head size |
| t | `ratio = d_K / n` |
| theta | `e^(beta^2) - 1` |
| c | `beta^2 / theta`: the share of the low-rank part |
| r, k | `c / t` and `c (1 - c) / t` |
| xi | `sqrt(x / theta)`, a singular value |
| tau | `1 / G(xi)`, G the transform of the law of xi with both signs: `theta g(x) = 1 / (xi tau)` |
| M | uniform attention under a causal mask: row i is 1/i on its first i tokens |

`tau^4 - xi tau^3 + (1 - r) tau^2 + r xi tau - k = 0`. Solved for xi, this is a rational function of tau whose
critical points are the edges: `q = tau^2 > 0` with `q^3 - (1 + 2r) q^2 + (3k - r(1 - r)) q - k r = 0`. The
largest q gives the upper edge. If there are two other roots, they are the ends of a gap. The pole of xi at
q = r is above both.

The participation number `(sum s^2)^2 / sum s^4` of singular values s counts directions: it is n for n equal
values. `null_participation` draws independent Gaussian queries and keys; for text, random weights on the same
tokens are a fairer comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.core.settings import check_value
from attnlaw.numerics.draws import mean_of
from attnlaw.numerics.polynomial_roots import monic_roots
from attnlaw.theory.laws.law import Bounded, Law, Piece, require_scale

MOST_BETA = 5.0
LARGEST_INVERSE_BETA = 1000.0  # below 0.001 the quadrature loses digits


@dataclass(frozen=True)
class AttentionMatrixLaw(Law):
    """The limit of the squared singular values of `sqrt(n) (softmax(beta Q K^T / sqrt(d_K)) - mean)`.

    Finite matrices approach this limit slowly if beta is above 1 or d_K/n is small. A beta above 5 raises an
    `InputError`. In this range no matrix of realistic size is near the limit, and rounding errors would show
    false gaps. Next to an edge, the density has only half of its digits, because two roots meet at the edge.

    Args:
        beta: standard deviation of the attention logits in a row.
        ratio: the head size divided by the number of tokens, d_K / n.

    >>> law = AttentionMatrixLaw(1.0, 1.0)
    >>> round(law.support[1], 4), round(law.moment(2) / law.mean**2, 4)
    (9.0095, 2.3387)
    """

    beta: float
    ratio: float

    def __post_init__(self) -> None:
        require_beta("attention matrix", self.beta)
        remedy = "give d_K / n, the size of the head divided by the number of tokens"
        check_value("attention matrix: ratio", self.ratio, float, greater_than=0, remedy=remedy)

    @property
    def theta(self) -> float:
        return float(np.expm1(self.beta**2))

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        ends = self._edges
        return ((0.0, ends[0]),) if len(ends) == 1 else ((0.0, ends[0]), (ends[1], ends[2]))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The intervals on which integrals are computed, split where a gap is about to open."""
        if len(self.intervals) == 2:
            return super().pieces
        (edge,) = self._edges
        inner = self._place(self._critical).real
        divide = [float(x) for x in inner if 1e-9 * edge < x < (1 - 1e-9) * edge][:1]
        return tuple(Bounded(low, high) for low, high in pairwise([0.0, *divide, edge]))

    def stieltjes(self, z: ArrayLike) -> Complexes:
        """Return the Stieltjes transform `g = 1/(theta xi tau)`.

        If xi is above the real line, tau is the only root above it, because a real tau has a real xi. Close
        to the real line, the right root also needs `dxi/dtau > 0`. Off the support, one root does.
        """
        z = np.asarray(z)
        place = z.astype(complex)
        below = place.imag < 0
        r, k = self._letters
        xi = np.sqrt(np.where(below, place.conj(), place) / self.theta)
        ones = np.ones_like(xi)
        tau = monic_roots(np.stack([-xi, (1 - r) * ones, r * xi, -k * ones], axis=-1))
        off = (place.imag == 0) & (place.real > 0) & ~self.inside(place.real)
        score = np.where(off[..., None], self._slope(tau.real**2), tau.imag)
        chosen = np.take_along_axis(tau, score.argmax(-1)[..., None], axis=-1)[..., 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            g = 1 / (self.theta * xi * np.where(off, chosen.real, chosen))
        return np.asarray(np.where(below, g.conj(), g))

    def moment(self, order: int) -> float:
        """Return the moment of an order, from the series of `s = z g(z)` in 1/z."""
        r, k = self._letters
        s = np.zeros(order + 1)
        s[0] = 1.0
        for n in range(1, order + 1):
            square = np.convolve(s, s)[:n]
            fourth = np.convolve(square, square)
            cubic = np.convolve(square, s)[n - 1]
            s[n] = (1 - r) * square[n - 1] + r * cubic - (k * fourth[n - 2] if n > 1 else 0.0)
        return float(s[order] * self.theta**order)

    @property
    def _letters(self) -> tuple[float, float]:
        """The numbers r and k of the notation table."""
        square = self.beta**2
        r = square / (self.theta * self.ratio)
        # 1 - c = (e^b - 1 - b)/(e^b - 1), b = beta^2, without cancellation.
        rest = 0.5 * square**2 * float(scipy.special.hyp1f1(1.0, 3.0, square)) / self.theta
        return r, r * rest

    def _slope(self, q: Reals) -> Reals:
        """Return the derivative dxi/dtau at a real tau with tau^2 = q."""
        r, k = self._letters
        cubic = ((q - (1 + 2 * r)) * q + (3 * k - r * (1 - r))) * q - k * r
        return np.asarray(cubic / np.maximum(q * (q - r) ** 2, 1e-300))

    def _place(self, q: Any) -> Any:
        """Return the eigenvalue x at a critical point q of xi (complex for a complex q)."""
        r, k = self._letters
        return self.theta * (q * q + (1 - r) * q - k) ** 2 / (q * (q - r) ** 2)

    @cached_property
    def _critical(self) -> Complexes:
        r, k = self._letters
        return monic_roots(np.array([-(1 + 2 * r), 3 * k - r * (1 - r), -k * r], dtype=complex))

    @cached_property
    def _edges(self) -> tuple[float, ...]:
        roots = self._critical
        real = (np.abs(roots.imag) <= 1e-9 * np.abs(roots)) & (roots.real > 0)
        q = np.sort(roots.real[real])
        # A double root is a gap that is about to open; it counts as closed.
        q = q[-1:] if q.size < 3 or q[1] - q[0] <= 1e-7 * q[1] else q
        return tuple(np.sort(self._place(q)).tolist())


def require_beta(what: str, beta: float) -> None:
    """Raise an `InputError` if beta is so large or so small that rounding errors would dominate."""
    if not 0 < beta <= MOST_BETA:
        raise InputError(
            f"{what}: found beta {beta}, expected a number above 0 and at most {MOST_BETA:g}, because the "
            "law does not hold for larger values; give the standard deviation of a row's logits, or draw "
            "random matrices instead"
        )
    require_scale(f"{what}: beta", beta, LARGEST_INVERSE_BETA)


def random_attention(
    tokens: int, head_size: int, beta: float, seed: int | np.random.Generator, causal: bool = False
) -> Reals:
    """Draw an n x n attention matrix `softmax(beta Q K^T / sqrt(d_K))` with standard Gaussian Q and K."""
    Q, K = np.random.default_rng(seed).standard_normal((2, tokens, head_size))
    scores = (beta / np.sqrt(head_size)) * (Q @ K.T)
    if causal:
        scores[np.triu_indices(tokens, 1)] = -np.inf
    return np.asarray(scipy.special.softmax(scores, axis=1))


def centred(attention: NDArray[np.floating], causal: bool = False) -> Reals:
    """Return an attention matrix minus its column means, or minus M if it has a causal mask.

    Keys of unequal length raise whole columns of a random attention matrix, which causes a spike of rank one.
    Subtracting column means removes this spike, but subtracting 1/n does not.
    """
    A = np.asarray(attention, dtype=float)
    if not causal:
        return np.asarray(A - A.mean(axis=0))
    n = A.shape[0]
    return np.asarray(A - np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None])


def participation(matrix: NDArray[np.floating]) -> float:
    """Return the participation number `(sum s^2)^2 / sum s^4` of a matrix with singular values s.

    The function computes it as `|C|_F^4 / |C C^T|_F^2` of the matrix C, without an SVD. The result is nan for
    a matrix of zeros.

    >>> participation(np.diag([2.0, 2.0, 2.0, 0.0]))
    3.0
    """
    C = np.asarray(matrix, dtype=float)
    gram = C @ C.T if C.shape[0] <= C.shape[1] else C.T @ C
    # Divide by a common scale first, so that neither the trace nor the norm underflows.
    scale = np.abs(gram).max(initial=0.0)
    gram = gram / scale if scale > 0 else gram
    with np.errstate(invalid="ignore"):
        return float(np.divide(np.trace(gram) ** 2, (gram**2).sum()))


def null_participation(
    tokens: int, head_size: int, beta: float, seed: int, draws: int = 20, causal: bool = False
) -> Estimate:
    """Estimate how many directions a random attention matrix uses at this beta (participation number).

    If beta is below `few_rows_beta`, the number is near `n / (2 + c^2 n/d_K)` with
    `c = beta^2/(e^(beta^2) - 1)` (arXiv 2510.06685). The draws remain valid at larger beta and under a
    causal mask, where this formula does not hold.

    >>> str(null_participation(128, 64, 0.5, seed=0))
    '34.9(2)'
    """
    check_value("draws", draws, int, minimum=2)
    seeds = np.random.SeedSequence(seed).spawn(draws)
    numbers = [
        participation(
            centred(random_attention(tokens, head_size, beta, np.random.default_rng(seed), causal), causal)
        )
        for seed in seeds
    ]
    return mean_of(numbers)
