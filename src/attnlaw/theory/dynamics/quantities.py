"""What norm, overlap and trace say of a student at each time: alignment and errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.theory.dynamics.potential import Potential, potentials_of
from attnlaw.theory.learn.problem import Problem

Reals = NDArray[np.float64]


def average_over_potentials(problem: Problem, flow: Callable[[Potential], Sequence[Any]]) -> dict[str, Any]:
    """The arrays of a `Trajectory` from states with q, m, t and E; draws are averaged, with errors."""
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
    """The arrays of a trajectory that follow from norm, overlap, trace and error."""
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
    """`rho`, nan where student or target is proportional to the identity."""
    variance, star = np.maximum(q - t * t, 0.0), max(Q - mean * mean, 0.0)
    if star <= 1e-12 * Q:
        return np.full(q.size, math.nan)
    common = np.where(np.abs(m - t * mean) > 1e-14 * np.abs(m), m - t * mean, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.where(variance > 1e-12 * q, common / np.sqrt(variance * star), math.nan)
    return np.abs(rho) if even else rho
