"""Time per point of the theory of what attention learns, against the plain way to compute it.

    python benchmarks/learn.py

1. A Bayes-optimal curve of 256 points (softmax, two tokens, kappa0 = 0.5, clean labels): all points together,
   against the plain route of published scripts: density from np.roots, scipy's quad over it, damped
   iteration. The plain route stops at a relative tolerance of 1e-6 in quad and in E (ours ends at 1e-12) and
   is timed on every 32nd point.
2. A factorized-student curve of 256 points through interpolation, noisy labels.
3. A point through the row softmax at two and at four tokens, against the same equations with dense Hessians
   and an LU factorisation for every draw (0.1.0), in CPU time.
4. One point of untied attention by itself, the dearest of seven cases, and one whose width is limited, the
   dearest of four: CPU time after imports, the least of five.

What training costs against the size d is measured by benchmarks/learn_simulation.py.
Ends with status 1 when a goal is missed: 40 times faster in 1., five seconds in 2., 2.5 times faster in 3.,
50 ms and one second in 4.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
from claims import Claims
from scipy.integrate import quad

from attnlaw.theory.learn import softmax
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.state_evolution import curve, state_evolution
from attnlaw.theory.learn.students import factorized

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from oracles.dense_softmax import DenseChannel
from theory.learn.untied_cases import UNTIED

KAPPA0, POINTS, EVERY = 0.5, 256, 32
TOLERANCE = 1e-6
GOAL_RATIO, GOAL_SECONDS, GOAL_SOFTMAX = 40.0, 5.0, 2.5
GOAL_UNTIED, GOAL_WIDTH = 50.0, 1000.0
# (kappa0, alpha, Delta, lt, width)
NARROW = (
    (0.5, 0.5, 0.5, 0.2, 0.3),
    (0.3, 1.5, 0.5, 0.3, 0.3),
    (0.3, 1.5, 0.5, 0.3, 0.2),
    (0.3, 1.5, 0.5, 0.02, 0.5),
)


def plain_error(a: float) -> float:
    """`Q* - int (x - 2 a^2 Re g)^2 dmu_a`: a cubic by np.roots at every point that quad asks for."""
    c = 1 / np.sqrt(KAPPA0)
    quartic = np.roots([a * a * c * c, -2 * a * a * c, a * a - c * c + 1, 2 * c, -1.0])
    real = quartic[np.abs(quartic.imag) < 1e-9 * np.abs(quartic)].real
    edges = np.sort(1 / real + a * a * real + np.sqrt(KAPPA0) / (1 - c * real))

    def integrand(x: float) -> float:
        roots = np.roots([c * a * a, -(a * a + c * x), x + c - np.sqrt(KAPPA0), -1.0])
        g = roots[np.argmin(roots.imag)]
        return float(-g.imag / np.pi * (x - 2 * a * a * g.real) ** 2)

    pairs = zip(edges[::2], edges[1::2], strict=True)
    kept = sum(quad(integrand, low, high, epsrel=TOLERANCE, limit=200)[0] for low, high in pairs)
    return 1 + KAPPA0 - kept


def plain_point(alpha: float) -> tuple[float, int]:
    """Damped iteration of `qhat = 4 alpha / E`, `a^2 = 1/qhat` until E moves by less than the tolerance."""
    E = 1 + KAPPA0
    for step in range(1, 2000):
        new = 0.5 * E + 0.5 * plain_error(np.sqrt(E / (4 * alpha)))
        if abs(new - E) < TOLERANCE * new:
            return new, step
        E = new
    return E, step


def seconds(function: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def softmax_point(tokens: int, claims: Claims) -> None:
    """A point through the softmax by both routes in turn, the least of two."""
    problem = Problem(
        0.4 / tokens,
        tokens=tokens,
        output="softmax",
        target=Target.marchenko_pastur(KAPPA0),
        weight_decay=0.02,
    )
    routes = {"fast": softmax._Channel, "dense": DenseChannel}
    took: dict[str, list[float]] = {name: [] for name in routes}
    solutions = {}
    for name, route in list(routes.items()) * 2:
        with mock.patch.object(softmax, "_Channel", route):
            start = time.process_time()
            solutions[name] = softmax.solve(problem, factorized.FACTORS)
            took[name].append(time.process_time() - start)
    fast, dense = (min(took[name]) for name in ("fast", "dense"))
    claims.add(
        f"a point of a learning curve through a softmax, {tokens} tokens",
        f"{fast:.2f} s",
        f"dense Hessians: {dense:.2f} s",
        dense / fast,
        GOAL_SOFTMAX,
    )
    apart = abs(solutions["fast"].E / solutions["dense"].E - 1)
    # Both routes end at steps of 1e-9; the iteration over (E, theta, V) ends at 1e-6, at the same step.
    claims.add("its error E, relative difference", "", "the same", apart, 1e-11, least=False)


def untied_points(claims: Claims) -> None:
    """The dearest single point without and with a width, milliseconds of CPU."""
    for what, cases, goal in (("", UNTIED, GOAL_UNTIED), (" of limited width", NARROW, GOAL_WIDTH)):
        dearest = max(point_time(*case) for case in cases)
        task = f"one point of untied attention{what}, the dearest of {len(cases)}, CPU ms"
        claims.add(task, f"{dearest:.0f} ms", "no peer", dearest, goal, least=False)


def point_time(kappa0: float, alpha: float, noise: float, decay: float, width: float | None = None) -> float:
    """Milliseconds of CPU, the least of five; problem and target are made anew for each."""
    took = []
    for _ in range(5):
        start = time.process_time()
        target = Target.product(kappa0)
        given = {"noise": noise, "weight_decay": decay, "width": width}
        state_evolution(Problem(alpha, target=target, attention="untied", **given))
        took.append(time.process_time() - start)
    return 1e3 * min(took)


def main() -> int:
    target = Target.marchenko_pastur(KAPPA0)
    alphas = np.linspace(0.005, 0.17, POINTS)

    bayes = Problem(0.1, tokens=2, output="softmax", target=target, student="bayes")
    curve(bayes, alphas[:2])  # imports and tables
    fast, predictions = min(
        (seconds(lambda: curve(bayes, alphas)) for _ in range(3)), key=lambda pair: pair[0]
    )
    errors = np.array([prediction.estimation_error.value for prediction in predictions])  # type: ignore[attr-defined]
    chosen = np.arange(EVERY // 2, POINTS, EVERY)
    slow, plain = seconds(lambda: [plain_point(float(alphas[i])) for i in chosen])
    values = np.array([value for value, _ in plain])  # type: ignore[attr-defined]
    steps = np.mean([count for _, count in plain])  # type: ignore[attr-defined]
    ratio = (slow / chosen.size) / (fast / POINTS)
    apart = np.max(np.abs(values - errors[chosen]) / errors[chosen])
    print(f"Bayes-optimal curve, {POINTS} points, relative tolerance {TOLERANCE:g}")
    print(f"  attnlaw          {1e3 * fast / POINTS:10.3f} ms per point   ({fast:.2f} s)")
    print(
        f"  quad + np.roots  {1e3 * slow / chosen.size:10.3f} ms per point   ({steps:.0f} damped steps each)"
    )
    claims = Claims()
    claims.add(
        "a point of a Bayes-optimal learning curve",
        f"{1e3 * fast / POINTS:.2f} ms",
        f"`quad` over `np.roots`: {1e3 * slow / chosen.size:.0f} ms",
        ratio,
        GOAL_RATIO,
    )
    # A damped step contracts slowly: the plain route stops up to tolerance/(1 - rate) away, about 50 times.
    claims.add(
        "its error E, largest relative difference", "", "the same", apart, 100 * TOLERANCE, least=False
    )

    noisy = Problem(0.1, target=target, noise=0.5, weight_decay=1e-2)
    took, predictions = seconds(lambda: curve(noisy, np.linspace(0.02, 1.0, POINTS)))
    worst = max(prediction.residual for prediction in predictions)  # type: ignore[attr-defined]
    task = f"a factorised student's curve of {POINTS} points, seconds"
    claims.add(task, f"{took:.2f} s", "no peer", took, GOAL_SECONDS, least=False)
    claims.add("its largest residual", "", "no peer", worst, 1e-10, least=False)
    for tokens in (2, 4):
        softmax_point(tokens, claims)
    untied_points(claims)
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
