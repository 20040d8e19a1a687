"""The mean loss of a student as a function of two numbers, and the gains that follow from it.

The scores h of the student S and h* of the target S* are Gaussian. Their covariance is [[q, m], [m, Q*]] for
two different tokens, and twice that for a token with itself. Here q = Tr S^2/d, m = Tr S S*/d and Q* = Tr
S*^2/d. So the loss `sum_ab (y_ab - yhat_ab)^2` of a fresh sample with clean labels has a mean `Phi(q, m)`
(arXiv 2609.03858). These functions of q and m move a student:

    G = dPhi/dq,    H = (1/2) dPhi/dm    (half: the matrix derivative off the diagonal),
    sigma2 = sum_ab E (c_ab + c_ba)^2,   c_ab = dloss/dh_ab    (only at a finite learning rate)

| output | Phi without label noise (Delta = 0) | G, H |
|---|---|---|
| linear | T (T+1) E, E = q - 2m + Q* | T (T+1), -T (T+1); label noise does not change them |
| softmax | T E |softmax(b h) - softmax(b h*)|^2, one row | averages of the softmax and its derivatives |
| hermite k | E (h_k(h) - h_k(h*))^2, T = 1, h of variance 2q | polynomials |

T is the number of tokens and b the inverse temperature `beta`. A row softmax of two tokens depends on one
difference of scores. Its averages over two normals use the trapezoid rule and are exact to 3e-7.
Gauss-Hermite quadrature fails, because the logistic function has poles near the real axis. More than two
tokens use a fixed Sobol sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.risk import Softmax

REACH = 7.5  # ends of the trapezoid rule, in standard deviations
STEPS = 28.0  # 2 pi times the distance of the logistic function's first pole, over the step of the rule
SCRAMBLES = 4  # scrambled Sobol sequences, which give a standard error
MEHLER = 20  # orders of the series for two correlated rows; terms beyond are below 3^-20


def potential_of(problem: Problem) -> Potential:
    """Return the potential of a problem's output, or the first one if `potentials_of` returns several."""
    return potentials_of(problem)[0]


def potentials_of(problem: Problem) -> tuple[Potential, ...]:
    """Return the potentials of a problem's output: one, or several that average over different draws."""
    return POTENTIALS[problem.output](problem)


@dataclass(frozen=True)
class LinearPotential:
    """The potential of the linear output, for a target with Q* = `Q` and label noise of variance Delta."""

    tokens: int
    noise: float
    Q: float
    even: bool = False

    def value(self, q: float, m: float) -> float:
        return self.tokens * (self.tokens + 1) * (q - 2 * m + self.Q)

    def gains(self, q: float, m: float) -> tuple[float, float]:
        count = float(self.tokens * (self.tokens + 1))
        return count, -count

    def noise_power(self, q: float, m: float) -> float:
        return 16 * self.tokens * (self.tokens + 1) * (q - 2 * m + self.Q + self.noise / 2)


@dataclass(frozen=True)
class HermitePotential:
    """The potential of the outputs (x^2-1)/sqrt 2 and (x^3-3x)/sqrt 6 of a single score x."""

    order: int
    Q: float

    @property
    def even(self) -> bool:
        return self.order == 2

    def value(self, q: float, m: float) -> float:
        Q = self.Q
        if self.order == 2:
            return 6 * (q * q + Q * Q) - 8 * m * m - 4 * q * Q
        squares = (20 * q**3 - 12 * q * q + 3 * q) + (20 * Q**3 - 12 * Q * Q + 3 * Q)
        return squares - 2 * (3 * m * (2 * q - 1) * (2 * Q - 1) + 8 * m**3)

    def gains(self, q: float, m: float) -> tuple[float, float]:
        Q = self.Q
        if self.order == 2:
            return 12 * q - 4 * Q, -8 * m
        G = 60 * q * q - 24 * q + 3 - 12 * m * (2 * Q - 1)
        return G, -3 * (2 * q - 1) * (2 * Q - 1) - 24 * m * m

    def noise_power(self, q: float, m: float) -> float:
        """Return the noise power sigma2 = 4 E c^2 of the gradient, where c = 2 (h_k(h) - h_k(h*)) h_k'(h)."""
        z, w = np.polynomial.hermite_e.hermegauss(8)  # exact, because the integrand is a polynomial
        w = w / w.sum()
        star = np.sqrt(2 * self.Q) * z[:, None]
        scores = np.sqrt(2 / self.Q) * m * z[:, None] + np.sqrt(max(2 * (q - m * m / self.Q), 0.0)) * z
        if self.order == 2:
            c = 2 * scores * (scores**2 - star**2)
        else:
            c = (scores**3 - 3 * scores - star**3 + 3 * star) * (scores**2 - 1)
        return 4 * float(w @ c**2 @ w)


@dataclass(frozen=True)
class SoftmaxPotential:
    """The potential of a row softmax of two tokens.

    The mean loss is `Phi = 4 E (s(b v) - s(b v*))^2` with the logistic function s. The score differences v of
    the student and v* of the target have the covariance `3 [[q, m], [m, V]]`. Here `V = Q* + Delta/2`,
    because label noise is inside the target's softmax.
    """

    beta: float
    noise: float
    Q: float
    even: bool = False

    def value(self, q: float, m: float) -> float:
        s, star, w = self._outputs(q, m, self.Q)
        return 4 * float(np.sum(w * (s - star) ** 2))

    def gains(self, q: float, m: float) -> tuple[float, float]:
        s, star, w = self._outputs(q, m, self.Q + self.noise / 2)
        slope = s * (1 - s)
        G = np.sum(w * slope * (slope + (s - star) * (1 - 2 * s)))
        H = -np.sum(w * slope * star * (1 - star))
        factor = 12 * self.beta**2
        return factor * float(G), factor * float(H)

    def noise_power(self, q: float, m: float) -> float:
        """Return the noise power of the gradient, 12 E c^2 + 4 E c_1 c_2 with c = 4 b (s - s*) s (1-s).

        The values c_1 and c_2 belong to the two rows, whose score differences v have the correlation 1/3. By
        Mehler's formula, `E c_1 c_2 = sum 3^-(j+k) c_jk^2`, where c_jk are the coefficients of c in
        normalised Hermite polynomials of two normals.
        """
        V = self.Q + self.noise / 2
        s, star, w = self._outputs(q, m, V)
        c = 4 * self.beta * (s - star) * s * (1 - s)
        half, full, basis = _hermite_series(self._step(q, V))
        modes = half.T @ c @ full
        # The rule covers the half plane z >= 0. Since c(-z, -y) = -c(z, y), only odd j + k remain, doubled.
        return 12 * float(np.sum(w * c * c)) + 4 * float(np.sum(basis * modes**2))

    def _outputs(self, q: float, m: float, V: float) -> tuple[Reals, Reals, Reals]:
        """Return the student's outputs, the target's outputs, and the weights for averaging over them."""
        z, y, w = _rule(self._step(q, V))
        scale = self.beta * np.sqrt(3.0)
        scores = (m / np.sqrt(V)) * z[:, None] + np.sqrt(max(q - m * m / V, 0.0)) * y
        return scipy.special.expit(scale * scores), scipy.special.expit(scale * np.sqrt(V) * z)[:, None], w

    def _step(self, q: float, V: float) -> float:
        """Return the step of the trapezoid rule. Similar q share a step, so that few rules are computed."""
        outgrown = 1.0 if q <= 2.5 * V else 2.0 ** np.ceil(np.log2(q / V))
        return float(2 * np.pi**2 / (STEPS * self.beta * np.sqrt(3 * V * outgrown)))


@lru_cache(maxsize=32)
def _rule(step: float) -> tuple[Reals, Reals, Reals]:
    """Return points z >= 0 and y, and weights (z, y), that average even functions of two normals."""
    y = step * np.arange(-np.ceil(REACH / step), np.ceil(REACH / step) + 1)
    density = step * np.exp(-y * y / 2) / np.sqrt(2 * np.pi)
    z = y[y >= 0]  # enough, because all integrands are even
    weights = np.outer(density[y >= 0] * np.where(z > 0, 2.0, 1.0), density)
    return z, y, weights


@lru_cache(maxsize=32)
def _hermite_series(step: float) -> tuple[Reals, Reals, Reals]:
    """Return weighted Hermite polynomials at the z and y of `_rule`, and factors 3^-(j+k) for odd j + k."""
    z, y, _ = _rule(step)
    orders = np.arange(MEHLER)
    full = _normalised(y) * (step * np.exp(-y * y / 2) / np.sqrt(2 * np.pi))[:, None]
    half = _normalised(z) * (step * np.exp(-z * z / 2) / np.sqrt(2 * np.pi))[:, None]
    half = half * np.where(z > 0, 2.0, 1.0)[:, None]
    total = orders[:, None] + orders
    return half, full, np.where(total % 2 == 1, 3.0**-total, 0.0)


def _normalised(x: Reals) -> Reals:
    """Return `He_k(x)/sqrt(k!)` for all k below `MEHLER`. The last axis of the result runs over k."""
    columns = [np.ones_like(x), x]
    for k in range(2, MEHLER):
        columns.append((x * columns[-1] - np.sqrt(k - 1) * columns[-2]) / np.sqrt(k))
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class RowSoftmaxPotential:
    """The potential of a row softmax of T >= 3 tokens.

    Averages use the same scrambled Sobol sequence for all (q, m). Let p be a row of the student's output, and
    y a row of the target's output. The scores in the student's row have variances k_a q, where k_a is 2 for
    the query's own token and 1 for all others. Let J = diag p - p p^T, and let J* be the same matrix for y.
    The gains are `H = -T b^2 E sum_ac k_a J_ca J*_ca` and `G = T b^2 E sum_ac k_a [J_ca^2 + (p_c - y_c) J_ca
    (1 - 2 p_a)]`.
    """

    tokens: int
    beta: float
    noise: float
    Q: float
    scramble: int = 0
    draws: int = 4096
    even: bool = False

    def value(self, q: float, m: float) -> float:
        p, y = self._rows(q, m, self.Q)
        return self.tokens * float(np.mean(np.sum((p - y) ** 2, axis=-1)))

    def gains(self, q: float, m: float) -> tuple[float, float]:
        p, y = self._rows(q, m, self.Q + self.noise / 2)
        jacobian, star = _jacobian(p), _jacobian(y)
        bend = np.einsum("nc,ncb->nb", p - y, jacobian) * (1 - 2 * p)
        G = np.mean((np.sum(jacobian**2, axis=1) + bend) @ self._counts)
        H = -np.mean(np.sum(jacobian * star, axis=1) @ self._counts)
        factor = self.tokens * self.beta**2
        return factor * float(G), factor * float(H)

    def noise_power(self, q: float, m: float) -> float:
        V = self.Q + self.noise / 2
        first, second = np.triu_indices(self.tokens)
        scale = np.where(first == second, np.sqrt(2.0), 1.0)
        z, y = np.split(_normals(2 * first.size, self.draws, self.scramble) * np.tile(scale, 2), 2, axis=1)
        scores = (m / np.sqrt(V)) * z + np.sqrt(max(q - m * m / V, 0.0)) * y
        softmax = Softmax(self.beta)
        student, target = (softmax.labels(h, self.tokens) for h in (scores, np.sqrt(V) * z))
        rest = student - target
        inner = np.sum(rest * student, axis=-1, keepdims=True)
        c = 2 * self.beta * student * (rest - inner)
        return float(np.mean(np.sum((c + c.transpose(0, 2, 1)) ** 2, axis=(1, 2))))

    @cached_property
    def _counts(self) -> Reals:
        return np.array([2.0] + [1.0] * (self.tokens - 1))

    def _rows(self, q: float, m: float, V: float) -> tuple[Reals, Reals]:
        normals = _normals(2 * self.tokens, self.draws, self.scramble)
        z, y = np.split(normals, 2, axis=1) * np.sqrt(self._counts)
        scores = (m / np.sqrt(V)) * z + np.sqrt(max(q - m * m / V, 0.0)) * y
        logits = self.beta * scores, self.beta * np.sqrt(V) * z
        return scipy.special.softmax(logits[0], axis=-1), scipy.special.softmax(logits[1], axis=-1)


def _jacobian(p: Reals) -> Reals:
    """Return `diag p - p p^T` for each row p of an array of shape (n, T). The result has shape (n, T, T)."""
    return np.asarray(p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :]))


@lru_cache(maxsize=16)
def _normals(dimension: int, draws: int, scramble: int) -> Reals:
    """Return normal numbers from a scrambled Sobol sequence, as an array of shape (draws, dimension)."""
    sobol = scipy.stats.qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(scramble))
    return np.asarray(scipy.stats.norm.ppf(sobol.random(draws)))


def _softmax_potentials(problem: Problem) -> tuple[Potential, ...]:
    """Return one potential for two tokens, or one for each scrambled sequence for more tokens."""
    Q, beta, noise = problem.target.second_moment, problem.beta, problem.noise
    if problem.tokens == 2:
        return (SoftmaxPotential(beta, noise, Q),)
    return tuple(
        RowSoftmaxPotential(problem.tokens, beta, noise, Q, scramble) for scramble in range(SCRAMBLES)
    )


# Each has the mean loss `Phi(q, m)` with clean labels (`value`), its gains (G, H) and the power sigma2 of its
# noise. `even` says whether Phi(q, m) = Phi(q, -m), so that -S* fits the labels as well as S*.
Potential = LinearPotential | HermitePotential | SoftmaxPotential | RowSoftmaxPotential

# The outputs whose dynamics is known, with the functions that make their potentials.
POTENTIALS: dict[str, Callable[[Problem], tuple[Potential, ...]]] = {
    "linear": lambda problem: (LinearPotential(problem.tokens, problem.noise, problem.target.second_moment),),
    "softmax": _softmax_potentials,
    "hermite2": lambda problem: (HermitePotential(2, problem.target.second_moment),),
    "hermite3": lambda problem: (HermitePotential(3, problem.target.second_moment),),
}
