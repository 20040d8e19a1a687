"""Students of finite dimension that SGD trains. Each kind of student has a class.

A learner is drawn at a dimension d, together with its target. It knows its start, one step of SGD, and the
gradient flow of the population loss from the same start. `rate` is the learning rate of a step and R is the
mean loss of its batch. Each step also subtracts `rate gamma/d` times the weights, not shown here:

    tied    W <- W - 2 rate dR/dS W        direct  S <- S - rate dR/dS
    untied  U <- U - rate dR/dM V,  V <- V - rate dR/dM^T U
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from attnlaw.core.arrays import Reals
from attnlaw.theory.dynamics import untied
from attnlaw.theory.dynamics.potential import potential_of
from attnlaw.theory.dynamics.quantities import trajectory_arrays
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.tied import riccati_step
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.target import Target

STEP = 0.1  # a step in time of a flow, times its fastest rate


@dataclass(frozen=True)
class _Symmetric:
    """The common part of tied and direct students. Their target is a diagonal matrix."""

    problem: Problem  # at this dimension: its target is discrete
    schedule: Schedule
    target: Reals
    weights: Reals

    @classmethod
    def from_problem(cls, problem: Problem, schedule: Schedule, size: int, rng: np.random.Generator) -> Self:
        target = problem.target.quantiles(size)
        here = replace(problem, target=Target.discrete(target.tolist()))
        return cls(here, schedule, target, cls._start(schedule, size, rng))

    @staticmethod
    def _start(schedule: Schedule, size: int, rng: np.random.Generator) -> Reals:
        raise NotImplementedError

    @property
    def matrix(self) -> Reals:
        return self.weights

    def flow_step(self, S: Reals, G: float, H: float, h: float) -> Reals:
        """Return the student S after a time h of gradient flow with constant gains G and H."""
        raise NotImplementedError

    def flow(self) -> list[Reals]:
        S, now, potential = self.matrix, 0.0, potential_of(self.problem)
        matrices = [S]
        for time in self.schedule.times[1:]:
            while now < time * (1 - 1e-12):
                q, m = self._numbers(S)
                G, H = potential.gains(q, m)
                fastest = 8 * max(abs(G), abs(H)) * max(self.target[-1], math.sqrt(q))
                h = min(STEP / fastest, time - now)
                # The gains at the middle of the step make its error of second order.
                half = self.flow_step(S, G, H, h / 2)
                S = self.flow_step(S, *potential.gains(*self._numbers(half)), h)
                now += h
            matrices.append(S)
        return matrices

    def _numbers(self, S: Reals) -> tuple[float, float]:
        """Return the norm q = Tr S^2/d and the overlap m = Tr S S*/d."""
        d = self.target.size
        return float(np.vdot(S, S)) / d, float(S.diagonal() @ self.target) / d

    def statistics(self, matrices: Sequence[Reals]) -> dict[str, Reals]:
        size, star = self.target.size, np.diag(self.target)
        q, m = np.array([self._numbers(S) for S in matrices]).T
        t = np.array([float(np.trace(S)) for S in matrices]) / size
        E = np.array([float(np.sum((S - star) ** 2)) for S in matrices]) / size
        return trajectory_arrays(self.problem, potential_of(self.problem), q, m, t, E)

    def spectrum(self, matrix: Reals) -> Reals:
        return np.asarray(np.linalg.eigvalsh(matrix))


@dataclass(frozen=True)
class Tied(_Symmetric):
    """A tied student S = W W^T. At the start, Tr S/d has exactly the value that the theory assumes."""

    @staticmethod
    def _start(schedule: Schedule, size: int, rng: np.random.Generator) -> Reals:
        if schedule.width == math.inf:
            return np.asarray(math.sqrt(schedule.scale) * np.eye(size))
        W = rng.standard_normal((size, max(round(schedule.width * size), 1)))
        return np.asarray(W * math.sqrt(schedule.scale * size) / np.linalg.norm(W))

    @property
    def matrix(self) -> Reals:
        return np.asarray(self.weights @ self.weights.T)

    def after_gradient_step(self, gradient: Reals, rate: float, decay: float) -> Self:
        W = self.weights
        return replace(self, weights=W - 2 * rate * (gradient @ W) - decay * W)

    def flow_step(self, S: Reals, G: float, H: float, h: float) -> Reals:
        return np.asarray(riccati_step(S[None], self.target, G, H, self.schedule.decay, h)[0])


@dataclass(frozen=True)
class Direct(_Symmetric):
    """A direct student S. The start is Gaussian and has the Tr S^2/d that the theory assumes."""

    @staticmethod
    def _start(schedule: Schedule, size: int, rng: np.random.Generator) -> Reals:
        Z = rng.standard_normal((size, size))
        S = Z + Z.T
        return np.asarray(S * (schedule.scale * math.sqrt(size) / np.linalg.norm(S)))

    def after_gradient_step(self, gradient: Reals, rate: float, decay: float) -> Self:
        return replace(self, weights=self.weights - rate * gradient - decay * self.weights)

    def flow_step(self, S: Reals, G: float, H: float, h: float) -> Reals:
        k = 2 * G + self.schedule.decay
        kept, gone = math.exp(-k * h), -math.expm1(-k * h) / k if k else h
        return np.asarray(kept * S - 2 * H * gone * np.diag(self.target))


@dataclass(frozen=True)
class Untied:
    """An untied student M = U V^T. The function `untied.draw` draws its start and its target."""

    problem: Problem
    schedule: Schedule
    target: Reals
    U: Reals
    V: Reals

    @classmethod
    def from_problem(cls, problem: Problem, schedule: Schedule, size: int, rng: np.random.Generator) -> Self:
        start = untied.draw(problem, schedule, size, 1, rng, real=True)
        return cls(problem, schedule, start.target[0], start.U[0], start.V[0])

    @property
    def matrix(self) -> Reals:
        return np.asarray(self.U @ self.V.T)

    def after_gradient_step(self, gradient: Reals, rate: float, decay: float) -> Self:
        U, V = self.U, self.V
        return replace(
            self, U=U - rate * (gradient @ V) - decay * U, V=V - rate * (gradient.T @ U) - decay * V
        )

    def flow(self) -> list[Reals]:
        start = untied.Factors(self.U[None], self.V[None], self.target[None])
        observed = untied.observed_pairs(self.problem)
        return [
            factors.U[0] @ factors.V[0].T
            for factors in untied.states(observed, start, self.schedule, self.problem.tokens, None)
        ]

    def statistics(self, matrices: Sequence[Reals]) -> dict[str, Reals]:
        numbers = np.array([untied.order_parameters(M[None], self.target[None])[0] for M in matrices])
        statistics = untied.untied_arrays(untied.observed_pairs(self.problem), numbers)
        return statistics | {"trace": np.full(len(matrices), math.nan)}

    def spectrum(self, matrix: Reals) -> Reals:
        return np.asarray(np.linalg.svd(matrix, compute_uv=False)[::-1])


# `after_gradient_step` returns the student after one step along `gradient`, dR/dS of the mean loss. `flow`
# returns the matrices of the population's flow from the same start, one for each time of the schedule.
# `statistics` returns the arrays of a `StudentPath` for given matrices.
Learner = Tied | Direct | Untied
