"""Where attention learns its target: error over target rank and samples, clean labels, little decay.

python examples/learn_phase_diagram.py [FIGURE]
"""

from __future__ import annotations

import sys

import numpy as np
import polars as pl

from attnlaw.aim.problem import Problem
from attnlaw.aim.sweep import phase_diagram
from attnlaw.report import learn_charts
from attnlaw.report.style import save_chart

NAMES = {"recovery": "factorized", "bayes": "Bayes-optimal", "direct": "direct"}


def main(path: str = "phase_diagram.pdf") -> None:
    problem = Problem(alpha=0.1, weight_decay=1e-4)
    rows = phase_diagram(problem, np.linspace(0.025, 1.0, 40).tolist(), np.linspace(0.015, 0.6, 40).tolist())
    lines = [
        {"target_rank": rank, "alpha": found[name], "name": label}
        for name, label in NAMES.items()
        for rank, found in {row["target_rank"]: row for row in rows}.items()
    ]
    chart = learn_charts.phase_diagram(pl.DataFrame(rows, infer_schema_length=None), pl.DataFrame(lines))
    print(f"wrote {save_chart(chart, path)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
