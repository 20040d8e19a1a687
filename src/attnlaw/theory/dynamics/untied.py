"""Untied factors M = U V^T: small matrices follow the flow, averaged over complex Gaussian starts.

    dU/dtau = -K V - gamma U,   dV/dtau = -K^T U - gamma V,   K = 2 (G1 M + G2 M^T + H1 M* + H2 M*^T)

These are equations 28 to 32 of arXiv 2609.03858, with centred scores, target M*, time tau and decay gamma.
Complex matrices (transpose -> adjoint) have a bias of order 1/d^2, so sizes d = 16 and 32 are extrapolated.
The moments of each start and target are matched, which makes the error over starts 3 to 8 times smaller.

Labels show `q_eff = (a1 q1 + a2 q2)/(a1 + a2)` with q1 = Tr M M^T/d and q2 = Tr M M/d. m_eff follows in the
same way from m1 = Tr M M*^T/d and m2 = Tr M M*/d.

| output | a1, a2 | potential |
|---|---|---|
| linear, T tokens | T, 1 | that of the tied student at q_eff, m_eff and Q_eff = a1/(a1 + a2) |
| softmax, T = 2 | 2, 1 | the same |
| hermite, T = 1 | 1, 1 | the same |

With the gains G and H of this potential, G1 = G a1/(a1 + a2) and G2 = G a2/(a1 + a2); H1 and H2 follow in
the same way. The target is `W_Q W_K^T/sqrt(m0 d)`, so that Q* = Tr M* M*^T/d = 1. At a finite learning rate
eta, `dU += N V, dV += N^T U` with Cov(N_ij, N_ij) = eta s1/d and Cov(N_ij, N_ji) = eta s2/d. Without noise
`U^T U - V^T V` decays exactly as e^(-2 gamma tau).

`norm` is q1, `overlap` is m1, and `alignment` is the correlation of the scores that labels show,
m_eff/sqrt(q_eff Q_eff).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting
from attnlaw.theory.dynamics.potential import Potential, potential_of
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.target import Target

Matrices = NDArray[Any]  # complex in the theory, real if SGD starts from them
SIZES = ((16, 64), (32, 32))  # pairs of a dimension and a number of starts
STEP, NOISY_STEP = 0.5, 0.2  # a step in time, times the fastest rate: without noise and with it


@dataclass(frozen=True)
class Factors:
    """The factors U and V of several students (starts, d, m'), and their targets M* (starts, d, d)."""

    U: Matrices
    V: Matrices
    target: Matrices

    @property
    def numbers(self) -> Reals:
        """The order parameters q1, q2, m1, m2 of each student, as an array of shape (starts, 4)."""
        return order_parameters(self.U @ self.V.conj().swapaxes(1, 2), self.target)


@dataclass(frozen=True)
class ObservedPairs:
    """How labels combine the order parameters: weights a1 and a2, and the potential of the tied student."""

    a1: float
    a2: float
    potential: Potential

    def gains(self, numbers: Reals) -> tuple[float, float, float, float]:
        """Return the gains G1, G2, H1, H2 of the flow, given the order parameters q1, q2, m1, m2."""
        q, m, _ = self.observed_numbers(numbers)
        (G, H), total = self.potential.gains(q, m), self.a1 + self.a2
        return G * self.a1 / total, G * self.a2 / total, H * self.a1 / total, H * self.a2 / total

    def observed_numbers(self, numbers: Reals) -> tuple[Any, Any, float]:
        """Return the order parameters that labels show (q_eff, m_eff, Q_eff), given q1, q2, m1 and m2."""
        total = self.a1 + self.a2
        q = (self.a1 * numbers[..., 0] + self.a2 * numbers[..., 1]) / total
        m = (self.a1 * numbers[..., 2] + self.a2 * numbers[..., 3]) / total
        return q, m, self.a1 / total


def observed_pairs(problem: Problem) -> ObservedPairs:
    """Return the weights of q1 and q2 in the labels, and the potential, or raise a `BadSetting`."""
    if problem.noise > 0:
        raise BadSetting("noise", "expected 0 with {attention} untied", problem.noise)
    target = problem.target
    others = {
        "target_spike": target.spikes,
        "target_exponent": target.exponent,
        "target_eigenvalues": target.eigenvalues,
    }
    for name, given in others.items():
        if given:
            rule = (
                "needs {attention} tied; with untied attention, only targets with a {target_rank} "
                "have a theory"
            )
            raise BadSetting(name, rule)
    if problem.output == "softmax" and problem.tokens > 2:
        raise BadSetting("tokens", "expected 2 with {output} softmax and {attention} untied", problem.tokens)
    a1 = {"linear": float(problem.tokens), "softmax": 2.0}.get(problem.output, 1.0)
    Q = a1 / (a1 + 1.0)
    seen = replace(problem, attention="tied", target=Target.discrete([math.sqrt(Q)]))
    return ObservedPairs(a1, 1.0, potential_of(seen))


def draw(
    problem: Problem, schedule: Schedule, size: int, count: int, rng: np.random.Generator, real: bool = False
) -> Factors:
    """Draw `count` Gaussian starts and targets of dimension `size`, and rescale them to the exact moments."""

    def normal(*shape: int) -> Matrices:
        return rng.standard_normal(shape) if real else _normal(shape, rng)

    rank = max(round((problem.target.rank_ratio or 1.0) * size), 1)
    target = _targets(normal(count, size, rank), normal(count, size, rank))
    if schedule.width == math.inf:  # wide factors: U U^T and V V^T are multiples of I, and U V^T = 0
        U, V = (np.tile(np.eye(size, 2 * size, at), (count, 1, 1)) for at in (0, size))
    else:
        wide = max(round(schedule.width * size), 1)
        U, V = normal(count, size, wide), normal(count, size, wide)
        V = _project_out(V, (U, target.conj().swapaxes(1, 2) @ U, target @ U))
    key = schedule.scale if schedule.scale_key is None else schedule.scale_key
    return Factors(_scale_factor(U, schedule.scale), _scale_factor(V, key), target)


def _normal(shape: tuple[int, ...], rng: np.random.Generator) -> Matrices:
    return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape))


def _scale_factor(factor: Matrices, scale: float) -> Matrices:
    """Return the factor U, rescaled so that `Tr U U^H/d` equals `scale`."""
    square = np.einsum("kij,kij->k", factor, factor.conj()).real / factor.shape[1]
    return np.asarray(factor * np.sqrt(scale / square)[:, None, None])


def _project_out(V: Matrices, others: tuple[Matrices, ...]) -> Matrices:
    """Return V without its components along other matrices, for each start separately."""
    flat = np.stack([other.reshape(len(V), -1) for other in others], axis=2)
    basis = np.linalg.qr(flat)[0]
    vectors = V.reshape(len(V), -1, 1)
    return np.asarray((vectors - basis @ (basis.conj().swapaxes(1, 2) @ vectors)).reshape(V.shape))


def _targets(query: Matrices, key: Matrices) -> Matrices:
    """Return targets `W_Q W_K^H` with matched moments: Tr M* = Tr M*^2 = 0 and Tr M* M*^H/d = 1."""
    for _ in range(6):
        key = _project_out(key, (query,))
        M = query @ key.conj().swapaxes(1, 2)
        moved = M @ query
        off = np.einsum("kij,kji->k", M, M) / (2 * np.einsum("kij,kij->k", moved, moved.conj()).real)
        key = key - off.conj()[:, None, None] * moved
    return _scale_factor(query @ _project_out(key, (query,)).conj().swapaxes(1, 2), 1.0)


def order_parameters(M: Matrices, target: Matrices) -> Reals:
    """Return the order parameters q1, q2, m1, m2 of each matrix M, as an array of shape (starts, 4)."""
    pairs = (
        ("kij,kij->k", M.conj()),
        ("kij,kji->k", M),
        ("kij,kij->k", target.conj()),
        ("kij,kji->k", target),
    )
    return np.asarray(
        np.stack([np.einsum(rule, M, other).real for rule, other in pairs], axis=1) / M.shape[1]
    )


def states(
    observed: ObservedPairs, start: Factors, schedule: Schedule, tokens: int, rng: np.random.Generator | None
) -> Iterator[Factors]:
    """Yield the factors of all students at each time, by Runge-Kutta steps between half steps of noise."""
    U, V, target = start.U, start.V, start.target
    adjoint = target.conj().swapaxes(1, 2)

    def slope(U: Matrices, V: Matrices, gains: tuple[float, ...]) -> tuple[Matrices, Matrices]:
        G1, G2, H1, H2 = gains
        M = U @ V.conj().swapaxes(1, 2)
        K = 2 * (G1 * M + G2 * M.conj().swapaxes(1, 2) + H1 * target + H2 * adjoint)
        return -(K @ V) - schedule.decay * U, -(K.conj().swapaxes(1, 2) @ U) - schedule.decay * V

    def add_noise(U: Matrices, V: Matrices, h: float) -> tuple[Matrices, Matrices]:
        if rng is None:
            return U, V
        mean = Factors(U, V, target).numbers.mean(axis=0)
        N = _noise(mean, schedule.learning_rate * h, tokens, U.shape, rng)
        return U + N @ V, V + N.conj().swapaxes(1, 2) @ U

    now, fine = 0.0, STEP if rng is None else NOISY_STEP
    yield start
    for time in schedule.times[1:]:
        while now < time * (1 - 1e-12):
            mean = Factors(U, V, target).numbers.mean(axis=0)
            gains = observed.gains(mean)
            rate = 4 * sum(map(abs, gains)) * max(1.0, math.sqrt(mean[0]), schedule.scale) + schedule.decay
            h = min(fine / rate, time - now)
            # With all the noise after the drift, the error in q1 would be 40%, not 2%.
            U, V = add_noise(U, V, h / 2)
            k1 = slope(U, V, gains)
            k2 = slope(U + h / 2 * k1[0], V + h / 2 * k1[1], gains)
            k3 = slope(U + h / 2 * k2[0], V + h / 2 * k2[1], gains)
            k4 = slope(U + h * k3[0], V + h * k3[1], gains)
            U = U + h / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0])
            V = V + h / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])
            U, V = add_noise(U, V, h / 2)
            now += h
        yield Factors(U, V, target)


def path(
    observed: ObservedPairs, start: Factors, schedule: Schedule, tokens: int, rng: np.random.Generator | None
) -> Reals:
    """Return the order parameters q1, q2, m1, m2 of each student over time, of shape (starts, times, 4)."""
    return np.stack([factors.numbers for factors in states(observed, start, schedule, tokens, rng)], axis=1)


def _noise(
    mean: Reals, strength: float, tokens: int, shape: tuple[int, ...], rng: np.random.Generator
) -> Matrices:
    """Draw the gradient noise N of a step, with the opposite sign in the second half of the starts.

    For the linear output `s1 = 4 (T^2 D1 + T D2)` and `s2 = 4 (T D1 + T^2 D2)`. D1 and D2 are the order
    parameters q1 and q2 of M - M*. Then `N = a X + b X^H` with `a +- b = sqrt(s1 +- s2)` and a normal X.
    """
    q1, q2, m1, m2 = mean
    D1, D2, T = q1 - 2 * m1 + 1, q2 - 2 * m2, tokens
    s1, s2 = 4 * (T * T * D1 + T * D2), 4 * (T * D1 + T * T * D2)
    plus, minus = math.sqrt(max(s1 + s2, 0.0)), math.sqrt(max(s1 - s2, 0.0))
    count, d, _ = shape
    X = _normal((count // 2, d, d), rng) * math.sqrt(strength / (2 * d))
    N = 0.5 * (plus + minus) * X + 0.5 * (plus - minus) * X.conj().swapaxes(1, 2)
    return np.concatenate([N, -N])


def check(problem: Problem, schedule: Schedule) -> None:
    """Raise an `InputError` if attnlaw has no theory of untied factors for a problem with this schedule."""
    observed_pairs(problem)
    if schedule.learning_rate > 0 and problem.output != "linear":
        raise BadSetting(
            "learning_rate", "expected 0, or {output} linear, with {attention} untied", schedule.learning_rate
        )


def solve(problem: Problem, schedule: Schedule) -> dict[str, Any]:
    """Return the trajectory of an untied student as arrays. The keys are the field names of `Trajectory`."""
    observed, means = observed_pairs(problem), []
    for size, count in SIZES:
        rng = np.random.default_rng(size)
        start = draw(problem, schedule, size, count, rng)
        if schedule.learning_rate == 0:
            paths = path(observed, start, schedule, problem.tokens, None)
        else:
            twice = Factors(*(np.concatenate([part, part]) for part in (start.U, start.V, start.target)))
            both = path(observed, twice, schedule, problem.tokens, rng)
            paths = 0.5 * (both[:count] + both[count:])
        means.append(paths)
    return _columns(observed, *means)


def _columns(observed: ObservedPairs, small: Reals, large: Reals) -> dict[str, Any]:
    """Extrapolate the order parameters of both sizes in 1/d^2, and return the arrays of a trajectory."""
    ratio = (SIZES[1][0] / SIZES[0][0]) ** 2
    share = ratio / (ratio - 1)
    value = share * large.mean(axis=0) - (share - 1) * small.mean(axis=0)
    middle = untied_arrays(observed, value)
    # Each start shifts the mean a little. The errors follow from what every shift does to the quantities.
    squares = dict.fromkeys(middle, 0.0)
    for weight, runs in ((share, large), (share - 1, small)):
        shifted = (value + weight * (run - runs.mean(axis=0)) / len(runs) for run in runs)
        moved = [untied_arrays(observed, numbers) for numbers in shifted]
        for name in middle:
            parts = [arrays[name] - middle[name] for arrays in moved]
            squares[name] = squares[name] + np.sum(np.square(parts), axis=0) * len(runs) / (len(runs) - 1)
    gains = np.array([observed.gains(row) for row in value])
    return middle | {
        "trace": np.full(len(value), math.nan),
        "gains": np.stack([gains[:, :2].sum(axis=1), gains[:, 2:].sum(axis=1)], axis=1),
        "error": {name: np.sqrt(square) for name, square in squares.items()},
    }


def untied_arrays(observed: ObservedPairs, numbers: Reals) -> dict[str, Reals]:
    """Return the arrays of a trajectory, computed from the order parameters q1, q2, m1, m2 at each time."""
    q, m, Q = observed.observed_numbers(numbers)
    rho = m / np.sqrt(np.maximum(q, 1e-300) * Q)
    return {
        "norm": numbers[:, 0],
        "overlap": numbers[:, 2],
        "transposed_norm": numbers[:, 1],
        "transposed_overlap": numbers[:, 3],
        "estimation_error": numbers[:, 0] - 2 * numbers[:, 2] + 1.0,
        "prediction_error": np.array([observed.potential.value(*pair) for pair in zip(q, m, strict=True)]),
        "alignment": np.abs(rho) if observed.potential.even else rho,
    }
