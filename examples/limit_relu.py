"""ReLU inputs: KL to the infinite-width limit against the width, 100,000 draws a seed."""

from __future__ import annotations

import polars as pl
from limit_experiment import arguments, chart_rows, measure, save, show

from attnlaw.limits import Layer, RandomInputs
from attnlaw.report.limit_charts import distance_chart


def main() -> None:
    options = arguments(__doc__, draws=100_000)
    rows = []
    for n in (16, 64, 256, 1024):
        row = measure(Layer(RandomInputs(4, "relu"), heads=2, width=n), options.draws, options.seeds)
        show("n =", n, row)
        rows += chart_rows(n, row)
    save(distance_chart(pl.DataFrame(rows), "KL to the limit", "width n"), options.out, "limit_relu.pdf")


if __name__ == "__main__":
    main()
