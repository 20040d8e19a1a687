"""Low-rank heads: n_H = 64, H in {1, 4, 16}, n = H n_H, against the limit with H heads."""

from __future__ import annotations

import polars as pl
from limit_experiment import arguments, chart_rows, measure, save, show

from attnlaw.limits import Layer, RandomInputs
from attnlaw.report.limit_charts import distance_chart


def main() -> None:
    options = arguments(__doc__)
    rows = []
    for heads in (1, 4, 16):
        layer = Layer(RandomInputs(4), heads=heads, width=64 * heads, head_width=64)
        row = measure(layer, options.draws, options.seeds)
        show("H =", heads, row)
        rows += chart_rows(heads, row)
    chart = distance_chart(pl.DataFrame(rows), "KL to the limit", "heads H, each of width 64", guide=False)
    save(chart, options.out, "limit_low_rank.pdf")


if __name__ == "__main__":
    main()
