"""The quantities of a student over time. Theory and SGD report the same ones.

S is the matrix of the student, S* the target and d the dimension. Q* = Tr S*^2/d and t* = Tr S*/d.

| quantity | definition |
|---|---|
| norm, overlap, trace | q = Tr S^2/d, m = Tr S S*/d, t = Tr S/d |
| estimation_error | E = q - 2m + Q* |
| prediction_error | Phi(q, m), the mean loss of a fresh sample with clean labels |
| alignment | rho = (m - t t*)/sqrt((q - t^2)(Q* - t*^2)); its absolute value for an even output |

Untied factors M = U V^T have q = Tr M M^T/d and m = Tr M M*^T/d. Their trace is nan. Their alignment is the
correlation between the scores of the student and of the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import BriefRepr, Outcome
from attnlaw.theory.dynamics.potential import Potential, potentials_of
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.learn.problem import Problem


def average_over_potentials(problem: Problem, flow: Callable[[Potential], Sequence[Any]]) -> dict[str, Any]:
    """Return the arrays of `Trajectory`, averaged over the potentials of a problem, with standard errors."""
    tables = []
    for potential in potentials_of(problem):
        states = flow(potential)
        numbers = (np.array([getattr(state, name) for state in states]) for name in ("q", "m", "t", "E"))
        tables.append(trajectory_arrays(problem, potential, *numbers))
    if len(tables) == 1:
        return tables[0]
    names = list(tables[0])
    every = {name: np.array([table[name] for table in tables]) for name in names}
    errors = {name: every[name].std(axis=0, ddof=1) / len(tables) ** 0.5 for name in names if name != "gains"}
    return {name: every[name].mean(axis=0) for name in names} | {"error": errors}


def trajectory_arrays(
    problem: Problem, potential: Potential, q: Reals, m: Reals, t: Reals, E: Reals
) -> dict[str, Any]:
    """Return the arrays of a trajectory, computed from norm q, overlap m, trace t and error E."""
    target = problem.target
    pairs = list(zip(q.tolist(), m.tolist(), strict=True))
    return {
        "norm": q,
        "overlap": m,
        "trace": t,
        "estimation_error": E,
        "prediction_error": np.array([potential.value(*pair) for pair in pairs]),
        "alignment": alignment(q, m, t, target.second_moment, target.mean, even=potential.even),
        "gains": np.array([potential.gains(*pair) for pair in pairs]),
    }


def alignment(q: Reals, m: Reals, t: Reals, Q: float, mean: float, even: bool) -> Reals:
    """Return the alignment at each time (absolute if `even`). It is nan for multiples of the identity."""
    variance, star = np.maximum(q - t * t, 0.0), max(Q - mean * mean, 0.0)
    if star <= 1e-12 * Q:
        return np.full(q.size, math.nan)
    common = np.where(np.abs(m - t * mean) > 1e-14 * np.abs(m), m - t * mean, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.where(variance > 1e-12 * q, common / np.sqrt(variance * star), math.nan)
    return np.abs(rho) if even else rho


NAMES = ("alignment", "estimation_error", "prediction_error", "overlap", "norm", "trace")


@dataclass(frozen=True, kw_only=True, repr=False)
class StudentPath(BriefRepr):
    """The measures of a student over time. Every array has one entry for each time of the schedule.

    Args:
        alignment: 0 if the student knows nothing of the target, and 1 if it equals the target up to a factor.
            The alignment is nan if the target or the student is proportional to the identity.
    """

    problem: Problem
    schedule: Schedule
    norm: Reals
    overlap: Reals
    trace: Reals
    estimation_error: Reals
    prediction_error: Reals
    alignment: Reals
    error: Mapping[str, Reals] = field(default_factory=dict, repr=False)
    outcome: Outcome = Outcome.DONE
    remark: str | None = None

    @property
    def time(self) -> Reals:
        return np.array(self.schedule.times)

    @property
    def samples(self) -> Reals | None:
        """The number of samples seen by each time, divided by d^2, or None for a gradient flow."""
        eta = self.schedule.learning_rate
        return None if eta == 0 else self.time / eta
