"""The spectrum of a trained attention matrix, predicted: an atom at zero, a bulk and an outlier.

    python examples/learn_spectrum.py [FIGURE]

Real token sequences, d = 100; the target has one eigenvalue far outside its bulk.
"""

from __future__ import annotations

import sys

import polars as pl

from attnlaw.aim.agreement import spectrum_distance
from attnlaw.aim.figures import density_rows
from attnlaw.aim.problem import Problem, Target
from attnlaw.aim.simulate import simulate
from attnlaw.aim.state_evolution import state_evolution
from attnlaw.report.learn_charts import spectrum
from attnlaw.report.style import save_chart

TARGET = Target.marchenko_pastur(0.5).with_spikes(8.0)
PROBLEM = Problem(alpha=0.4, target=TARGET, noise=0.5, weight_decay=0.6)


def main(path: str = "spectrum.pdf") -> None:
    prediction = state_evolution(PROBLEM)
    measured = simulate(PROBLEM, size=100, seeds=6, seed=2)
    outlier = prediction.outliers[0]
    print(f"rank fraction   theory {prediction.rank_fraction:.3f}, trained {measured.rank_fraction.mean:.3f}")
    print(f"outlier         theory {outlier.location:.3f}, trained {measured.eigenvalues[:, -1].mean():.3f}")
    print(
        f"KS distance of the bulk {spectrum_distance(measured.eigenvalues[:, :-1], prediction.spectrum):.3f}"
    )
    chart = spectrum(
        pl.DataFrame(density_rows(prediction)),
        pl.DataFrame({"eigenvalue": measured.eigenvalues.ravel()}),
        prediction.describe()["spectrum"]["atom_at_zero"],
        (outlier.location,),
    )
    print(f"wrote {save_chart(chart, path)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
