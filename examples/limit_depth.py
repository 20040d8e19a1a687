"""Depth: lengths and rank collapse of a stack, with and without a residual, at n = 16 and in the limit."""

from __future__ import annotations

import math

import polars as pl
from limit_experiment import arguments, save

from attnlaw.limits import Layer, RandomInputs, Stack, stack_law
from attnlaw.report.limit_charts import path_chart


def main() -> None:
    options = arguments(__doc__, draws=5_000)
    rows = []
    for residual in (False, True):
        for n in (16, math.inf):
            stack = Stack(Layer(RandomInputs(4, shared=False), heads=2, width=n), 6, residual)
            series = f"n = {'∞' if n == math.inf else n}, {'residual' if residual else 'no residual'}"
            for point in stack_law(stack, options.draws, seed=0).path():
                assert point.cosine is not None
                rows.append(
                    {
                        "series": series,
                        "depth": point.depth,
                        "squared_length": point.squared_length.value,
                        "squared_length_error": point.squared_length.error,
                        "cosine": point.cosine.value,
                        "cosine_error": point.cosine.error,
                    }
                )
                print(f"{series:22} depth {point.depth}   cosine {point.cosine.value:.4f}")
    save(path_chart(pl.DataFrame(rows)), options.out, "limit_depth.pdf")


if __name__ == "__main__":
    main()
