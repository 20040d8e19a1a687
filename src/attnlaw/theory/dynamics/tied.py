"""The tied student S = W W^T in the limit of large dimension d, without any d x d matrix.

The gradient flow of the population loss is `dW/dtau = -4 (G S + H S*) W - gamma W` (arXiv 2609.03858). This
is a Riccati equation with scalar coefficients, so `S^-1 = e^(2 gamma tau) e^(a S*) S0^-1 e^(a S*) + F(S*)`.
The start is `S0 = s G G^T/m'` with a Gaussian G, d x m', and kappa = m'/d. The deterministic equivalent of S
is then that of a sample covariance matrix, with `theta` as its only unknown (derived for attnlaw, not in the
paper):

    da/dtau = 4 H,   dF_i/dtau = 8 G + (8 H x_i + 2 gamma) F_i,   e_i = exp(2 a x_i + 2 gamma tau)
    theta (1 - <F/(theta e + F)>/kappa) = 1/s       (kappa infinite, S0 = s I: theta = 1/s)
    u = theta e + F,  g = theta e/u:   m = <x/u>,  t = <1/u>,  q = <1/u^2> + c <g/u>
    c = (<g/u>/kappa) / (1 - 1/kappa + <2g - g^2>/kappa)

| letter | meaning |
|---|---|
| S* | the target |
| q, m, t | Tr S^2/d, Tr S S*/d and Tr S/d |
| x_i, p_i | nodes and weights of the target's law; < > = sum p_i |
| s, kappa | `scale`, `width` of the start |
| G, H | gains of the potential |
| tau, gamma | time, decay |

If G is negative (hermite outputs at small q), F is negative for a while; then the largest root theta
continues the one of the start.

At a finite learning rate eta the flow gains the term `dW += sqrt(eta sigma2) dX W`. X is a Hermitian
Brownian motion with its spectrum on [-2 sqrt(tau), 2 sqrt(tau)] (Ito calculus; derived for attnlaw, and SGD
agrees). No closed form is known. So complex matrices of size 24, whose bias is of order 1/d^2, run with
noise and without it from the same starts, each with +X and with -X. What the noise changes is added to the
closed solution:

    q(eta) = q_closed + mean over starts of (q with noise - q without)

Each step is the exact Riccati flow of constant gains between two half steps of noise,
`S <- (1 + Y) S (1 + Y)`:

    S <- D (S^-1 + f)^-1 D,   D = exp(-c h/2),   f = 8 G (1 - exp(-c h))/c,   c = 8 H x + 2 gamma
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.core.arrays import Complexes, Reals
from attnlaw.numerics.quadrature import gauss_legendre
from attnlaw.theory.dynamics.potential import Potential, potential_of
from attnlaw.theory.dynamics.quantities import average_over_potentials, trajectory_arrays
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.law import Law
from attnlaw.theory.laws.riccati import Riccati
from attnlaw.theory.learn.outliers import Outlier
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.target import Target

Parts = tuple[float, Reals, Reals, Reals]
Gains = Callable[[float, float], tuple[float, float]]
ANGLES, MANY_ANGLES = 96, 500
RELATIVE, ABSOLUTE = 1e-9, 1e-11  # tolerances of the integration
ROUND_OFF = 4e-16
SMALLEST = 1e-12  # a smaller |F| is below the tolerance of the integration
LARGEST = 1e250  # a mode with a larger F has vanished: 1/u = 0
SIZE, PAIRS = 24, 32  # matrices with noise: their dimension, and the number of pairs of starts
STEP = 0.3  # a step in time, times the fastest rate, 8 G times the largest eigenvalue
# A large eta needs smaller steps: at eta = 0.15, steps of 0.3 end at an E that is 7% too large. Beyond
# eta = 1/(4 t*) S* is not stable (the outcome says so), and finer steps would diverge.
NOISY = 0.015


def target_nodes(target: Target, angles: int = ANGLES) -> tuple[Reals, Reals]:
    """Return nodes and weights that represent the eigenvalue distribution of a target."""
    law = target.law
    u, w = gauss_legendre(angles)
    points, weights = [place for place, _ in law.atoms], [weight for _, weight in law.atoms]
    for piece in law.pieces:
        x, slope = piece.at(np.pi * u)
        points.extend(x)
        weights.extend(np.pi * w * slope * law.density(x))
    return np.array(points), np.array(weights)


@dataclass(frozen=True)
class TiedStart:
    """The nodes x and weights p of the target, and the scale s and width kappa of the start."""

    x: Reals
    p: Reals
    scale: float
    width: float


@dataclass(frozen=True)
class TiedState:
    """The student at one time: e, F and theta of the module's formulas, and numbers computed from them."""

    log_e: Reals
    F: Reals
    log_theta: float
    q: float  # the norm, Tr S^2/d
    m: float  # the overlap with the target, Tr S S*/d
    t: float  # the trace, Tr S/d
    E: float  # the estimation error, Tr (S - S*)^2/d


def state_at(start: TiedStart, log_e: Reals, F: Reals, guess: float | None = None) -> TiedState:
    """Compute the norm, overlap, trace and error of a student from log e and F at the target's nodes."""
    x, p = start.x, start.p
    y, g, rest, inverse = (_positive if F.min() >= 0 else _signed)(start, log_e, F, guess)
    spread = 0.0
    if start.width < math.inf:
        mean = float(p @ (g * inverse))
        # This is kappa - 1 + <2g - g^2>, by the equation of theta, so that small shares keep their digits.
        share = start.width * math.exp(-y) / start.scale + float(p @ (g * rest))
        spread = mean * mean / share if share > 0 else 0.0
    q = float(p @ inverse**2) + spread
    m, t = float(p @ (x * inverse)), float(p @ inverse)
    # <(1/u - x)^2> + c <g/u> keeps its digits near the target, where q - 2m + Q* would lose them.
    return TiedState(log_e, F, y, q, m, t, float(p @ (inverse - x) ** 2) + spread)


def _positive(start: TiedStart, log_e: Reals, F: Reals, guess: float | None) -> Parts:
    """Return log theta, g, 1 - g and 1/u, if no F is negative; theta e and F span hundreds of decades."""
    # Late in time theta e and F span hundreds of orders of magnitude, so all of this uses logarithms.
    with np.errstate(divide="ignore"):
        log_F = np.log(F)
    y = log_theta(start, log_e - log_F, guess)
    inverse = np.exp(-np.logaddexp(y + log_e, log_F))
    return y, scipy.special.expit(y + log_e - log_F), scipy.special.expit(log_F - log_e - y), inverse


def _signed(start: TiedStart, log_e: Reals, F: Reals, guess: float | None) -> Parts:
    """Return log theta, g, 1 - g and 1/u, where theta is the largest root of its equation."""
    e, p, least = np.exp(log_e), start.p, 1 / start.scale
    # Newton's method finds the largest root, because it starts above it.
    theta = least if start.width == math.inf else least + max(float(p @ (F / e)), 0.0) / start.width
    for _ in range(100 if start.width < math.inf else 0):
        part = F / (theta * e + F)
        value = theta * (1 - float(p @ part) / start.width) - least
        step = value / (1 - float(p @ part**2) / start.width)
        theta -= step
        if abs(step) <= 1e-14 * theta:
            break
    u = theta * e + F
    return math.log(theta), theta * e / u, F / u, 1 / u


def log_theta(start: TiedStart, log_ratio: Reals, guess: float | None = None) -> float:
    """Return the logarithm of theta, which solves the module's equation, by Newton's method."""
    least = -math.log(start.scale)
    if start.width == math.inf:
        return least
    kappa, p = start.width, start.p
    # The left side increases in y and is negative at theta = 1/s, so the root has a bracket.
    low, high, step = least, math.inf, 1.0
    y = least if guess is None else max(guess, least)
    for _ in range(200):
        g = scipy.special.expit(y + log_ratio)
        rest = kappa * math.exp(least - y)
        mass = float(p @ g)
        value = mass + (kappa - 1) - rest
        if abs(value) <= ROUND_OFF * (mass + abs(kappa - 1)):
            return y
        if value > 0:
            high = y
        else:
            low = y
        slope = float(p @ (g * (1 - g))) + rest
        new = y - value / slope if slope > 0 else math.nan
        if not low < new < high:
            new = 0.5 * (low + high) if high < math.inf else low + step
            step *= 2
        if abs(new - y) <= 1e-13 * max(1.0, abs(y)) or high - low <= 1e-13 * max(1.0, abs(y)):
            return new
        y = new
    return y


def flow(start: TiedStart, gains: Gains, decay: float, times: Reals) -> list[TiedState]:
    """Integrate the gradient flow, and return the state at each time."""
    x, guess = start.x, -math.log(start.scale)

    def state(y: Reals, tau: float) -> TiedState:
        nonlocal guess
        F = np.minimum(np.where(np.abs(y[1:]) < SMALLEST, 0.0, y[1:]), LARGEST)
        new_state = state_at(start, 2 * y[0] * x + 2 * decay * tau, F, guess)
        guess = new_state.log_theta
        return new_state

    def slope(y: Reals, tau: float) -> Reals:
        now = state(y, tau)
        G, H = gains(now.q, now.m)
        rate = 8 * G + (8 * H * x + 2 * decay) * now.F
        return np.concatenate([[4 * H], np.where(now.F < LARGEST, rate, 0.0)])

    # F is stiff in each mode separately, so LSODA needs only a diagonal Jacobian (ml = mu = 0).
    path = scipy.integrate.odeint(
        slope, np.zeros(x.size + 1), times, ml=0, mu=0, rtol=RELATIVE, atol=ABSOLUTE, mxstep=100_000
    )
    guess = -math.log(start.scale)
    return [state(y, float(tau)) for y, tau in zip(path, times, strict=True)]


def solve(problem: Problem, schedule: Schedule) -> dict[str, Any]:
    """Return the trajectory of a tied student as arrays. The keys are the field names of `Trajectory`."""
    start = start_of(problem, schedule)
    times = np.array(schedule.times)
    closed = average_over_potentials(
        problem, lambda potential: flow(start, potential.gains, schedule.decay, times)
    )
    return closed if schedule.learning_rate == 0 else add_noise_shifts(problem, schedule, closed)


def start_of(problem: Problem, schedule: Schedule, angles: int | None = None) -> TiedStart:
    """Return the start of a tied student. Single target eigenvalues (spikes) become nodes of weight 0."""
    narrow = schedule.width < problem.target.rank_fraction
    x, p = target_nodes(problem.target, angles or (MANY_ANGLES if narrow else ANGLES))
    spikes = problem.target.spikes
    return TiedStart(
        np.append(x, spikes), np.append(p, np.zeros(len(spikes))), schedule.scale, schedule.width
    )


def spectrum(problem: Problem, schedule: Schedule) -> Law:
    """Return the distribution of the student's eigenvalues at the last time."""
    return _law(problem, schedule)[0]


def outliers(problem: Problem, schedule: Schedule) -> tuple[Outlier, ...]:
    """Return the target eigenvalues that are outliers of the student at the last time, largest first."""
    law, state = _law(problem, schedule)
    visible_outliers = []
    for place, spike in enumerate(problem.target.spikes, start=state.F.size - len(problem.target.spikes)):
        e, F = math.exp(state.log_e[place]), float(state.F[place])
        if isinstance(law, Riccati):
            seen = law.outlier(e, F)
            visible_outliers += [] if seen is None else [Outlier(spike, *seen)]
        else:
            visible_outliers.append(Outlier(spike, 1 / (e / schedule.scale + F), 1.0))
    return tuple(sorted(visible_outliers, key=lambda outlier: -outlier.location))


def _law(problem: Problem, schedule: Schedule) -> tuple[Law, TiedState]:
    """Return the law of the eigenvalues and the state, both at the last time."""
    start = start_of(problem, schedule, MANY_ANGLES)
    times = np.array(schedule.times)
    state = flow(start, potential_of(problem).gains, schedule.decay, times)[-1]
    kept = start.p > 0
    p, e, F = start.p[kept], np.exp(state.log_e[kept]), state.F[kept]
    if schedule.width < math.inf:
        return Riccati(p, e, F, schedule.scale, schedule.width), state
    # An orthogonal start has the target's eigenvectors, so each node becomes one eigenvalue.
    return Discrete(tuple(1 / (e / schedule.scale + F)), tuple(p / p.sum())), state


def noise_shifts(problem: Problem, schedule: Schedule, seed: int = 0) -> Reals:
    """Return how gradient noise changes norm, overlap and trace, as an array of shape (PAIRS, times, 3)."""
    rng = np.random.default_rng(seed)
    target = representative_eigenvalues(problem.target, SIZE)
    potential = potential_of(replace(problem, target=Target.discrete(target.tolist())))
    start = draw_starts(schedule, PAIRS, SIZE, rng)
    quiet = _path(potential, target, start, schedule, None)
    noisy = _path(potential, target, np.concatenate([start, start]), schedule, rng)
    return np.asarray(0.5 * (noisy[:PAIRS] + noisy[PAIRS:]) - quiet)


def add_noise_shifts(problem: Problem, schedule: Schedule, noiseless: dict[str, Any]) -> dict[str, Any]:
    """Add the effect of gradient noise, and standard errors, to the arrays of a noiseless `Trajectory`."""
    added = noise_shifts(problem, schedule)
    mean = added.mean(axis=0)

    def at(shift: Reals) -> dict[str, Any]:
        q, m, t = (noiseless[name] + shift[:, i] for i, name in enumerate(("norm", "overlap", "trace")))
        E = noiseless["estimation_error"] + shift[:, 0] - 2 * shift[:, 1]
        return trajectory_arrays(problem, potential_of(problem), q, m, t, E)

    middle = at(mean)
    moved = [at(mean + (shift - mean) / len(added)) for shift in added]  # how each start shifts the mean
    factor = len(added) / (len(added) - 1)
    errors = {
        name: np.sqrt(factor * np.sum([(arrays[name] - middle[name]) ** 2 for arrays in moved], axis=0))
        for name in middle
        if name != "gains"
    }
    return middle | {"error": errors}


def representative_eigenvalues(target: Target, size: int) -> Reals:
    """Return `size` eigenvalues for a target: means over equal shares of its law, with the exact mean."""
    fine = 200
    levels = (np.arange(size * fine) + 0.5) / (size * fine)
    values = target.law.quantile(levels).reshape(size, fine).mean(axis=1)
    return np.asarray(values * (target.mean / values.mean()))


def draw_starts(schedule: Schedule, count: int, size: int, rng: np.random.Generator) -> Complexes:
    """Draw `count` random starts `s G G^H/m'`, where G is a complex Gaussian matrix of shape (size, m')."""
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
    """Return norm, overlap and trace at each time; noise is opposite in the second half of the matrices."""
    numbers, now = [_norm_overlap_trace(S, target)], 0.0
    eta = schedule.learning_rate
    step = min(STEP, NOISY / eta) if 0 < 4 * eta * float(target.mean()) <= 1 else STEP
    for time in schedule.times[1:]:
        while now < time * (1 - 1e-12):
            q, m, _ = _norm_overlap_trace(S, target).mean(axis=0)
            if not math.isfinite(q):  # the student has diverged, and does not return
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
    """Return norm, overlap and trace of each matrix, as an array of shape (matrices, 3)."""
    diagonal = np.einsum("kii->ki", S).real
    q = np.einsum("kij,kij->k", S, S.conj()).real
    return np.stack([q, diagonal @ target, diagonal.sum(axis=1)], axis=1) / target.size


def _add_noise(S: Complexes, size: float, rng: np.random.Generator) -> Complexes:
    """Return `(1 + Y) S (1 + Y)` for Y = size X, E |X_ij|^2 = 1/d; the second half of S gets -Y."""
    count, d = len(S) // 2, S.shape[1]
    A = rng.standard_normal((2, count, d, d)) * (0.5 / math.sqrt(d))
    Z = A[0] + 1j * A[1]
    Y = size * (Z + Z.conj().swapaxes(1, 2))
    factor = np.eye(d) + np.concatenate([Y, -Y])
    return np.asarray(factor @ S @ factor)


def riccati_step(S: NDArray[Any], x: Reals, G: float, H: float, decay: float, h: float) -> NDArray[Any]:
    """Return the matrices S after a time h of gradient flow with constant gains G and H."""
    c = (8 * H * x + 2 * decay) * h
    f = 8 * G * h * np.where(np.abs(c) > 1e-12, -np.expm1(-c) / np.where(c == 0, 1.0, c), 1.0)
    D = np.exp(-c / 2)
    moved = np.linalg.solve(np.eye(x.size) + S * f, S)
    moved = 0.5 * (moved + moved.conj().swapaxes(1, 2))
    return np.asarray(D[:, None] * moved * D)
