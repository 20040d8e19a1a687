"""CPU seconds of trajectories of 200 times, against the flow of a matrix.

    python benchmarks/dynamics.py

1. Tied, linear and softmax (beta 1), kappa0 = 0.5, kappa = 1: the closed solver, large dimension.
   The plain way is the flow of one matrix, here d = 200 by RK4 with 400 steps: it carries its finite size.
2. Untied, with its standard error.

Ends with status 1 when a goal is missed: 0.2, 1 and 4 seconds of CPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from claims import Claims

from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.trajectory import trajectory
from attnlaw.theory.learn.problem import Problem, Target

POINTS, SIZE, STEPS = 200, 200, 400


def seconds(function: Callable[[], object]) -> tuple[float, object]:
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def matrix_flow(last: float) -> float:
    """The overlap at the end of `dW/dtau = -8 (S - S*) W` at one size, from one start."""
    target = Target.marchenko_pastur(0.5).quantiles(SIZE)[:, None]
    W = np.random.default_rng(0).standard_normal((SIZE, SIZE)) * np.sqrt(0.7 / SIZE)

    def slope(W: np.ndarray) -> np.ndarray:
        return -8 * (W @ (W.T @ W) - target * W)

    h = last / STEPS
    for _ in range(STEPS):
        k1 = slope(W)
        k2 = slope(W + h / 2 * k1)
        k3 = slope(W + h / 2 * k2)
        W = W + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(W + h * k3))
    return float(np.sum(W * W * target)) / SIZE


def main() -> int:
    claims = Claims()
    cases = {
        "linear": (Problem(), Schedule(np.geomspace(1e-3, 1, POINTS)), 0.2),
        "softmax, beta 1": (
            Problem(tokens=2, output="softmax"),
            Schedule(np.geomspace(1e-2, 5, POINTS)),
            1.0,
        ),
        "untied": (
            Problem(tokens=2, attention="untied"),
            Schedule(np.geomspace(1e-3, 0.5, POINTS)),
            4.0,
        ),
    }
    plain, _ = seconds(lambda: matrix_flow(1.0))
    for name, (problem, schedule, goal) in cases.items():
        trajectory(problem, Schedule([0.01]))  # imports and tables
        took, solution = min(
            (seconds(lambda: trajectory(problem, schedule)) for _ in range(3)),  # noqa: B023
            key=lambda pair: pair[0],
        )
        task = f"a trajectory of {POINTS} times, {name}, CPU seconds"
        peer = f"flow of one matrix, d = {SIZE}: {plain:.1f} s" if name == "linear" else "no peer"
        claims.add(task, f"{took:.2f} s", peer, took, goal, least=False)
        if name == "untied":
            error = max(solution.error["norm"])  # type: ignore[attr-defined]
            claims.add("its largest standard error of the norm", "", "no peer", error, 0.005, least=False)
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
