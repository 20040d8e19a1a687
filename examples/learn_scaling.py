"""Scaling laws: targets whose eigenvalues fall as a power of their rank are learned mode by mode.

python examples/learn_scaling.py [FIGURE]
"""

from __future__ import annotations

import sys

import numpy as np
import polars as pl

from attnlaw.aim.scaling import scaling_law
from attnlaw.report import learn_charts
from attnlaw.report.style import save_chart


def main(path: str = "scaling_law.pdf") -> None:
    ratios = np.geomspace(8, 512, 7).tolist()
    rows = []
    for exponent in (0.8, 1.0, 1.5):
        for noise in (0.0, 0.5):
            law = scaling_law(exponent, 10**6, ratios, noise=noise)
            label = f"γ = {exponent:g}, {'noisy' if noise else 'clean'}"
            print(f"{label:18} exponent {law.fitted_exponent:.3f}, predicted {law.predicted_exponent:.3f}")
            for ratio, prediction, leading in zip(ratios, law.predictions, law.leading, strict=True):
                error = prediction.estimation_error
                rows.append({"ratio": ratio, "label": label, "estimation_error": error, "leading": leading})
    print(f"wrote {save_chart(learn_charts.scaling_law(pl.DataFrame(rows)), path)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
