"""Score scalings: 1/sqrt(n) keeps a random attention in the limit, 1/n makes it uniform."""

from __future__ import annotations

import math

import polars as pl
from limit_experiment import arguments, measure, save, show

from attnlaw.limits import Layer, RandomInputs, Scores
from attnlaw.report.limit_charts import distance_chart


def main() -> None:
    options = arguments(__doc__)
    inputs = RandomInputs(4)
    limit = Layer(inputs, heads=2)
    rows = []
    for scaling in ("1/sqrt(n)", "1/n"):
        for n in (16, 64, 256, 1024):
            layer = Layer(inputs, heads=2, width=n, scores=Scores(scaling=scaling))
            own = measure(layer, options.draws, options.seeds)
            show(f"{scaling:>9}, own limit, n =", n, own)
            rows.append(
                {"x": n, "series": f"{scaling}, its limit", "value": own["kl"], "error": own["kl_error"]}
            )
    for n in (16, 64, 256, 1024, math.inf):
        layer = Layer(inputs, heads=2, width=n, scores=Scores(scaling="1/n"))
        other = measure(layer, options.draws, options.seeds, limit)
        show("      1/n, limit of 1/sqrt(n), n =", n, other)
        if n != math.inf:
            rows.append(
                {
                    "x": n,
                    "series": "1/n, limit of 1/sqrt(n)",
                    "value": other["kl"],
                    "error": other["kl_error"],
                }
            )
    save(distance_chart(pl.DataFrame(rows), "KL", "width n"), options.out, "limit_scaling.pdf")


if __name__ == "__main__":
    main()
