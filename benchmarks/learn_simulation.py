"""Trained students against the theory of the attention-indexed model, and what training costs.

    python benchmarks/learn_simulation.py [cost] [solvers] [goe] [tokens] [misses]   (default: the first four)

- cost     seconds per training against the size d, with the exponent of a power law
- solvers  the factorised student (L-BFGS on W) against the convex one (FISTA, splitting) at d = 60
- goe      Gaussian sensing, extrapolated in 1/d: every quantity should lie within 3 standard errors
- tokens   real token sequences, extrapolated in 1/d: z-scores as they come; h is not Gaussian at finite d
- misses   larger runs of two token cases that miss or nearly miss (about ten minutes)

Cases, sizes and seeds are fixed in the tables below, each case with its own random stream, and are not
changed to make a score pass: of some 80 scores, one in five runs has one beyond 3 by chance alone. At least
ten seeds at every size: with fewer the standard errors themselves are too uncertain for a normal score.

Expected miss: tokens in case E. A positive semidefinite S has h >= -Tr S/sqrt(d), and as lt -> 0 every label
is fitted, so Tr S/d is at least -(least label)/sqrt(d). At these sizes that often exceeds the theory's trace;
the bound is then met with equality by a whole face of minimisers of rank d - 1, far from the limit,
and no straight line in 1/d leads there. Gaussian matrices have no such bound.

Expected deviation: tokens in case L, and in smaller measure every softmax with tokens. Fields of tokens are
skewed, E h^3 ~ d^(-1/2). A loss even in h - h* (linear output) feels that only squared, at order 1/d; softmax
is not even, so its errors approach the limit as d^(-1/2). `misses` shows it: one random sign per sample takes
the skewness away and leaves everything else, and the straight line in 1/d then ends near the theory.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from attnlaw.theory.learn.agreement import agreement
from attnlaw.theory.learn.data import draw_risk
from attnlaw.theory.learn.problem import ObservationGroup, Problem, Target
from attnlaw.theory.learn.simulate import QUANTITIES, simulate
from attnlaw.theory.learn.solvers import train_factors, train_splitting
from attnlaw.theory.learn.state_evolution import state_evolution
from attnlaw.theory.learn.students import STUDENTS
from attnlaw.theory.learn.training import never_stop

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from oracles.proximal_gradient import train_proximal

SEED = 250924914
SIZES = {"goe": (20, 32, 48), "tokens": (40, 60, 80, 100)}
SEEDS = {"goe": (80, 48, 24), "tokens": (32, 20, 14, 10)}
MISSES = (
    ("H", "tokens", (30, 60, 100, 150), (200, 100, 40, 16)),
    ("L", "tokens", (30, 60, 120), (200, 100, 40)),
    ("L", "signed", (30, 60, 120), (200, 100, 40)),
)

half, quarter, double = (Target.marchenko_pastur(ratio) for ratio in (0.5, 0.25, 2.0))
weighted = (
    ObservationGroup("diagonal", weight=0.5, noise=1.0),
    ObservationGroup("off-diagonal", weight=2.0, noise=0.2),
)
CASES = {
    "A linear T=1": Problem(alpha=0.2, noise=0.5, weight_decay=0.1, target=half),
    "B linear T=1, strong decay": Problem(alpha=0.3, noise=0.5, weight_decay=0.6, target=half),
    "C linear T=2": Problem(alpha=0.1, tokens=2, noise=0.5, weight_decay=0.1, target=half),
    "D linear T=3, k0=1/4": Problem(alpha=0.0625, tokens=3, noise=0.2, weight_decay=0.2, target=quarter),
    "E linear T=1, noiseless, lt=1e-4": Problem(alpha=0.125, weight_decay=1e-4, target=quarter),
    "F linear T=1, k0=2": Problem(alpha=0.4, noise=0.3, weight_decay=0.3, target=double),
    "G direct T=1": Problem(alpha=0.2, noise=0.5, weight_decay=0.1, student="direct", target=half),
    "H linear T=2, unequal weights": Problem(
        alpha=0.15, tokens=2, weight_decay=0.3, target=half, groups=weighted
    ),
    "I softmax T=2": Problem(alpha=0.2, tokens=2, output="softmax", weight_decay=0.02, target=half),
    "J softmax T=2, beta=2, k0=1/4": Problem(
        alpha=0.2, tokens=2, output="softmax", beta=2.0, noise=0.3, weight_decay=0.1, target=quarter
    ),
    "K softmax T=3": Problem(
        alpha=0.1, tokens=3, output="softmax", noise=0.1, weight_decay=0.02, target=half
    ),
    "L direct softmax T=4": Problem(
        alpha=0.0625,
        tokens=4,
        output="softmax",
        noise=0.1,
        weight_decay=0.02,
        student="direct",
        target=half,
    ),
}


def cost() -> None:
    problem = CASES["A linear T=1"]
    print(f"{'d':>5} {'samples':>8} {'steps':>6} {'seconds':>8} {'ms/step':>8}")
    sizes, times = (40, 60, 80, 120, 160), []
    for size in sizes:
        rng = np.random.default_rng(SEED)
        risk = draw_risk(problem, problem.target.quantiles(size), round(0.2 * size**2), "tokens", rng)
        start = time.perf_counter()
        trained = STUDENTS[problem.student].train(problem, risk, rng, never_stop)
        times.append(time.perf_counter() - start)
        row = (size, risk.labels.size, trained.steps, times[-1], 1e3 * times[-1] / trained.steps)
        print("{:5d} {:8d} {:6d} {:8.2f} {:8.2f}".format(*row), flush=True)
    exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    print(f"seconds grow like d^{exponent:.1f}")


def solvers() -> None:
    print("relative distance of the trained matrices at d = 60 (target: below 1e-5)")
    for name in (
        "A linear T=1",
        "B linear T=1, strong decay",
        "C linear T=2",
        "H linear T=2, unequal weights",
    ):
        problem = CASES[name]
        samples = round(problem.alpha * 3600)
        for sensing in ("tokens", "goe"):
            rng = np.random.default_rng(SEED)
            risk = draw_risk(problem, problem.target.quantiles(60), samples, sensing, rng)
            runs = [
                train_factors(risk, problem.weight_decay, rng),
                train_proximal(risk, problem.weight_decay),
                train_splitting(risk, problem.weight_decay),
            ]
            scale = np.linalg.norm(runs[1].matrix)
            gaps = [np.linalg.norm(run.matrix - runs[1].matrix) / scale for run in (runs[0], runs[2])]
            steps = "/".join(str(run.steps) for run in runs)
            print(
                f"{name:32} {sensing:7} factors {gaps[0]:.1e}  splitting {gaps[1]:.1e}  steps {steps}",
                flush=True,
            )


def compare(sensing: str) -> None:
    sizes, seeds = SIZES[sensing], SEEDS[sensing]
    print(f"{sensing}: sizes {sizes}, seeds {seeds}; theory | extrapolated(s.e.) | z, per quantity")
    misses, scores = [], []
    for place, (name, problem) in enumerate(CASES.items()):
        start = time.perf_counter()
        prediction = state_evolution(problem)
        runs = [
            simulate(problem, size, count, seed=SEED + 1000 * place + size, sensing=sensing)
            for size, count in zip(sizes, seeds, strict=True)
        ]
        result = agreement(prediction, runs)
        statuses = {str(solution.outcome) for solution in (prediction, *runs)}
        print(
            f"{name}: spectrum KS {result.spectrum_distance:.4f} at d = {sizes[-1]}, {runs[0].solver}, "
            f"{'; '.join(sorted(statuses))}, {time.perf_counter() - start:.0f} s"
        )
        for row in result.comparisons:
            if row.z is None:
                continue
            scores.append(row.z)
            if abs(row.z) > 3:
                misses.append(f"{name}: {row.quantity} z = {row.z:.1f}")
            means = " ".join(f"{getattr(run, row.quantity).value:.5f}" for run in runs)
            misfit = "-" if row.misfit is None else f"{row.misfit:.1f}"
            print(
                f"    {row.quantity:17} {row.theory:9.5f} | {row.value:9.5f}({row.standard_error:.5f}) | "
                f"{row.z:+5.1f}   by size {means}, misfit {misfit}",
                flush=True,
            )
    rms = np.sqrt(np.mean(np.square(scores)))
    print(f"{sensing}: {len(scores)} scores, root mean square {rms:.2f}, largest {np.abs(scores).max():.1f}")
    print(f"{sensing}: beyond 3 standard errors: {misses or 'none'}")


def misses() -> None:
    print("larger runs; theory | extrapolated in 1/d (s.e.) | z")
    for letter, sensing, sizes, seeds in MISSES:
        problem = next(case for name, case in CASES.items() if name.startswith(letter))
        runs = [
            simulate(problem, size, count, seed=777_000 + size, sensing=sensing)
            for size, count in zip(sizes, seeds, strict=True)
        ]
        result = agreement(state_evolution(problem), runs)
        for quantity in ("estimation_error", "prediction_error", "norm"):
            row = result[quantity]
            figures = f"{row.theory:.5f} | {row.value:.5f}({row.standard_error:.5f}) | {row.z:+5.1f}"
            means = " ".join(f"{getattr(run, quantity).value:.5f}" for run in runs)
            print(f"{letter} {sensing:7} {quantity:17} {figures}   d = {sizes}: {means}", flush=True)


def main() -> None:
    chosen = sys.argv[1:] or ["cost", "solvers", "goe", "tokens"]
    start = time.perf_counter()
    for part in chosen:
        print(f"-- {part}")
        {"cost": cost, "solvers": solvers, "misses": misses}.get(part, lambda part=part: compare(part))()
    print(f"total {time.perf_counter() - start:.0f} s; quantities: {', '.join(QUANTITIES)}")


if __name__ == "__main__":
    main()
