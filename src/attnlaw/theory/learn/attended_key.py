"""State evolution of untied factors that learn which of two keys a query attends to (not in a paper).

A sample is a query and two keys. `u = (h_1 - h_2)/sqrt(2)` has the variance Q of a score. The label is y = 1
with probability `sigma(c u*)`, `c = sqrt(2) beta`; soft labels are `y = sigma(c u*)` itself. The loss `l(u) =
log(1 + e^(c u)) - y c u` is convex, so no assumption on replicas is needed. With (omega, u*) of covariance
[[q, m], [m, Q*]], the proximal point p that solves `p - omega + V c (sigma(c p) - y) = 0`, `g = (p -
omega)/V` and `H = l''(p) = c^2 sigma (1 - sigma)`:

    Vhat = alpha E[H/(1 + V H)]        qhat = alpha E g^2
    mhat = alpha E[c s (g_1 - g_0)], s = sigma(c u*) (1 - sigma(c u*)), g_y the g of label y
           alpha E[c^2 s/(1 + V H)]    with soft labels

(`mhat = alpha E[g (u* - (m/q) omega)]/(Q* - m^2/q)`, integrated by parts). As for every convex loss of
factors (`attnlaw.theory.learn.softmax`), `a = sqrt(qhat)/mhat`, `b = lt/mhat`, `r = mhat/Vhat`, and the
trained matrix is `r (X - b)_+`. Averages are trapezoid sums. They converge geometrically, because the
integrands are analytic within `pi/(c sqrt(Q))` of the real axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.numerics.fixed_point import Iteration
from attnlaw.theory.laws.free_convolution import Truncated
from attnlaw.theory.learn.problem import Problem, ProblemBatch
from attnlaw.theory.learn.softmax import (
    ChannelAverages,
    SoftmaxPoint,
    Start,
    StudentUpdate,
    angle,
    fixed_point,
)

REACH = 8.5  # standard deviations: the rest has weight 2e-17
# Largest step in standard deviations, and in units of the distance of the poles over pi.
WIDEST, PER_POLE, MOST_NODES = 0.2, 0.4, 601
TOLERANCE, MOST_NEWTON, LEAST_NORM = 1e-10, 100, 1e-12


@dataclass(frozen=True)
class AttendedKey:
    """The averages that the equations of one problem need, computed on a grid of omega and u*."""

    problem: Problem

    @property
    def c(self) -> float:
        return float(np.sqrt(2.0) * self.problem.beta)

    @cached_property
    def _axis(self) -> tuple[Reals, Reals]:
        """The trapezoid nodes of a standard Gaussian, and their weights."""
        step = min(WIDEST, PER_POLE / (self.c * np.sqrt(self.problem.target.second_moment)))
        count = min(int(np.ceil(REACH / step)), (MOST_NODES - 1) // 2)
        z = np.linspace(-REACH, REACH, 2 * count + 1)
        weights = np.exp(-z * z / 2)
        return z, weights / weights.sum()

    def fields(self, E: float, theta: float) -> tuple[Reals, Reals]:
        """Return the grid of omega, and of u* for each omega, at an error E and an angle theta."""
        Q, z = self.problem.target.second_moment, self._axis[0]
        apart = np.sqrt(Q * E) * np.cos(theta)  # Q* - m
        q = max(Q - 2 * apart + E, LEAST_NORM * Q)
        omega = np.sqrt(q) * z[:, None]
        # Written without Q* - q, a difference of large numbers if the student is near the target.
        return omega, omega + (apart - E) / q * omega + np.sqrt(Q * E / q) * abs(np.sin(theta)) * z

    def mean(self, values: Reals) -> float:
        """Return the average of `values` over omega (first axis) and u* (second axis, perhaps of size 1)."""
        weights = self._axis[1]
        over = values[:, 0] if values.shape[1] == 1 else values @ weights
        return float(weights @ over)

    def average(self, E: float, theta: float, V: float) -> ChannelAverages:
        """Return the three averages in the module's equations (Vhat, qhat, mhat), and the training loss."""
        alpha, c, weights = self.problem.alpha, self.c, self._axis[1]
        omega, teacher = self.fields(E, theta)
        chosen = scipy.special.expit(c * teacher)
        slope = chosen * (1 - chosen)
        if self.problem.soft_labels:
            p = proximal(omega, chosen, V, c)
            H, g, loss = self._at(p, chosen)
            mhat = self.mean(c * c * slope / (1 + V * H))
            sums = np.array([self.mean(term) for term in (H / (1 + V * H), g * g, loss)])
        else:
            # p depends only on omega and on the key that was drawn.
            chosen, slope = (chosen @ weights)[:, None], (slope @ weights)[:, None]
            sums, mhat = np.zeros(3), 0.0
            for y, share, sign in ((1.0, chosen, 1.0), (0.0, 1 - chosen, -1.0)):
                p = proximal(omega, np.full_like(omega, y), V, c)
                H, g, loss = self._at(p, y)
                mhat += self.mean(sign * c * slope * g)
                sums += [self.mean(share * term) for term in (H / (1 + V * H), g * g, loss)]
        Vhat, qhat, train = sums.tolist()
        return ChannelAverages(alpha * Vhat, alpha * qhat, alpha * mhat, train)

    @property
    def curvature(self) -> float:
        """The mean second derivative of the loss if the student equals the target."""
        z, weights = self._axis
        chosen = scipy.special.expit(self.c * np.sqrt(self.problem.target.second_moment) * z)
        return self.c**2 * float(weights @ (chosen * (1 - chosen)))

    def unlearned(self) -> SoftmaxPoint:
        """Return the point S = 0. It is the solution if the weight decay is too strong to learn anything."""
        problem, c, Q = self.problem, self.c, self.problem.target.second_moment
        power = 0.25 - self.curvature / c**2 if problem.soft_labels else 0.25
        mhat = problem.alpha * self.curvature
        a, b = float(np.sqrt(problem.alpha * power)) * c / mhat, problem.weight_decay / mhat
        r, loss = mhat / (problem.alpha * c * c / 4), float(np.log(2.0))
        done = Iteration(np.zeros(3), 0.0, 0.0, 0, True)
        return SoftmaxPoint(Q, 0.0, 0.0, 0.0, 0.0, a, b, r, 0.0, 0.0, loss, loss, done)

    def _at(self, p: Reals, y: Reals | float) -> tuple[Reals, Reals, Reals]:
        """Return H, g and the loss at the proximal point p."""
        c, sigma = self.c, scipy.special.expit(self.c * p)
        return c * c * sigma * (1 - sigma), c * (y - sigma), np.logaddexp(0.0, c * p) - y * c * p

    def response(self, E: float, theta: float, V: float) -> None:
        """Return None, because the solution of a convex loss is always stable."""

    def test_error(self, E: float, theta: float) -> float:
        """Return the mean loss on new labels of a student with error E at the angle theta."""
        omega, teacher = self.fields(E, theta)
        return self.mean(
            np.logaddexp(0.0, self.c * omega) - scipy.special.expit(self.c * teacher) * self.c * omega
        )


def proximal(omega: Reals, y: Reals, V: float, c: float) -> Reals:
    """Return the proximal point p: the root of `p - omega + V c (sigma(c p) - y)`, by Newton's method."""
    low, high = omega - V * c * (1 - y), omega + V * c * y
    p = np.clip(omega, low, high)
    for _ in range(MOST_NEWTON):
        sigma = scipy.special.expit(c * p)
        miss = p - omega + V * c * (sigma - y)
        low, high = np.where(miss < 0, p, low), np.where(miss > 0, p, high)
        step = miss / (1 + V * c * c * sigma * (1 - sigma))
        following = p - step
        following = np.where((following > low) & (following < high), following, 0.5 * (low + high))
        following = np.where(miss == 0, p, following)
        moved = np.abs(following - p).max()
        p = following
        if moved <= 1e-14 * (1 + np.abs(p).max()):
            break
    return np.asarray(p)


def solve(problem: Problem, student: StudentUpdate, start: Start | None = None) -> SoftmaxPoint:
    """Solve the equations of a problem for E, theta and V, the unknowns of the module `softmax`."""
    channel = AttendedKey(problem)
    unmoved = channel.unlearned()
    if unmoved.b >= Truncated(problem.target.law, np.array([unmoved.a]), 2).top[0]:
        return unmoved
    return fixed_point(channel, student, start or _linear_start(channel, student), TOLERANCE)


def _linear_start(channel: AttendedKey, student: StudentUpdate) -> Start:
    """Return (E, theta, V) for a quadratic loss with the mean curvature at the target, exact as c -> 0."""
    problem, ones = channel.problem, np.ones((1, 1))
    H = channel.curvature
    # Exact as c -> 0, where a drawn key acts like a score with noise of variance 1/H.
    batch = ProblemBatch(
        problem.target,
        problem.alpha / 2 * ones,
        H / 2 * ones,
        (0.0 if problem.soft_labels else 1 / H) * ones,
        np.array([problem.weight_decay / 2]),
        problem.sides,
    )
    E, gap, V = (float(values[0]) for values in student.start(batch))
    return E, angle(problem.target.second_moment, E, gap), V
