"""Learning curves: what factors buy. Theory for three students, trained students beside it.

    python examples/learn_curves.py [FIGURE]

Noisy labels, a target of rank 0.3 d; each trained student has the weight decay that is best for it at alpha
= 0.3. The points are trained with Gaussian sensing matrices at d = 40 (with tokens the error is a few percent
higher at this size and comes down as 1/d; see benchmarks/learn_simulation.py).
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import polars as pl

from attnlaw.aim.figures import error_row
from attnlaw.aim.problem import Problem, Target
from attnlaw.aim.simulate import simulate
from attnlaw.aim.sweep import best_weight_decay, curve, row
from attnlaw.report.learn_charts import learning_curves
from attnlaw.report.style import save_chart

PROBLEM = Problem(alpha=0.3, target=Target.marchenko_pastur(0.3), noise=0.5)


def main(path: str = "learning_curves.pdf") -> None:
    theory, points = [], []
    for student in ("direct", "factorized", "bayes"):
        problem = replace(PROBLEM, student=student)
        if student != "bayes":
            best = best_weight_decay(problem)
            problem = replace(problem, weight_decay=best.weight_decay)
            print(
                f"{student:12} weight decay {best.weight_decay:.4f}, E {best.prediction.estimation_error:.4f}"
            )
        theory += [row(prediction) for prediction in curve(problem, np.linspace(0.02, 1.0, 80))]
        for alpha in (0.1, 0.3, 0.5, 0.7, 0.9) if student != "bayes" else ():
            measured = simulate(replace(problem, alpha=alpha), size=40, seeds=8, seed=1, sensing="goe")
            points.append(error_row(measured))
            error = measured.estimation_error
            print(f"{student:12} alpha {alpha:.1f}  trained E {error.mean:.4f} ± {error.standard_error:.4f}")
    chart = learning_curves(pl.DataFrame(theory, infer_schema_length=None), pl.DataFrame(points))
    print(f"wrote {save_chart(chart, path)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
