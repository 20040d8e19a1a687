"""Train ensembles on random samples, to compare with the theory of `evolution`.

Newton's method with a line search minimises a smooth loss. A loss with corners needs the method of
multipliers: Newton's method runs on its Moreau envelope (`Loss.pull` at V > 0), which is shifted until scores
and their proximal points agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.core.settings import check_value
from attnlaw.numerics.draws import generators, mean_of
from attnlaw.numerics.prox import Loss
from attnlaw.theory.regression.ensemble import LOSSES, Ensemble, apply_activation, feature_moments

TEST_SAMPLES = 1000
ENVELOPE = 0.1  # V of the envelope of a loss with corners
TOLERANCE = 1e-7
MOST_STEPS = 100
NO_MINIMUM = (
    "ensemble: the loss of a learner has no minimum, because the classes can be separated; "
    "choose a larger ridge"
)


@dataclass(frozen=True)
class MeasuredEnsemble:
    """Measured overlaps and errors of an ensemble: means over repetitions, with standard errors."""

    m: Estimate
    q: Estimate
    q1: Estimate | None
    mean_error: Estimate
    vote_error: Estimate | None
    seeds: int


def simulate_ensemble(
    problem: Ensemble, learners: int = 2, seeds: int = 8, seed: int = 0
) -> MeasuredEnsemble:
    """Train an ensemble on random samples, and measure its overlaps and errors.

    The overlaps m and q are means over the learners, and q1 is a mean over pairs of learners. They are
    computed from the weights, with Gaussian features that have the same moments. Errors are measured on new
    samples.
    """
    K = check_value("learners", learners, int, minimum=1)
    classifies = LOSSES[problem.loss].classifies
    draws = [_draw(problem, K, rng) for rng in generators(seed, seeds)]
    m, q, q1, error, vote = (mean_of(column) for column in zip(*draws, strict=True))
    return MeasuredEnsemble(m, q, q1 if K > 1 else None, error, vote if classifies else None, seeds)


def _draw(problem: Ensemble, learners: int, rng: np.random.Generator) -> tuple[float, ...]:
    d, p = problem.inputs, problem.features
    choice = LOSSES[problem.loss]
    theta = rng.standard_normal(d)
    theta *= np.sqrt(d) / np.linalg.norm(theta)
    x = rng.standard_normal((problem.samples, d))
    nu = x @ theta / np.sqrt(d)
    y = np.sign(nu) if choice.classifies else nu + np.sqrt(problem.noise) * rng.standard_normal(nu.size)
    test_inputs = rng.standard_normal((TEST_SAMPLES, d))
    truth = test_inputs @ theta / np.sqrt(d)
    linear, rest = feature_moments(problem.activation)
    scores, reach, q = [], [], []
    for _ in range(learners):
        F = rng.standard_normal((p, d)) / np.sqrt(d)
        inputs = apply_activation(problem.activation, x @ F.T) / np.sqrt(p)
        w = minimise(inputs, y, choice.loss, problem.ridge)
        scores.append(apply_activation(problem.activation, test_inputs @ F.T) @ w / np.sqrt(p))
        reach.append(linear * F.T @ w / np.sqrt(p))
        q.append(float(reach[-1] @ reach[-1] + rest * w @ w / p))
    every = np.array(reach)
    together = every.sum(axis=0)
    pairs = float(together @ together - (every**2).sum()) / max(1, learners * (learners - 1))
    mean = np.mean(scores, axis=0)
    votes = np.sign(np.sign(scores).sum(axis=0)) * np.sign(truth)
    wrong = float(np.mean(np.sign(mean) != np.sign(truth)))
    error = wrong if choice.classifies else float(np.mean((truth - mean) ** 2))
    m = float(np.mean(every @ theta / np.sqrt(d)))
    return m, float(np.mean(q)), pairs, error, float(np.mean(0.5 * (1 - votes)))


def minimise(A: Reals, y: Reals, loss: Loss, ridge: float) -> Reals:
    """Return the p weights w that minimise `sum_i l(y_i, A_i w) + (ridge/2) |w|^2`, where A is n x p."""
    V = 0.0 if loss.smooth else ENVELOPE
    w, shift = np.zeros(A.shape[1]), np.zeros(A.shape[0])
    for _ in range(MOST_STEPS):
        w = _newton(A, y, loss, ridge, V, w, shift)
        if ridge == 0 and loss.signs and float((y * (A @ w)).min()) > 0:
            break
        if loss.smooth:
            return w
        omega = A @ w + shift
        g = loss.pull(y, omega, V)[0]
        missed, shift = float(np.abs(shift + V * g).max()), -V * g
        if missed < TOLERANCE:
            return w
    raise InputError(NO_MINIMUM)


def _newton(A: Reals, y: Reals, loss: Loss, ridge: float, V: float, w: Reals, shift: Reals) -> Reals:
    """Minimise the loss of the scores A w + shift (if V > 0, its Moreau envelope) by Newton's method."""
    value, omega = _value(A, y, loss, ridge, V, w, shift), A @ w + shift
    for _ in range(MOST_STEPS):
        g, bend = loss.pull(y, omega, V)
        slope = ridge * w - A.T @ g
        if float(np.abs(slope).max()) < TOLERANCE:
            return w
        # A tiny ridge keeps the step finite if the loss has no curvature at any sample.
        move = -np.linalg.solve((A.T * bend) @ A + (ridge + 1e-12) * np.eye(w.size), slope)
        # A difference below round-off is not a reason to halve a step.
        size, fall, noise = 1.0, float(slope @ move), 1e-14 * abs(value)
        while (
            new := _value(A, y, loss, ridge, V, w + size * move, shift)
        ) > value + 1e-4 * size * fall + noise:
            size /= 2
        w, value = w + size * move, new
        omega = A @ w + shift
    raise InputError(NO_MINIMUM)


def _value(A: Reals, y: Reals, loss: Loss, ridge: float, V: float, w: Reals, shift: Reals) -> float:
    omega = A @ w + shift
    z = omega if V == 0 else loss.proximal(y, omega, V)
    envelope = 0.0 if V == 0 else float((z - omega) @ (z - omega)) / (2 * V)
    return float(loss.value(y, z).sum()) + envelope + 0.5 * ridge * float(w @ w)
