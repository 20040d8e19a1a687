"""Tied students of SGD at a finite learning rate: small matrices that carry the noise of the gradient.

At a fixed eta the flow gains a term, `dW += sqrt(eta sigma2) dX W`, X a Hermitian Brownian motion with
spectrum on [-2 sqrt(tau), 2 sqrt(tau)] (Ito; derived for this project, SGD agrees). No closed form is known.
So matrices of size 24 with complex starts, whose bias is of order 1/d^2, are run with noise and without, from
the same starts, each with +X and with -X; what the noise adds is put upon the closed solution:

    q(eta) = q_closed + mean over starts of (q with noise - q without)

Each step is the exact Riccati flow of constant gains between two halves of the noise,
`S <- (1 + Y) S (1 + Y)`:

    S <- D (S^-1 + f)^-1 D,   D = exp(-c h/2),   f = 8 G (1 - exp(-c h))/c,   c = 8 H x + 2 gamma

Gains and sigma2 are those of the means over starts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.theory.dynamics.potential import Potential, potential_of
from attnlaw.theory.dynamics.quantities import trajectory_arrays
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.target import Target

Reals = NDArray[np.float64]
Complexes = NDArray[np.complex128]
SIZE, PAIRS = 24, 32
STEP = 0.3  # over the fastest rate, 8 G times the largest eigenvalue
# Less for a large eta: at 0.15 steps of 0.3 end at an E that is 7% too large. Not beyond 1/(4 t*), where S*
# is not stable (the outcome says so) and finer steps run away.
NOISY = 0.015


def noise_shifts(problem: Problem, schedule: Schedule, seed: int = 0) -> Reals:
    """What noise adds to q, m and t at each time: shape (PAIRS, times, 3)."""
    rng = np.random.default_rng(seed)
    target = representative_eigenvalues(problem.target, SIZE)
    potential = potential_of(replace(problem, target=Target.discrete(target.tolist())))
    start = draw_starts(schedule, PAIRS, SIZE, rng)
    quiet = _path(potential, target, start, schedule, None)
    noisy = _path(potential, target, np.concatenate([start, start]), schedule, rng)
    return np.asarray(0.5 * (noisy[:PAIRS] + noisy[PAIRS:]) - quiet)


def add_noise_shifts(problem: Problem, schedule: Schedule, noiseless: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a `Trajectory`: those of the flow with what noise adds, and standard errors."""
    added = noise_shifts(problem, schedule)
    mean = added.mean(axis=0)

    def at(shift: Reals) -> dict[str, Any]:
        q, m, t = (noiseless[name] + shift[:, i] for i, name in enumerate(("norm", "overlap", "trace")))
        E = noiseless["estimation_error"] + shift[:, 0] - 2 * shift[:, 1]
        return trajectory_arrays(problem, potential_of(problem), q, m, t, E)

    middle = at(mean)
    moved = [at(mean + (shift - mean) / len(added)) for shift in added]  # what each start does to the mean
    factor = len(added) / (len(added) - 1)
    errors = {
        name: np.sqrt(factor * np.sum([(arrays[name] - middle[name]) ** 2 for arrays in moved], axis=0))
        for name in middle
        if name != "gains"
    }
    return middle | {"error": errors}


def representative_eigenvalues(target: Target, size: int) -> Reals:
    """A few eigenvalues that stand for a law, each the mean of its share: the trace is the law's.

    >>> float(representative_eigenvalues(Target.marchenko_pastur(0.25), 8).mean().round(6))
    0.5
    """
    fine = 200
    levels = (np.arange(size * fine) + 0.5) / (size * fine)
    values = target.law.quantile(levels).reshape(size, fine).mean(axis=1)
    return np.asarray(values * (target.mean / values.mean()))


def draw_starts(schedule: Schedule, count: int, size: int, rng: np.random.Generator) -> Complexes:
    """`s G G^H/m'` for `count` complex Gaussian G of size x m', traces matched; s I at infinite width."""
    if schedule.width == math.inf:
        return np.tile(schedule.scale * np.eye(size, dtype=complex), (count, 1, 1))
    wide = max(round(schedule.width * size), 1)
    G = rng.standard_normal((2, count, size, wide))
    factors = G[0] + 1j * G[1]
    S = factors @ factors.conj().swapaxes(1, 2)
    traces = np.einsum("kii->k", S).real
    return np.asarray(S * (schedule.scale * size / traces)[:, None, None])


def _path(
    potential: Potential, target: Reals, S: Complexes, schedule: Schedule, rng: np.random.Generator | None
) -> Reals:
    """q, m and t of each matrix at each time; the second half has the noise of the first, negative."""
    numbers, now = [_norm_overlap_trace(S, target)], 0.0
    eta = schedule.learning_rate
    step = min(STEP, NOISY / eta) if 0 < 4 * eta * float(target.mean()) <= 1 else STEP
    for time in schedule.times[1:]:
        while now < time * (1 - 1e-12):
            q, m, _ = _norm_overlap_trace(S, target).mean(axis=0)
            if not math.isfinite(q):  # it has run away, and stays there
                S = np.full_like(S, math.nan)
                break
            G, H = potential.gains(q, m)
            rate = 8 * max(abs(G), abs(H)) * max(float(target[-1]), math.sqrt(q)) + 2 * schedule.decay
            h = min(step / rate, time - now)
            if rng is None:
                S = riccati_step(S, target, G, H, schedule.decay, h)
            else:
                kick = math.sqrt(max(schedule.learning_rate * potential.noise_power(q, m), 0.0) * h / 2)
                S = _add_noise(
                    riccati_step(_add_noise(S, kick, rng), target, G, H, schedule.decay, h), kick, rng
                )
            now += h
        numbers.append(_norm_overlap_trace(S, target))
    return np.stack(numbers, axis=1)


def _norm_overlap_trace(S: Complexes, target: Reals) -> Reals:
    """q, m and t of each matrix, shape (matrices, 3)."""
    diagonal = np.einsum("kii->ki", S).real
    q = np.einsum("kij,kij->k", S, S.conj()).real
    return np.stack([q, diagonal @ target, diagonal.sum(axis=1)], axis=1) / target.size


def _add_noise(S: Complexes, size: float, rng: np.random.Generator) -> Complexes:
    """`(1 + Y) S (1 + Y)`, Y = size X, X Hermitian with E |X_ij|^2 = 1/d; the second half gets -Y."""
    count, d = len(S) // 2, S.shape[1]
    A = rng.standard_normal((2, count, d, d)) * (0.5 / math.sqrt(d))
    Z = A[0] + 1j * A[1]
    Y = size * (Z + Z.conj().swapaxes(1, 2))
    factor = np.eye(d) + np.concatenate([Y, -Y])
    return np.asarray(factor @ S @ factor)


def riccati_step(S: NDArray[Any], x: Reals, G: float, H: float, decay: float, h: float) -> NDArray[Any]:
    """The flow of constant gains over a time h."""
    c = (8 * H * x + 2 * decay) * h
    f = 8 * G * h * np.where(np.abs(c) > 1e-12, -np.expm1(-c) / np.where(c == 0, 1.0, c), 1.0)
    D = np.exp(-c / 2)
    moved = np.linalg.solve(np.eye(x.size) + S * f, S)
    moved = 0.5 * (moved + moved.conj().swapaxes(1, 2))
    return np.asarray(D[:, None] * moved * D)
