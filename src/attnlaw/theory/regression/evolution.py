"""State evolution of an ensemble: overlaps of its learners, and the errors of their mean and of their vote.

The scores omega_k of the learners and nu of the teacher are jointly Gaussian with Var nu = 1, Var omega_k =
q, Cov(omega_k, omega_l) = q1 and Cov(omega_k, nu) = m (arXiv 2201.13383).

| here | meaning |
|---|---|
| n, p, d | number of samples, of features of a learner, and of inputs |
| a, c | n/p, p/d |
| o(s) | kappa_1^2 s + kappa_*^2, variance of features along an eigenvector of F F^T/d (see `ensemble`) |
| D | ridge + Vh o |
| g | (prox - omega)/V, the pull of a sample (see `numerics.prox`) |
| V | response of a score to its label |
| zeta | part of the scores that all learners share |

The equations (arXiv 2201.13383 for general convex losses; the form for independent random features is ours)
are

    V = int o/D        m = mh t,  t = kappa_1^2 c int s/D
    q = mh^2 kappa_1^2 c int s o/D^2 + qh int o^2/D^2
    Vh = -a E dg/domega        mh = a E dg/dnu        qh = a E g^2
    q1 = m^2 + (d/p) (m/mh)^2 a E g_k g_l

For the square loss Vh = mh = a/(1 + V), and with noise Delta everything except V is explicit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting
from attnlaw.core.settings import check_value
from attnlaw.numerics.fixed_point import accelerated_iteration, bracketed_roots
from attnlaw.numerics.prox import Loss
from attnlaw.numerics.quadrature import panels
from attnlaw.theory.regression.ensemble import LOSSES, Ensemble, feature_moments, feature_spectrum

FAR = 9.0  # standard deviations; the mass beyond is below the precision of float64
NODES = 12


def mean_sign_error(m: float, q: float, q1: float, learners: float) -> float:
    """Return how often the mean of K learners has the wrong sign."""
    return math.acos(m / math.sqrt(q1 + (q - q1) / learners)) / math.pi


def vote_error(m: float, q: float, q1: float, learners: float) -> float:
    """Return how often a majority of K learners has the wrong sign. A tie counts one half."""
    if learners == math.inf:
        return mean_sign_error(m, q, q1, learners)
    # A tie counts one half, so an even number of learners has the same error as one learner fewer.
    odd = int(learners) - (learners % 2 == 0)
    zeta, weights = gaussian_nodes()
    positive = scipy.special.ndtr(math.sqrt(q1 / (q - q1)) * zeta)
    elected = scipy.special.bdtrc(odd // 2, odd, positive)
    truth = teacher_given(m, q1, zeta)
    return float(weights @ (truth * (1 - elected) + (1 - truth) * elected))


def teacher_given(m: float, q1: float, zeta: Reals) -> Reals:
    """Return the probability that the teacher's label is positive, given the learners' shared part zeta."""
    rest = max(1 - m * m / q1, np.finfo(float).tiny)
    return np.asarray(scipy.special.ndtr(m / math.sqrt(q1 * rest) * zeta))


def gaussian_nodes() -> tuple[Reals, Reals]:
    """Return nodes and weights for integrals over a standard normal, with more nodes near 0."""
    graded = FAR * 0.5 ** np.arange(30)
    z, steps = panels(np.concatenate([-graded, graded, [0.0], np.arange(-FAR, FAR)]), NODES)
    return z, steps * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


TOLERANCE = 1e-10
DAMPED_STEPS = 25
NO_MINIMUM = (
    "but no minimum was found: if the classes can be separated, the loss has none without a "
    "ridge; choose a larger ridge"
)


@dataclass(frozen=True)
class EnsemblePrediction:
    """The predicted overlaps of the learners of an ensemble, and how scores respond to labels (V).

    Args:
        m: overlap (covariance of the scores) of a learner with the teacher.
        q: overlap of a learner with itself.
        q1: overlap of two different learners.
    """

    problem: Ensemble
    m: float
    q: float
    q1: float
    V: float
    residual: float

    def error(self, learners: float = 1) -> float:
        """Return the error of the mean of K learners on noise-free labels. K may be infinite.

        It is the mean squared error for the square loss, and the share of wrong signs for other losses.
        """
        K = _check_learners(learners)
        if LOSSES[self.problem.loss].classifies:
            return mean_sign_error(self.m, self.q, self.q1, K)
        return 1 - 2 * self.m + self.q1 + (self.q - self.q1) / K

    def vote_error(self, learners: float = 1) -> float | None:
        """Return how often a majority of K learners has the wrong sign, or None for the square loss."""
        if not LOSSES[self.problem.loss].classifies:
            return None
        return vote_error(self.m, self.q, self.q1, _check_learners(learners))


def ensemble_evolution(problem: Ensemble) -> EnsemblePrediction:
    """Compute the overlaps of the learners in an ensemble, for large n, p and d at fixed ratios.

    >>> problem = Ensemble(samples=600, features=450, inputs=300, ridge=0.01, noise=0.2)
    >>> prediction = ensemble_evolution(problem)
    >>> round(prediction.error(1), 4), round(prediction.error(4), 5)
    (1.7052, 0.60753)
    """
    return _classify(problem) if LOSSES[problem.loss].classifies else _ridge(problem)


@dataclass(frozen=True, eq=False)
class _Modes:
    """The eigenvalue law of the features: weights, o(s) and `seen` = kappa_1^2 c s at its points s."""

    weights: Reals
    o: Reals
    seen: Reals
    ridge: float

    @classmethod
    def of(cls, problem: Ensemble) -> _Modes:
        linear, rest = feature_moments(problem.activation)
        s, weights = feature_spectrum(problem.features, problem.inputs)
        ratio = problem.features / problem.inputs
        return cls(weights, linear**2 * s + rest, linear**2 * ratio * s, problem.ridge)

    def response(self, Vh: float) -> float:
        return float(self.weights @ (self.o / (self.ridge + Vh * self.o)))

    def overlaps(self, Vh: float, mh: float, qh: float) -> tuple[float, float]:
        """Return the overlap m of a learner with the teacher, and the overlap q with itself."""
        D = self.ridge + Vh * self.o
        m = mh * float(self.weights @ (self.seen / D))
        return m, float(self.weights @ (self.o * (mh**2 * self.seen + qh * self.o) / D**2))


def _ridge(problem: Ensemble) -> EnsemblePrediction:
    """Solve the state equations for the square loss."""
    modes, a = _Modes.of(problem), problem.samples / problem.features
    if problem.ridge == 0 and problem.samples <= problem.features:
        raise BadSetting(
            "ridge",
            "expected a number above 0, because many students fit the data if there are no more "
            "{samples} than {features}",
            0.0,
        )
    # ln V is between its value at Vh = a, at which every label counts, and that of the ridge alone.
    low = math.log(modes.response(a))
    high = math.log(modes.response(0.0)) if problem.ridge > 0 else low + 100.0

    def miss(logs: Reals, which: NDArray[np.intp]) -> Reals:
        return np.array([math.log(modes.response(a / (1 + math.exp(x)))) - x for x in logs])

    roots = bracketed_roots(miss, np.array([low]), np.array([high]), tolerance=1e-15)
    V = math.exp(float(roots.x[0]))
    Vh = a / (1 + V)
    m, A = modes.overlaps(Vh, Vh, 0.0)
    B = modes.overlaps(Vh, 0.0, a / (1 + V) ** 2)[1]
    noisy = 1 + problem.noise - 2 * m
    q = (A + B * noisy) / (1 - B)
    shared = problem.inputs / problem.samples
    q1 = m**2 * (1 + shared * noisy) / (1 - shared * m**2)
    return EnsemblePrediction(problem, m, q, q1, V, abs(float(roots.residual[0])))


def _classify(problem: Ensemble) -> EnsemblePrediction:
    """Solve the state equations for a loss of classification."""
    modes, a = _Modes.of(problem), problem.samples / problem.features
    loss = LOSSES[problem.loss].loss

    def update(x: Reals) -> Reals:
        m, q, V = _overlaps(x)
        Vh, mh, qh = _channel(loss, a, m, q, V)
        m, q = modes.overlaps(Vh, mh, qh)
        return np.array([math.atanh(m / math.sqrt(q)), math.log(q), math.log(modes.response(Vh))])

    x, residual = _find_fixed_point(update)
    if not residual < TOLERANCE:
        raise BadSetting("ridge", NO_MINIMUM, problem.ridge)
    m, q, V = _overlaps(x)
    mh = _channel(loss, a, m, q, V)[1]
    shared = problem.inputs / problem.features * (m / mh) ** 2 * a
    common = accelerated_iteration(
        lambda share: (m**2 + shared * _common_pull(loss, m, q, V, q * share)) / q,
        np.array([m**2 / q]),
        damping=0.0,
        tolerance=1e-13,
    )
    return EnsemblePrediction(problem, m, q, q * float(common.state[0]), V, max(residual, common.residual))


def _find_fixed_point(update: Callable[[Reals], Reals]) -> tuple[Reals, float]:
    """Return the fixed point and its residual. The residual is infinite if the iteration diverged."""
    x = np.array([0.5, 0.0, 0.0])
    try:
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            for _ in range(DAMPED_STEPS):
                x = 0.5 * (x + update(x))
            x = scipy.optimize.root(lambda x: update(x) - x, x, method="hybr", tol=1e-14).x
            return x, float(np.abs(update(x) - x).max())
    except (ValueError, ArithmeticError):
        return x, math.inf


def _overlaps(x: Reals) -> tuple[float, float, float]:
    q = math.exp(x[1])
    return math.tanh(x[0]) * math.sqrt(q), q, math.exp(x[2])


def _channel(loss: Loss, a: float, m: float, q: float, V: float) -> tuple[float, float, float]:
    """Return Vh, mh and qh, from label 1 alone: by symmetry both labels give the same values."""
    rest = math.sqrt(1 - m * m / q)
    deviation = math.sqrt(q)
    omega, steps = panels(deviation * _cuts(loss, V, deviation), NODES)
    density = steps * _normal(omega / deviation) / deviation
    g, bend = loss.pull(np.ones_like(omega), omega, V)
    slope = m * omega / (q * rest)
    # By symmetry both labels give the same values. Given label 1, omega has the density 2 phi Phi(slope).
    positive = 2 * density * scipy.special.ndtr(slope)
    mh = a * float((2 * density * _normal(slope)) @ g) / rest
    return a * float(positive @ bend), mh, a * float(positive @ g**2)


def _common_pull(loss: Loss, m: float, q: float, V: float, q1: Reals) -> Reals:
    """Return the mean E g_k g_l of the product of two learners' pulls."""
    common, individual = math.sqrt(q1[0]), math.sqrt(q - q1[0])
    deviation = math.sqrt(q)
    fine = np.arange(-FAR, FAR, individual / deviation)
    omega, steps = panels(deviation * np.append(_cuts(loss, V, deviation), fine), NODES)
    g = loss.pull(np.ones_like(omega), omega, V)[0] * steps / individual
    zeta, weights = gaussian_nodes()
    mean = _normal((omega - common * zeta[:, None]) / individual) @ g
    return np.array([2 * weights @ (teacher_given(m, q1[0], zeta) * mean**2)])


def _cuts(loss: Loss, V: float, deviation: float) -> Reals:
    """Return the points at which integrals over omega are split, in standard deviations."""
    graded = FAR * 0.5 ** np.arange(16)
    corners = np.clip(np.array(loss.corners(V)) / deviation, -FAR, FAR)
    return np.concatenate([-graded, graded, corners, np.arange(-FAR, FAR + 1)])


def _normal(z: Reals) -> Reals:
    return np.asarray(np.exp(-z * z / 2) / math.sqrt(2 * math.pi))


def _check_learners(learners: float) -> float:
    return float(check_value("learners", learners, float, minimum=1, allow_infinite=True))
