"""Heads: KL to the limit for H in {1, 256} at n = 256, and how the limit becomes Gaussian as H grows."""

from __future__ import annotations

import polars as pl
from limit_experiment import arguments, measure, save, show

from attnlaw.limits import Layer, RandomInputs, distances, gaussian_covariance, gaussian_law, output_law
from attnlaw.report.limit_charts import distance_chart


def main() -> None:
    options = arguments(__doc__)
    for heads in (1, 256):
        show(
            "H =",
            heads,
            measure(Layer(RandomInputs(4), heads=heads, width=256), options.draws, options.seeds),
        )
    covariance, _ = gaussian_covariance(Layer(RandomInputs(4)), 20 * options.draws, seed=0)
    gaussian = gaussian_law(float(covariance[0, 0]))
    rows = []
    for heads in (1, 2, 4, 8, 16, 32):
        law = output_law(Layer(RandomInputs(4), heads=heads), 4 * options.draws, seed=1)
        kl, kurtosis = distances(law, gaussian).kl, law.kurtosis()
        assert kl is not None
        print(
            f"H = {heads:>8}   KL to the Gaussian {kl.value:.3e} +- {kl.error:.0e}   "
            f"kurtosis {kurtosis.value:.4f} +- {kurtosis.error:.4f}"
        )
        rows.append({"x": heads, "series": "limit of H heads", "value": kl.value, "error": kl.error})
    chart = distance_chart(pl.DataFrame(rows), "KL of the limit to a Gaussian", "heads H")
    save(chart, options.out, "limit_heads.pdf")


if __name__ == "__main__":
    main()
